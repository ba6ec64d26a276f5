"""When a setting counts: which tasks read it, and what else it needs. See `idle`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.engine.inputs import load_recording, settled
from simulator.engine.settings import OF_TASKS
from traces.common.errors import InputError

Config = Mapping[str, Any]

# Tasks that read a setting; a key below it counts where the setting does, unless it is listed too.
READ_BY = {
    "policy": "run tournament capacity",
    "trace": "run rtable published bounds calibrate tournament claims capacity recommend",
    "trace.split": "run published bounds capacity",
    "trace.domains": "run rtable published bounds claims capacity recommend",
    "temperature": "run rtable published bounds calibrate tournament claims capacity recommend",
    "latency": "run rtable published bounds tournament claims capacity recommend",
    "server": "run published tournament claims capacity recommend",
    "workload": "run published tournament claims capacity recommend",
    "max_concurrency": "run published capacity recommend",
    "request_rate": "run capacity recommend",
    "burstiness": "run capacity recommend",
    "num_prompts": "run published recommend",
    "ramp": "run capacity recommend",
    "seed": "run published tournament claims capacity recommend",
    "goodput": "run capacity recommend",
    **{task: task for task in OF_TASKS},
}
# What a table of `task=published` reads; the default one nothing.
_PLAYED = ("trace", "temperature", "latency", "server", "workload", "num_prompts", "seed")
PUBLISHED = {
    "cast_mass": ("trace", "temperature"),
    "dspark_lengths": ("trace", "temperature", "latency"),
    "treespark_budget": ("trace", "temperature", "latency"),
    "treespark_load": _PLAYED,
    "treespark_theta": (*_PLAYED, "max_concurrency"),
    "dspark_cliff": _PLAYED,
}


@dataclass(frozen=True, slots=True)
class Rule:
    """Settings that count in some configurations only; `group.` stands for every key below it."""

    keys: tuple[str, ...]
    counts: Callable[[Config], bool]
    where: str  # what makes them count, in words


def value_at(config: Config, key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def _is(key: str, *values: Any) -> Callable[[Config], bool]:
    return lambda config: value_at(config, key) in values


def _is_given(*keys: str) -> Callable[[Config], bool]:
    return lambda config: any(value_at(config, key) is not None for key in keys)


def _of(task: str, counts: Callable[[Config], bool]) -> Callable[[Config], bool]:
    """`counts` in that task; in others the setting counts."""
    return lambda config: config.get("task", "run") != task or counts(config)


def _open_loop(config: Config) -> bool:
    if config.get("task") == "capacity":
        return value_at(config, "capacity.of") == "request_rate"
    endless = config.get("request_rate", math.inf) in (math.inf, "inf")
    return not endless and value_at(config, "workload.arrivals") != "file"


def _more_than_one(key: str) -> Callable[[Config], bool]:
    return lambda config: value_at(config, key) not in (None, 1)


def _names_csv(key: str) -> Callable[[Config], bool]:
    return lambda config: any(str(one).endswith(".csv") for one in value_at(config, key) or ())


def _host_works(config: Config) -> bool:
    host = value_at(config, "latency.host") or {}
    return any(seconds for name, seconds in host.items() if name != "overlap")


def _is_log(config: Config) -> bool:
    """Whether the trace is an imported log of rounds."""
    try:
        recording = load_recording(settled(config)["trace"], per_round=True)
    except InputError:  # which the task says better
        return True
    return bool(recording.meta.get("per_round"))


def _no_width(config: Config) -> bool:
    return not isinstance(value_at(config, "policy.width"), int)


def _best_first(config: Config) -> bool:
    return not _is_given("policy.widths", "policy.branching")(config)


def _any(*rules: Callable[[Config], bool]) -> Callable[[Config], bool]:
    return lambda config: any(counts(config) for counts in rules)


_TRACES, _LATENCY = ("trace", "temperature"), ("latency", "latency.")
RULES = (
    Rule(("burstiness",), _open_loop, "an open loop (request_rate below inf, no file's arrivals)"),
    Rule(("server.router",), _more_than_one("server.replicas"), "server.replicas above 1"),
    Rule(
        ("server.kv_block", "server.watermark"),
        _is_given("server.kv_tokens", "server.gpu_memory_gb"),
        "server.kv_tokens or server.gpu_memory_gb",
    ),
    Rule(
        ("server.gpu_memory_utilization",),
        _is_given("server.gpu_memory_gb"),
        "server.gpu_memory_gb",
    ),
    Rule(
        ("latency.prefill_efficiency",),
        _is("latency.prefill", "modelled"),
        "latency.prefill=modelled",
    ),
    Rule(("latency.host.launch_s",), _is("latency.mode", "eager"), "latency.mode=eager"),
    Rule(("latency.host.overlap",), _host_works, "a time of latency.host"),
    Rule(
        ("latency.roofline.allreduce_us",),
        _more_than_one("latency.roofline.tensor_parallel"),
        "latency.roofline.tensor_parallel above 1",
    ),
    Rule(
        ("latency.roofline.overhead_ms",),
        _is("latency.roofline.calibrate", None),
        "latency.roofline.calibrate=null, which else fits it",
    ),
    Rule(("policy.force_calibration",), _is_given("policy.calibration"), "policy.calibration"),
    Rule(("policy.mass_curve", "policy.charge_draft"), _no_width, "policy.width=null, or measured"),
    Rule(
        ("policy.nodes", "policy.branch"),
        _best_first,
        "policy.widths=null and policy.branching=null",
    ),
    Rule(("policy.tail_chain",), _is_given("policy.widths"), "policy.widths"),
    Rule(_LATENCY, _of("rtable", _is_log), "an imported log of rounds, at task=rtable"),
    Rule(
        ("policy", "policy."),
        _of("tournament", _is("tournament.candidate", None)),
        "tournament.candidate=null",
    ),
    Rule(_TRACES, _of("tournament", _is("tournament.traces", None)), "tournament.traces=null"),
    Rule(
        _LATENCY,
        _of(
            "tournament",
            _any(_is("tournament.profiles", None), _names_csv("tournament.profiles")),
        ),
        "tournament.profiles=null, or a .csv there",
    ),
    Rule(("seed",), _of("tournament", _is("tournament.seeds", None)), "tournament.seeds=null"),
    Rule(_TRACES, _of("claims", _is("claims.traces", None)), "claims.traces=null"),
    Rule(_LATENCY, _of("claims", _names_csv("claims.profiles")), "a .csv in claims.profiles"),
    Rule(("seed",), _of("capacity", _is("capacity.seeds", None)), "capacity.seeds=null"),
    Rule(("capacity.percentile",), _is("capacity.attained", None), "capacity.attained=null"),
    Rule(
        ("seed",),
        _of("recommend", _any(_is("recommend.seeds", None), _is("recommend.tuning_seeds", None))),
        "recommend.seeds=null or recommend.tuning_seeds=null",
    ),
    Rule(
        ("max_concurrency",),
        _of("recommend", _is("recommend.concurrency", None)),
        "recommend.concurrency=null",
    ),
    Rule(("recommend.attained",), _is_given("goodput"), "goodput"),
    Rule(("published.fit_domain",), _is("published.table", "decoding"), "published.table=decoding"),
)
