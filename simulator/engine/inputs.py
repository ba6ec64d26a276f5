"""What a run reads, kept in memory between the jobs of a sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from simulator.cost import StepCost, build_step_cost
from traces.common.errors import InputError
from traces.recordings.catalog import recording_path
from traces.recordings.files import read_recording
from traces.recordings.recording import Recording

FILES = (".csv", ".yaml", ".draft.csv", ".prefill.csv")  # of a latency profile


def settled(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with `temperature` settled: its trace names one recording.

    Raises:
        InputError: the trace has no recording of that temperature.
    """
    trace, wanted = cfg.get("trace"), cfg.get("temperature")
    if not isinstance(trace, Mapping):
        return dict(cfg)
    others = trace.get("at_temperature") or {}
    own = {key: value for key, value in trace.items() if key != "at_temperature"}
    if wanted is not None:
        own["recording"] = _at_temperature(own, others, wanted)
    return {**cfg, "trace": own, "temperature": None}


def _at_temperature(trace: Mapping[str, Any], others: Any, wanted: Any) -> str:
    if not isinstance(others, Mapping):
        raise InputError(f"trace.at_temperature is {others!r}; accepted: temperature: recording")
    if isinstance(wanted, bool) or not isinstance(wanted, int | float):
        raise InputError(f"temperature is {wanted!r}; accepted: a number, or null")
    if trace.get("recording") not in others.values():  # another file, given in its place
        others = {load_recording(trace, per_round=True).temperature: trace["recording"]}
    try:
        names = {float(temperature): name for temperature, name in others.items()}
    except (TypeError, ValueError):
        keys = ", ".join(map(repr, others))
        raise InputError(
            f"trace.at_temperature has the keys {keys}; accepted: temperatures"
        ) from None
    if wanted not in names:
        listed = ", ".join(f"{temperature:g}" for temperature in sorted(names))
        raise InputError(
            f"temperature is {wanted!r}; accepted with trace.recording {trace.get('recording')}: "
            f"{listed}, or null"
        )
    found = load_recording({"recording": names[wanted]}).temperature
    if found != wanted:
        raise InputError(
            f"trace.at_temperature.{wanted:g} is {names[wanted]}; accepted: a recording of that "
            f"temperature (this one: {found:g})"
        )
    return names[wanted]


def load_recording(trace: Mapping[str, Any], per_round: bool = False) -> Recording:
    """The recording of a `trace` node.

    Args:
        per_round: take an imported log of rounds as well, which cannot be served.

    Raises:
        InputError: no recording named, or one that cannot be read or used.
    """
    name = trace.get("recording")
    if not isinstance(name, str):
        raise InputError(f"trace.recording is {name!r}; accepted: a name, or a path to a file")
    path = recording_path(name)
    stat = path.stat()
    recording = _read(str(path), stat.st_mtime_ns, stat.st_size)
    if recording.meta.get("per_round") and not per_round:
        raise InputError(
            f"{path}: a log of rounds (per-round), the positions between them are missing, so no "
            "other rounds can be played; accepted with it: task=rtable"
        )
    return recording


@lru_cache(maxsize=8)
def _read(path: str, _mtime_ns: int, _size: int) -> Recording:
    return read_recording(path)


def choose_sequences(trace: Mapping[str, Any], recording: Recording) -> np.ndarray:
    """Sequences of the node's split and domains, ascending.

    Raises:
        InputError: an unknown split or domain, or none left.
    """
    split, domains = trace.get("split", "report"), trace.get("domains")
    if domains is None:
        chosen = recording.sequences_of(split)
    elif isinstance(domains, list) and domains and all(isinstance(d, str) for d in domains):
        parts = [recording.sequences_of(split, domain) for domain in domains]
        chosen = np.unique(np.concatenate(parts))
    else:
        known = ", ".join(recording.domains)
        raise InputError(f"trace.domains is {domains!r}; accepted: null, or a list of {known}")
    if not len(chosen):
        raise InputError(
            f"{recording.source}: no sequence of split {split!r} and domains {domains!r}"
        )
    return chosen


def load_cost(latency: Mapping[str, Any]) -> StepCost:
    """The cost model of a `latency` node, one for all jobs with the same node.

    Raises:
        InputError: see `simulator.cost.build_step_cost`.
    """
    path, states = Path(str(latency.get("profile"))), ()
    if path.suffix == ".csv":  # a user's own, which may be edited meanwhile
        files = [path.absolute().with_suffix(ending) for ending in FILES]
        stats = [(str(file), file.stat()) for file in files if file.exists()]
        states = tuple((file, stat.st_mtime_ns, stat.st_size) for file, stat in stats)
    return _cost(json.dumps(latency, sort_keys=True), states)


@lru_cache(maxsize=32)
def _cost(latency: str, _states: tuple) -> StepCost:
    return build_step_cost(json.loads(latency))


def typical_context(recording: Recording, prompt: int | None = None) -> int:
    """KV tokens half-way through a text, averaged over the splits a policy may fit on.

    Without such texts: half of the longest output the recording's settings allow. prompt: tokens of
    every prompt, where they are not the recorded ones.
    """
    fitting = np.concatenate([recording.sequences_of(s) for s in ("calibration", "tuning")])
    if not len(fitting):
        return max(1, recording.meta["generation"]["max_new_tokens"] // 2 + (prompt or 0))
    prompts, outputs = recording["prompt_len"][fitting], recording["output_len"][fitting]
    prompts = prompts if prompt is None else prompt
    return max(1, round(float(np.mean(prompts + outputs / 2))))
