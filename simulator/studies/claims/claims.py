"""What is claimed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.engine.inputs import choose_sequences, load_cost, load_recording
from simulator.engine.settings import Settings, read_settings
from simulator.studies.claims.verdict import Claim
from simulator.studies.fair_load import base_of, fair_load
from simulator.studies.options import read_like
from simulator.studies.settings import SECTIONS
from traces.common.errors import InputError
from traces.recordings.recording import Recording

CLAIMS = (
    Claim(
        "1",
        "Parent-conditioned ranking beats marginal ranking at every node budget "
        "(semi-autoregressive drafters)",
        "R at this many nodes, parent-conditioned / marginal",
        every=True,
    ),
    Claim(
        "2a",
        "A survival threshold beats a fixed budget of as many nodes per round",
        "R at this theta, threshold / fixed width in the same order, equal mean nodes",
    ),
    Claim(
        "2b",
        "A survival threshold serves faster than the nearest fixed budget",
        "tokens/s at this concurrency, TreeSpark with one theta / fixed width in the same order",
    ),
    Claim(
        "3a",
        "Alone: CAST's width from measured sizes beats its width from a straight line",
        "tokens/s at this concurrency, cast width=measured / cast",
    ),
    Claim(
        "3b",
        "Alone: the best of the measured staircase beats CaDDTree's first stop on a convex fit",
        "tokens/s at this concurrency, best of the staircase / caddtree",
    ),
    Claim(
        "3c",
        "In batches: the best of the measured staircase beats DSpark's first stop on chains",
        "tokens/s at this concurrency, adaptive_verification / dspark",
    ),
    Claim(
        "4a",
        "One common price of time beats per-step ratios",
        "tokens/s at this concurrency, priced_survival price=lambda / ratio",
    ),
    Claim(
        "4b",
        "Local prices beat per-step ratios",
        "tokens/s at this concurrency, priced_survival price=local / ratio",
    ),
    Claim(
        "4c",
        "Local prices beat one common price",
        "tokens/s at this concurrency, priced_survival price=local / lambda",
    ),
    Claim(
        "5",
        "A budget shared by the batch beats the same number for every request",
        "tokens/s at this concurrency, cast's shared budget / uniform in the same order",
    ),
    Claim(
        "6a",
        "At low load trees beat chains",
        "tokens/s at this concurrency, fixed_tree of 63 nodes / tuned_chain",
    ),
    Claim(
        "6b",
        "At high load chains beat trees",
        "tokens/s at this concurrency, tuned_chain / fixed_tree of 63 nodes",
    ),
    Claim(
        "7a",
        "Above temperature 0 fixed candidate sets beat sampled siblings, by thresholds",
        "tokens/s at this concurrency, treespark draws=fixed / sampled",
    ),
    Claim(
        "7b",
        "Above temperature 0 fixed candidate sets beat sampled siblings, by priced survival",
        "tokens/s at this concurrency, priced_survival draws=fixed / sampled",
    ),
)


# ---------------- The settings of the check, read once.


SPLIT = "report"  # what is judged on


@dataclass(frozen=True, slots=True)
class Trace:
    """A recording, by the name it was asked for."""

    name: str
    node: Mapping[str, Any]  # recording, split, domains

    @property
    def recording(self) -> Recording:
        return load_recording(self.node)

    @property
    def sequences(self) -> np.ndarray:
        """(P,) of the report split."""
        return choose_sequences(self.node, self.recording)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which recordings, which profiles (None: every claim's own) and which loads."""

    traces: tuple[Trace, ...]
    profiles: tuple[str, ...] | None
    concurrency: tuple[int, ...]
    resamples: int
    base: Settings  # server and prompts of every run
    seed: int
    latency: Mapping[str, Any]  # what a profile in a file is read like

    def profile(self, name: str) -> dict[str, Any]:
        """The latency node of a profile."""
        return read_like("latency", name, self.latency, "claims.profiles")

    def load(self, concurrency: int, prompts: int) -> Settings:
        """See `fair_load`."""
        return fair_load(self.base, concurrency, prompts, self.seed)


def read_plan(cfg: Mapping[str, Any]) -> Plan:
    """The plan of a composed configuration; reads every file that it names.

    Raises:
        InputError: the first bad key, value or file.
    """
    settings = read_settings(cfg)
    base = base_of(settings, "claims")
    node = cfg.get("claims") or {}
    missing = [key for key in SECTIONS["claims"].model_fields if key not in node]
    if missing:
        raise InputError(f"claims.{missing[0]} is missing; accepted: see --help")
    profiles = node["profiles"]
    plan = Plan(
        traces=_traces(cfg, node["traces"]),
        profiles=None if profiles is None else _names("profiles", profiles),
        concurrency=_loads(node["concurrency"]),
        resamples=_resamples(node["resamples"]),
        base=base,
        seed=settings.seed,
        latency=cfg["latency"],
    )
    for trace in plan.traces:
        _check(trace)
    for name in plan.profiles or ():
        load_cost(plan.profile(name))
    return plan


def _traces(cfg: Mapping[str, Any], names: Any) -> tuple[Trace, ...]:
    own, where = cfg["trace"], "claims.traces"
    if names is None:
        nodes = {str(own.get("recording")): own}
    else:
        nodes = {n: read_like("trace", n, own, where) for n in _names("traces", names)}
    kept = {"split": SPLIT, "domains": own.get("domains")}
    return tuple(
        Trace(name, {"recording": node.get("recording"), **kept}) for name, node in nodes.items()
    )


def _names(key: str, value: Any) -> tuple[str, ...]:
    good = isinstance(value, list) and value and all(isinstance(name, str) for name in value)
    if not good:
        raise InputError(f"claims.{key} is {value!r}; accepted: null, or a list of names or files")
    return tuple(dict.fromkeys(value))


def _loads(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or not all(type(n) is int and n > 0 for n in value):
        raise InputError(
            f"claims.concurrency is {value!r}; accepted: a list of whole numbers of at least 1"
        )
    return tuple(sorted(set(value)))


def _resamples(value: Any) -> int:
    if type(value) is not int or value < 100:
        raise InputError(f"claims.resamples is {value!r}; accepted: a whole number of at least 100")
    return value


def _check(trace: Trace) -> None:
    """Raise InputError for texts that only a simulation would miss."""
    trace.sequences  # noqa: B018  raises
    for split in ("calibration", "tuning"):
        if not len(trace.recording.sequences_of(split)):
            raise InputError(
                f"{trace.recording.source}: no sequence of split {split!r}; accepted: a recording "
                "that policies can be fitted on"
            )
