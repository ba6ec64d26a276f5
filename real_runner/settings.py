"""Checks of the live runner's settings; loads no torch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traces.common.errors import InputError

if TYPE_CHECKING:
    from real_runner.recording.record import RecordPlan
    from real_runner.serving.prompts import PromptLine

SIZES = ("small", "large")
CORPUS_LICENSE = "Python Software Foundation License (standard library text); generated text: MIT"
LONGEST = 100_000  # most of anything that is counted here


def whole(key: str, value: Any) -> int:
    """`value` as a count; InputError naming the key otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LONGEST:
        raise InputError(f"{key} is {value!r}; accepted: a whole number, 1 to {LONGEST}")
    return value


def choice(key: str, value: Any, accepted: Sequence[str]) -> str:
    """`value` if it is one of the names."""
    if not isinstance(value, str) or value not in accepted:
        raise InputError(f"{key} is {value!r}; accepted: {', '.join(accepted)}")
    return value


def flag(key: str, value: Any) -> bool:
    """`value` as true or false."""
    if not isinstance(value, bool):
        raise InputError(f"{key} is {value!r}; accepted: true, false")
    return value


def folder(key: str, value: Any) -> str | None:
    """`value` as a folder's name, or None."""
    if value is not None and (not isinstance(value, str) or not value):
        raise InputError(f"{key} is {value!r}; accepted: a folder, or null")
    return value


def text(key: str, value: Any) -> str:
    """`value` as a text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{key} is {value!r}; accepted: a text")
    return value


def make_folder(path: Path) -> None:
    """Make a task's folder before it works for long; InputError if that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"output is {str(path)!r} ({error.strerror}); accepted: a folder that can be made"
        ) from None


def mapping(key: str, value: Any) -> dict[str, Any]:
    """`value` as keys and values."""
    if not isinstance(value, dict):
        raise InputError(f"{key} is {value!r}; accepted: its keys, see --help")
    return value


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
    config: Mapping[str, Any], lines: tuple[PromptLine, ...] | None = None
) -> RecordSettings:
    """What to record, from `size`, `record` and `prompts`; InputError for the first bad one.

    A recording of a prompts file is called as the file is. lines: in place of such a file.
    """
    from real_runner.recording.record import RecordPlan

    lines = lines or prompt_lines(config)
    size = choice("size", config["size"], SIZES)
    settings = mapping("record", config["record"])
    chosen = mapping(f"record.{size}", settings[size])
    counts = {k: whole(f"record.{size}.{k}", v) for k, v in chosen.items() if k != "domains"}
    stated = text("record.license", settings["license"])
    plan = RecordPlan(
        domains=corpus_domains(f"record.{size}.domains", chosen["domains"]),
        max_new_tokens=counts["max_new_tokens"],
        temperatures=_temperatures(settings["temperatures"]),
        shard_mb=counts["shard_mb"],
        text_license=CORPUS_LICENSE if lines is None else stated,
        pool=whole("record.pool", settings["pool"]),
        seed=whole("record.seed", settings["seed"]),
        name=size if config["prompts"] is None else Path(config["prompts"]).stem,
    )
    return RecordSettings(
        plan,
        lines,
        counts["sequences_per_domain"],
        counts["sampled_sequences_per_domain"],
    )


def prompt_lines(config: Mapping[str, Any]) -> tuple[PromptLine, ...] | None:
    """The lines of the `prompts` file; None without one, which only the small pair can do."""
    from real_runner.serving.prompts import read_prompts

    name = config["prompts"]
    if name is None:
        if config["target"] is not None:
            raise InputError(
                f"prompts is None with target {config['target']!r}; accepted: a JSONL file (only "
                "the small pair has a corpus of its own)"
            )
        return None
    if not isinstance(name, str) or not name:
        raise InputError(f"prompts is {name!r}; accepted: a JSONL file, or null")
    return tuple(read_prompts(name))


def corpus_domains(key: str, value: Any) -> tuple[str, ...]:
    """`value` as different domains of the small pair's corpus."""
    from real_runner.training.corpus import DOMAINS

    if not isinstance(value, list) or not value:
        raise InputError(f"{key} is {value!r}; accepted: a list of {', '.join(DOMAINS)}")
    for name in value:
        choice(key, name, tuple(DOMAINS))
    if len(set(value)) < len(value):
        raise InputError(f"{key} is {value!r}; accepted: every domain once")
    return tuple(value)


def wholes(key: str, value: Any) -> list[int]:
    """`value` as a list of different counts."""
    if not isinstance(value, list) or not value:
        raise InputError(f"{key} is {value!r}; accepted: a list of whole numbers")
    counts = [whole(key, one) for one in value]
    if len(set(counts)) < len(counts):
        raise InputError(f"{key} is {value!r}; accepted: every number once")
    return counts


def temperature_of(key: str, value: Any) -> float:
    """`value` as a temperature."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 <= value <= 10:
        raise InputError(f"{key} is {value!r}; accepted: a number, 0 to 10")
    return float(value)


SEARCH: list[str] = []  # overrides that make the user's own folder of configurations known


def policy_nodes(key: str, names: Any) -> list[dict[str, Any]]:
    """The `policy` node of every name in a list, as the command line would compose it."""
    from hydra import compose
    from omegaconf import OmegaConf

    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise InputError(f"{key} is {names!r}; accepted: a list of policies, as in conf/policy")
    if len(set(names)) < len(names):
        raise InputError(f"{key} is {names!r}; accepted: every policy once")
    nodes = []
    for name in names:
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in ("null", "true", "false"):
            raise InputError(f"{key} holds {name!r}; accepted: names as in conf/policy")
        composed = compose("real_runner", [f"policy={name}", *SEARCH])
        nodes.append(OmegaConf.to_container(composed, resolve=True)["policy"])
    return nodes


def with_fixed_sets(nodes: list[dict[str, Any]], temperature: float) -> list[dict[str, Any]]:
    """The policies with fixed candidate sets in place of sampled drafts.

    A sampled draft is replayed from its law given the text, so above temperature 0 its live rounds
    agree with replayed ones in law only: round by round there is nothing to compare.
    """
    if not temperature:
        return nodes
    return [node | {"draws": "fixed"} if "draws" in node else node for node in nodes]


def _temperatures(value: Any) -> tuple[float, ...]:
    accepted = "accepted: a list of different numbers, 0 to 10"
    if not isinstance(value, list) or not value:
        raise InputError(f"record.temperatures is {value!r}; {accepted}")
    for one in value:
        number = isinstance(one, int | float) and not isinstance(one, bool)
        if not number or not math.isfinite(one) or not 0 <= one <= 10:
            raise InputError(f"record.temperatures holds {one!r}; {accepted}")
    if len(set(value)) < len(value):
        raise InputError(f"record.temperatures is {value!r}; {accepted}")
    return tuple(float(one) for one in value)
