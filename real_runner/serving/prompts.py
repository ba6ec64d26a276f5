"""Prompts files: JSON Lines, one object a line, as benchmarks ship them.

The text of a line is its `prompt`, else its `question`, else the first of its `turns` (MT-Bench's
question files have two; the second needs an answer to the first and is left out). A line may
carry `domain` or `category`, `max_new_tokens` and `seed`; other keys are left alone.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from real_runner.serving.requests import Requests, check_fits
from real_runner.settings import CORPUS_LICENSE, LONGEST, LiveSettings
from traces.common.errors import InputError
from traces.common.json import loads

if TYPE_CHECKING:
    from real_runner.engine.models import LivePair, TextCoder
    from real_runner.recording.record import RecordPlan
    from real_runner.recording.texts import Prompt

DOMAIN = "prompts"  # of a line that names none
TEXTS = ("prompt", "question", "turns")
LARGEST_SEED = 2**63 - 1
MOST_DOMAINS = 256  # of a recording


@dataclass(frozen=True, slots=True)
class PromptLine:
    """One line of a prompts file."""

    where: str  # file and line, for messages
    text: str
    domain: str = DOMAIN
    max_new_tokens: int | None = None  # None: the run's
    seed: int | None = None  # key of the draws; None: by the line's place


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


def _line(where: str, row: bytes) -> PromptLine:
    try:
        node = loads(row.decode("utf-8"))
    except UnicodeDecodeError as error:
        bad = row[error.start : error.start + 1]
        raise InputError(f"{where}: byte {bad!r} is not UTF-8; accepted: UTF-8 text") from None
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{where}: not JSON ({reason}); accepted: one object a line") from None
    if not isinstance(node, dict):
        raise InputError(f"{where}: {_short(node)} is no object; accepted: one with {_TEXTS}")
    return PromptLine(
        where,
        _text(where, node),
        _domain(where, node),
        _whole(where, node, "max_new_tokens", 1, LONGEST),
        _whole(where, node, "seed", 0, LARGEST_SEED),
    )


_TEXTS = ", ".join(TEXTS[:-1]) + f" or {TEXTS[-1]}"


def _text(where: str, node: dict[str, Any]) -> str:
    key = next((key for key in TEXTS if node.get(key) is not None), None)
    if key is None:
        raise InputError(f"{where}: no {_TEXTS}; accepted: one of them with the prompt's text")
    value = node[key]
    if key == "turns":
        if not isinstance(value, list) or not value or not _is_text(value[0]):
            _refuse(where, key, value, "a list of texts, of which the first is used")
        value = value[0]
    if not _is_text(value):
        _refuse(where, key, value, "a text that is not blank")
    return value


def _domain(where: str, node: dict[str, Any]) -> str:
    for key in ("domain", "category"):
        if node.get(key) is not None:
            if not _is_text(node[key]):
                _refuse(where, key, node[key], "a text, or none")
            return node[key]
    return DOMAIN


def _is_text(value: Any) -> bool:
    """Whether `value` is a text that holds something and has no half of a surrogate pair."""
    if not isinstance(value, str) or not value.strip():
        return False
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def _whole(where: str, node: dict[str, Any], key: str, least: int, most: int) -> int | None:
    value = node.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        _refuse(where, key, value, f"a whole number, {least} to {most}, or none")
    return value


def _refuse(where: str, key: str, value: Any, accepted: str) -> NoReturn:
    raise InputError(f"{where}: {key} is {_short(value)}; accepted: {accepted}")


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 40 else text[:37] + "..."


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


def request_seeds(domain: np.ndarray, seed: int) -> list[int]:
    """A key for each of the requests, whose domains (S,) are given; none occurs twice.

    As the corpus has them (seed * 10 000 + domain * 1 000 + place in the domain) up to ten domains
    of a thousand prompts.
    """
    if not len(domain):
        return []
    most = max(1_000, int(np.bincount(domain).max()))
    many = max(10, int(domain.max()) + 1)
    seen: Counter[int] = Counter()
    keys = []
    for one in domain.tolist():
        keys.append((seed * many + one) * most + seen[one])
        seen[one] += 1
    return keys


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """What task=record was asked."""

    plan: RecordPlan
    prompts: tuple[PromptLine, ...] | None  # of a file; None: the small pair's corpus
    greedy_count: int  # prompts per domain of the corpus at temperature 0
    sampled_count: int  # and above it

    def count(self, temperature: float) -> int:
        """Prompts per domain at a temperature."""
        return self.sampled_count if temperature else self.greedy_count


def read_plan(
    settings: LiveSettings, lines: tuple[PromptLine, ...] | None = None
) -> RecordSettings:
    """What to record, from `size`, `record` and `prompts`.

    A recording of a prompts file is called as the file is. lines: in place of such a file.
    """
    from real_runner.recording.record import RecordPlan

    lines = lines or prompt_lines(settings)
    record, size = settings.record, settings.size
    chosen = record.small if size == "small" else record.large
    plan = RecordPlan(
        domains=chosen.domains,
        max_new_tokens=chosen.max_new_tokens,
        temperatures=record.temperatures,
        shard_mb=chosen.shard_mb,
        text_license=CORPUS_LICENSE if lines is None else record.license,
        pool=record.pool,
        seed=record.seed,
        name=size if settings.prompts is None else Path(settings.prompts).stem,
    )
    return RecordSettings(
        plan, lines, chosen.sequences_per_domain, chosen.sampled_sequences_per_domain
    )


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


def record_prompts(pair: LivePair, settings: RecordSettings) -> tuple[RecordPlan, list[Prompt]]:
    """The plan with the file's domains, and its prompts, those of a domain together.

    Every fourth prompt of a domain calibrates, every fourth tunes, the other half reports.

    Raises:
        InputError: a prompt too long for the target, a limit of its own, or too many domains.
    """
    from real_runner.recording.record import SPLIT_PATTERN
    from real_runner.recording.texts import Prompt

    lines, plan = settings.prompts, settings.plan
    for line in lines:
        if line.max_new_tokens not in (None, plan.max_new_tokens):
            accepted = f"{plan.max_new_tokens} or none, as a recording has one limit for all"
            _refuse(line.where, "max_new_tokens", line.max_new_tokens, accepted)
    requests = requests_of_prompts(lines, pair.tokenizer, plan.max_new_tokens, plan.seed)
    if len(requests.domains) > MOST_DOMAINS:
        where = next(line.where for line in lines if line.domain == requests.domains[MOST_DOMAINS])
        raise InputError(f"{where}: one more domain; accepted: at most {MOST_DOMAINS} in a file")
    check_fits(requests, pair.target, [line.where for line in lines])
    seen: Counter[int] = Counter()
    prompts = []
    for i in np.argsort(requests.domain, kind="stable").tolist():
        domain = int(requests.domain[i])
        split = SPLIT_PATTERN[seen[domain] % len(SPLIT_PATTERN)]
        prompts.append(Prompt(domain, split, int(requests.seed[i]), requests.prompt[i].tolist()))
        seen[domain] += 1
    return replace(plan, domains=requests.domains), prompts
