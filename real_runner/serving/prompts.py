"""What a live run is asked: requests, and the prompts files that they are read from.

A prompts file is JSON Lines, one object a line, as benchmarks ship them. The text of a line is its
`prompt`, else its `question`, else the first of its `turns` (MT-Bench's question files have two;
the second needs an answer to the first and is left out). A line may carry `domain` or `category`,
`max_new_tokens` and `seed`; other keys are left alone.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field

from real_runner.engine.models import LivePair, LiveTarget, TextCoder
from real_runner.recording.record import SPLIT_PATTERN, RecordPlan
from real_runner.recording.texts import Prompt
from real_runner.settings import Count, LiveSettings, NotBlank
from traces.common.errors import InputError, refusal
from traces.common.json import loads
from traces.common.settings import LARGEST_WHOLE, Many, Section, key, read, whole

DOMAIN = "prompts"  # of a line that names none
TEXTS = ("prompt", "question", "turns")
DOMAINS = ("domain", "category")
MOST_DOMAINS = 256  # of a recording
_TEXTS = "prompt, question or turns"
MARGIN = 32  # positions beyond a text that a tree or a block may take


@dataclass(frozen=True, slots=True)
class Requests:
    """S texts that the requests of a workload ask for."""

    prompt: list[np.ndarray]  # S of (t,) int64
    seed: np.ndarray  # (S,) keys of the draws
    max_new_tokens: np.ndarray  # (S,)
    domain: np.ndarray  # (S,) index into `domains`
    domains: tuple[str, ...]
    recorded: list[np.ndarray] | None = None  # outputs, for requests that start in the middle
    anchor_offset: np.ndarray | None = None  # (S,) first anchor of the text in its recording

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def prompt_tokens(self) -> np.ndarray:
        """(S,) lengths of the prompts."""
        return np.array([len(prompt) for prompt in self.prompt], np.int64)

    @property
    def longest(self) -> int:
        """Most tokens a request can hold."""
        return int((self.prompt_tokens + self.max_new_tokens).max())


def check_fits(requests: Requests, target: LiveTarget, names: list[str]) -> None:
    """Refuse the first request that does not fit the target's context.

    names: what to call each request in the message.
    """
    room = target.max_positions - MARGIN
    for name, prompt, cap in zip(names, requests.prompt, requests.max_new_tokens, strict=True):
        if len(prompt) + int(cap) > room:
            raise InputError(
                f"{name}: {len(prompt)} prompt tokens and max_new_tokens {cap}; accepted: together "
                f"at most {room}, the context of {target.name} less {MARGIN} for drafts"
            )
        if not len(prompt):
            raise InputError(f"{name}: the prompt has no token; accepted: at least one")


# ---------------- Prompts files.


@dataclass(frozen=True, slots=True)
class PromptLine:
    """One line of a prompts file."""

    where: str  # file and line, for messages
    text: str
    domain: str = DOMAIN
    max_new_tokens: int | None = None  # None: the run's
    seed: int | None = None  # key of the draws; None: by the line's place


def _first_is_text(values: tuple) -> tuple:
    if not isinstance(values[0], str) or not values[0].strip():
        raise ValueError
    return values


class _Row(Section):
    """Keys of a line that count."""

    model_config = ConfigDict(extra="ignore")

    prompt: NotBlank | None = key(None, accepted="a text that is not blank")
    question: NotBlank | None = key(None, accepted="a text that is not blank")
    turns: Annotated[Many[Any], Field(min_length=1), AfterValidator(_first_is_text)] | None = key(
        None, accepted="a list of texts, of which the first is used"
    )
    domain: NotBlank | None = key(None, accepted="a text, or none")
    category: NotBlank | None = key(None, accepted="a text, or none")
    max_new_tokens: Count | None = None
    seed: whole(0, LARGEST_WHOLE) | None = None


def read_prompts(path: str | Path) -> list[PromptLine]:
    """The lines of a prompts file that are not blank.

    Raises:
        InputError: one line naming file, line, key and value; or an empty or unreadable file.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: unreadable ({error.strerror}); accepted: a JSONL file of prompts"
        ) from None
    rows = content.removeprefix(codecs.BOM_UTF8).split(b"\n")
    lines = [_line(f"{path}, line {n}", row) for n, row in enumerate(rows, 1) if row.strip()]
    if not lines:
        raise InputError(f"{path}: no prompt; accepted: a JSON object with {_TEXTS} a line")
    return lines


def _line(where: str, content: bytes) -> PromptLine:
    try:
        node = loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        bad = content[error.start : error.start + 1]
        raise InputError(f"{where}: byte {bad!r} is not UTF-8; accepted: UTF-8 text") from None
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{where}: not JSON ({reason}); accepted: one object a line") from None
    if not isinstance(node, dict):
        raise InputError(f"{where}: {node!r:.40} is no object; accepted: one with {_TEXTS}")
    given = {name: node[name] for name in _Row.model_fields if node.get(name) is not None}
    texts, domains = ([name for name in names if name in given] for names in (TEXTS, DOMAINS))
    if not texts:
        raise InputError(f"{where}: no {_TEXTS}; accepted: one of them with the prompt's text")
    for name in (*texts[1:], *domains[1:]):  # the first counts, whatever the others hold
        del given[name]
    row = read(_Row, given, "", where)
    text = row.prompt or row.question or row.turns[0]
    domain = row.domain or row.category or DOMAIN
    return PromptLine(where, text, domain, row.max_new_tokens, row.seed)


def prompt_lines(settings: LiveSettings) -> tuple[PromptLine, ...] | None:
    """The lines of the `prompts` file; None without one, which only the small pair can do."""
    if settings.prompts is not None:
        return tuple(read_prompts(settings.prompts))
    if settings.target is not None:
        raise InputError(
            f"prompts is None with target {settings.target!r}; accepted: a JSONL file (only "
            "the small pair has a corpus of its own)"
        )
    return None


def requests_of_prompts(
    lines: Sequence[PromptLine], tokenizer: TextCoder, max_new_tokens: int, seed: int
) -> Requests:
    """What the lines ask for, in their order; domains in the order they first appear in.

    seed: keys of the draws of lines without one, numbered as a recording of the file numbers them.
    """
    domains = tuple(dict.fromkeys(line.domain for line in lines))
    domain = np.array([domains.index(line.domain) for line in lines])
    keys = request_seeds(domain, seed)
    caps = [line.max_new_tokens or max_new_tokens for line in lines]
    own = [key if line.seed is None else line.seed for line, key in zip(lines, keys, strict=True)]
    return Requests(
        prompt=[np.array(tokenizer.encode(line.text), np.int64) for line in lines],
        seed=np.array(own, np.int64),
        max_new_tokens=np.array(caps, np.int64),
        domain=domain,
        domains=domains,
    )


def request_seeds(domain: np.ndarray, seed: int) -> np.ndarray:
    """(S,) a key for each of the requests, whose domains are given; none occurs twice.

    As the corpus has them (seed * 10 000 + domain * 1 000 + place in the domain) up to ten domains
    of a thousand prompts.
    """
    most = max(1_000, int(np.bincount(domain).max()))
    many = max(10, int(domain.max()) + 1)
    return (seed * many + domain) * most + places(domain)


def places(domain: np.ndarray) -> np.ndarray:
    """(S,) how many requests of the same domain stand before each."""
    seen: Counter[int] = Counter()
    found = []
    for one in domain.tolist():
        found.append(seen[one])
        seen[one] += 1
    return np.array(found, np.int64)


def record_prompts(
    pair: LivePair, plan: RecordPlan, lines: Sequence[PromptLine]
) -> tuple[RecordPlan, list[Prompt]]:
    """The plan with the file's domains, and its prompts, those of a domain together.

    Every fourth prompt of a domain calibrates, every fourth tunes, the other half reports.

    Raises:
        InputError: a prompt too long for the target, a limit of its own, or too many domains.
    """
    for line in lines:
        if line.max_new_tokens not in (None, plan.max_new_tokens):
            accepted = f"{plan.max_new_tokens} or none, as a recording has one limit for all"
            said = refusal("max_new_tokens", line.max_new_tokens, accepted)
            raise InputError(f"{line.where}: {said}")
    requests = requests_of_prompts(lines, pair.tokenizer, plan.max_new_tokens, plan.seed)
    if len(requests.domains) > MOST_DOMAINS:
        where = next(line.where for line in lines if line.domain == requests.domains[MOST_DOMAINS])
        raise InputError(f"{where}: one more domain; accepted: at most {MOST_DOMAINS} in a file")
    check_fits(requests, pair.target, [line.where for line in lines])
    split = places(requests.domain) % len(SPLIT_PATTERN)
    prompts = [
        Prompt(
            int(requests.domain[i]),
            SPLIT_PATTERN[split[i]],
            int(requests.seed[i]),
            requests.prompt[i].tolist(),
        )
        for i in np.argsort(requests.domain, kind="stable").tolist()
    ]
    return replace(plan, domains=requests.domains), prompts
