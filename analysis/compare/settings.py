"""What sets runs apart beside load and seed: their settings and policies, and how both are named.

A setting is the recording by its content, split and domains, the latency profile by its content
with all its settings, the server's, the workload with its file's content, and the objectives of
goodput. What an older summary does not say is not known, and so differs from what another says.

Policies of one name with different settings or sources get labels of their own: a chain of 4 and
one of 8 must not be averaged as if they were seeds; nor must a policy that was edited in between,
or two classes of one name. Their settings are the summary's ``policy_config`` where a run wrote
it, else the fitted values of ``policy_fit``, which may follow the load: so only runs at one load
are compared with each other. Class and source are those of ``policy_code``.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import pandas

from analysis.read.files import flat

CLASS, SOURCE = "_class", "_source"  # beside a policy's settings, of which none begins with _
_FOLLOWS_LOAD = "unique_prompts"  # of `trace`: how much of the recording a run of this size uses
# Of `workload`: what follows from the number of requests, and what was counted in the file.
_COUNTED = {
    "columns_not_used", "dropped", "file_rate", "file_span_s", "gap_seconds_removed", "gaps_cut",
    "limit", "output_tokens_changed", "outputs_cut", "outputs_raised", "played_rate",
    "prompt_tokens_changed", "prompts_cut", "prompts_raised", "rows", "rows_clipped", "scaled_rate",
}  # fmt: skip
_LONGEST, _LONGEST_IN_LABEL = 40, 24  # characters of a value
_HASH, _HASH_IN_LABEL = 12, 8
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

Data = Mapping[str, Any]  # a summary
Leaves = dict[str, str]  # dotted key, value as JSON


def setting_keys(runs: pandas.DataFrame) -> pandas.Series:
    """For every run a text that is the same for all runs of one setting.

    A run without objectives is beside those with some, unless they have several.
    """

    def text(node: Any) -> str:
        return json.dumps(node, sort_keys=True) if node else ""

    rest = runs["data"].map(lambda data: text(_setting(data)))
    asked = runs["data"].map(lambda data: text(data.get("goodput")))
    several = asked[asked != ""].groupby(rest).agg(set)
    lone = {key: next(iter(own)) for key, own in several.items() if len(own) == 1}
    return rest + asked.where(asked != "", rest.map(lambda key: lone.get(key, "")))


def objective_words(limits: Mapping[str, float]) -> str:
    """As they are written on a command line: `tpot:50 e2el:2000`, in milliseconds."""
    return " ".join(f"{name}:{value:g}" for name, value in limits.items() if value is not None)


def leaves(data: Data, limits: Mapping[str, float] | None) -> Leaves:
    """A run's setting as dotted keys; `limits`: the objectives of those beside it."""
    node = _setting(data) | {"goodput": dict(limits or {})}
    return {key: json.dumps(value, ensure_ascii=False) for key, value in flat(node)}


def _setting(data: Data) -> dict[str, Any]:
    return {
        "trace": {key: value for key, value in data["trace"].items() if key != _FOLLOWS_LOAD},
        "latency": data["latency"],
        "server": data.get("server") or {},
        "workload": _workload(data.get("workload")),
        "what_if": data["what_if"],
        "ttft_note": data.get("ttft_note"),
    }


def _workload(node: Any) -> Any:
    """What a workload is, by its content where that is known; a load is no part of it."""
    if not isinstance(node, Mapping):
        return node if node is not None else {}
    out = _COUNTED | ({"file"} if "sha256" in node else set())
    out |= {"time_scale"} if "arrivals" in node else set()  # it scales the load, or nothing
    return {key: value for key, value in node.items() if key not in out}


def differing(every: Sequence[Mapping[str, Any]]) -> set[str]:
    """Keys that do not have the same value in all; None where one lacks a key."""
    return {
        key for key in {k for one in every for k in one} if len({one.get(key) for one in every}) > 1
    }


def distinctions(settings: Sequence[Leaves]) -> list[str]:
    """For each of several settings shown together, what its recording and profile do not say.

    All texts are empty where the names of recording and profile tell them apart.
    """
    every = sorted(differing(settings))
    named = [key for key in every if not _is_said(key, settings)]
    texts = [_words(one, named) for one in settings]
    titles = [
        (one.get("trace.recording"), one.get("latency.profile"), text)
        for one, text in zip(settings, texts, strict=True)
    ]
    count = Counter(titles)
    return [
        text if count[title] == 1 else _words(one, every)
        for one, text, title in zip(settings, texts, titles, strict=True)
    ]


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
    text = "none" if value is None else " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:24]}...#{_crc(text)}"


def _crc(text: str) -> str:
    return f"{crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def code_of(data: Data) -> dict[str, str]:
    """The policy's class and the sha256 of its source, as far as the summary says."""
    code = data.get("policy_code") or {}
    found = {CLASS: code.get("target"), SOURCE: code.get("sha256")}
    return {key: value for key, value in found.items() if value}


def label_policies(runs: pandas.DataFrame, alike: pandas.Series) -> pandas.Series:
    """Label of every run: its policy's name, and what sets it apart.

    Args:
        alike: what two runs share when they differ in policy and seed alone.
    """
    settings = (
        runs["data"]
        .map(policy_settings)
        .map(lambda one: {k: json.dumps(v) for k, v in flat(one) if not _last(k).startswith("_")})
    )
    settings = settings.combine(runs["data"].map(code_of), dict.__or__)
    labels = {}
    for policy, own in settings.groupby(runs["policy"]):
        groups = own.groupby(alike[own.index])
        keys = set().union(*(differing(list(group)) for _, group in groups))
        sources: dict[str | None, set[str | None]] = defaultdict(set)  # by class
        for one in own:
            sources[one.get(CLASS)].add(one.get(SOURCE))
        if CLASS in keys and all(len(source) == 1 for source in sources.values()):
            keys -= {SOURCE}  # the class says which
        # The last part of each class's name, while that tells them apart.
        names = sources.keys() - {None}
        last = {name: _last(name) for name in names}
        classes = last if len(set(last.values())) == len(last) else {name: name for name in names}
        labels |= {run: _label(policy, one, keys, classes) for run, one in own.items()}
    return pandas.Series(labels, dtype=object).reindex(runs.index)


def policy_settings(data: Data) -> Mapping[str, Any]:
    """As configured or, in an older summary, as fitted; keys that start with _ are Hydra's own."""
    config = data.get("policy_config")
    return data["policy_fit"] if config is None else config


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _label(policy: str, settings: Leaves, keys: set[str], classes: dict[str, str]) -> str:
    shown = []
    for key in sorted(keys & settings.keys()):
        text = settings[key].strip('"')
        if key == CLASS:
            text = classes[settings[key]]
        elif key == SOURCE:
            text = text[:_HASH_IN_LABEL]
        elif len(text) > _LONGEST_IN_LABEL:
            text = f"#{_crc(text)}"
        shown.append(f"{key.lstrip('_')}={text}")
    return f"{policy}({', '.join(shown)})" if shown else policy
