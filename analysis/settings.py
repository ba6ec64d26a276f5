"""What sets runs apart beside policy, load and seed, and how such differences are named.

A setting is the recording by its content, split and domains, the latency profile by its content
with all its settings, the server's, the workload with its file's content, and the objectives of
goodput. What an older summary does not say is not known, and so differs from what another says.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from analysis.summaries import Summary

_FOLLOWS_LOAD = "unique_prompts"  # of `trace`: how much of the recording a run of this size uses
# Of `workload`: what follows from the number of requests, and what was counted in the file.
_COUNTED = (
    "columns_not_used", "dropped", "file_rate", "file_span_s", "gap_seconds_removed", "gaps_cut",
    "limit", "output_tokens_changed", "outputs_cut", "outputs_raised", "played_rate",
    "prompt_tokens_changed", "prompts_cut", "prompts_raised", "rows", "rows_clipped", "scaled_rate",
)  # fmt: skip
_LONGEST = 40  # characters of a value
_HASH = 12
_DERIVED = ("what_if", "ttft_note", "trace.recording", "latency.profile")  # or in every title
# What the name of a recording or profile says with it, as long as it has one value for each name.
_SAID_BY = {
    "trace": ("content_hash", "pair", "temperature", "domains"),
    "latency": ("content_hash", "hardware", "model", "num_gpus", "kind", "engine_mode", "source"),
}
_NAMES = {
    "trace": ("trace.recording",),
    "latency": ("latency.profile",),
    "workload": ("workload", "workload.file", "workload.path", "workload.sha256"),
}

Leaves = dict[str, str]  # dotted key, value as JSON


def setting_keys(runs: Sequence[Summary]) -> dict[Path, str]:
    """By a run's path, a text that is the same for all runs of one setting.

    A run without objectives is beside those with some, unless they have several.
    """
    rest = {run.path: json.dumps(_parts(run), sort_keys=True) for run in runs}
    asked: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        if objectives(run):
            asked[rest[run.path]].add(_text_of(objectives(run)))
    found = {}
    for run in runs:
        own = {_text_of(objectives(run))} if objectives(run) else asked[rest[run.path]]
        found[run.path] = rest[run.path] + (next(iter(own)) if len(own) == 1 else "")
    return found


def objectives(run: Summary) -> dict[str, float] | None:
    """Milliseconds by latency that goodput asks for; None without any."""
    return run.data.get("goodput") or None


def objectives_of(runs: Iterable[Summary]) -> dict[str, float] | None:
    """Those of runs of one setting."""
    return next((found for found in map(objectives, runs) if found), None)


def objective_words(limits: Mapping[str, float]) -> str:
    """As they are written on a command line: `tpot:50 e2el:2000`, in milliseconds."""
    return " ".join(f"{name}:{value:g}" for name, value in limits.items() if value is not None)


def leaves(run: Summary, limits: Mapping[str, float] | None) -> Leaves:
    """The run's setting as dotted keys; `limits`: the objectives of those beside it."""
    return dict(_flat(_parts(run) | {"goodput": dict(limits or {})}))


def distinctions(settings: Sequence[Leaves]) -> list[str]:
    """For each of several settings shown together, what its recording and profile do not say.

    All texts are empty where the names of recording and profile tell them apart.
    """
    differing = sorted(
        key
        for key in {key for one in settings for key in one}
        if len({one.get(key) for one in settings}) > 1
    )
    named = [key for key in differing if not _is_said(key, settings)]
    texts = [_words(one, named) for one in settings]
    titles = [(*_title(one), text) for one, text in zip(settings, texts, strict=True)]
    count = Counter(titles)
    return [
        text if count[title] == 1 else _words(one, differing)
        for one, text, title in zip(settings, texts, titles, strict=True)
    ]


def _parts(run: Summary) -> dict[str, Any]:
    data = run.data
    found = {
        "trace": {key: value for key, value in data["trace"].items() if key != _FOLLOWS_LOAD},
        "latency": data["latency"],
        "server": data.get("server") or {},
        "workload": _workload(data.get("workload")),
        "what_if": data["what_if"],
        "ttft_note": data.get("ttft_note"),
    }
    return found


def _workload(node: Any) -> Any:
    """What a workload is, by its content where that is known; a load is no part of it."""
    if not isinstance(node, Mapping):
        return node if node is not None else {}
    out = {*_COUNTED, *(("file",) if "sha256" in node else ())}
    out |= {"time_scale"} if "arrivals" in node else set()  # it scales the load, or nothing
    return {key: value for key, value in node.items() if key not in out}


def _text_of(limits: Mapping[str, float]) -> str:
    return json.dumps(limits, sort_keys=True)


def _flat(node: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value, ensure_ascii=False)


def _title(one: Leaves) -> tuple[str | None, str | None]:
    return one.get("trace.recording"), one.get("latency.profile")


def _is_said(key: str, settings: Sequence[Leaves]) -> bool:
    """Whether a title says it: the key is a name, or has one value for each name."""
    if key in _DERIVED:
        return True
    root, _, rest = key.partition(".")
    names = _NAMES.get(root, ())
    if key in names or not names:
        return False
    of_some = any(key not in one for one in settings)  # as of live runs beside simulated ones
    if not of_some and rest not in _SAID_BY.get(root, (rest,)):
        return False
    values = defaultdict(set)
    for one in settings:
        values[tuple(one.get(name) for name in names)].add(one.get(key))
    return all(len(own) == 1 for own in values.values())


def _words(one: Leaves, keys: Sequence[str]) -> str:
    said = [f"{key}={_shown(key, one[key])}" for key in keys if key in one]
    return ", ".join(said) if said or not keys else f"without {', '.join(keys)}"


def _shown(key: str, text: str) -> str:
    value = json.loads(text)
    if isinstance(value, list):
        text = ",".join(map(str, value))
    elif isinstance(value, str):
        text = value
    if key.endswith(("hash", "sha256")):
        return text[:_HASH]
    text = " ".join(text.split()).replace("null", "none") if value is None else text
    if len(text) <= _LONGEST:
        return text
    return f"{text[:24]}...#{crc32(text.encode('utf-8', 'surrogatepass')):08x}"
