"""Finished runs of two policies, matched by everything but the policy."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.compare import Load, load_of
from analysis.paired_requests import Run, read_run
from analysis.settings import leaves
from analysis.summaries import Summary, read_summaries
from analysis.variants import label_policies
from traces.common.errors import InputError

_NAMED = "trace.recording"  # a recording may lie elsewhere under another name
_LOAD = ("max_concurrency", "request_rate", "burstiness", "num_prompts", "ramp")


@dataclass(frozen=True, slots=True)
class Pair:
    """Runs of two policies that served the same requests, and what the policies are called."""

    a: Run
    b: Run
    labels: tuple[str, str]

    @property
    def left_out(self) -> int:
        """Requests that one of the two rejected."""
        return int(np.count_nonzero(~self.a.served))

    @property
    def load(self) -> tuple[Load, int]:
        """And how many requests were sent."""
        run = self.a.summary
        return load_of(run), run.data["num_prompts"]


def match_runs(a: Path, b: Path) -> list[list[Pair]]:
    """Pairs below two folders, those that differ in the seed alone together, by setting and load.

    Raises:
        InputError: a run without its equal on the other side, two of one side that are equal but
            for the policy, or requests that are not the same.
    """
    ours, theirs = _by_setting(a), _by_setting(b)
    if len(ours) == len(theirs) == 1:
        _same(a, b, next(iter(ours.values())), next(iter(theirs.values())))
    for key in ours.keys() ^ theirs.keys():
        run, other = (ours[key], b) if key in ours else (theirs[key], a)
        raise InputError(f"{run.path}: no run of {other} has its recording, profile, load and seed")
    labels = [label_policies(side.values(), _but_seed) for side in (ours, theirs)]
    groups: dict[tuple, list[Pair]] = defaultdict(list)
    for key, run in ours.items():
        other = theirs[key]
        names = (labels[0][run.path], labels[1][other.path])
        pair = Pair(read_run(run), read_run(other), names)
        _same_requests(pair)
        groups[_but_seed(run), *names].append(_both_served(pair))
    return sorted(groups.values(), key=lambda pairs: (setting_of(pairs), pairs[0].load))


def setting_of(pairs: Sequence[Pair]) -> tuple:
    """Pairs of one setting have the same policies, and share their prompts, whatever the load."""
    run = pairs[0].a.summary
    rest = [one for one in _facts(run) if one[0] not in (*_LOAD, "seed")]
    names = (run.data["trace"]["recording"], run.data["latency"]["profile"])
    return (*names, json.dumps(rest), *pairs[0].labels)


def _but_seed(run: Summary) -> str:
    return json.dumps([one for one in _facts(run) if one[0] != "seed"])


def _by_setting(folder: Path) -> dict[str, Summary]:
    found: dict[str, Summary] = {}
    for run in read_summaries([folder]):
        other = found.setdefault(json.dumps(_facts(run)), run)
        if other is not run:
            raise InputError(
                f"{folder}: {other.path.parent.name} and {run.path.parent.name} are of the same "
                "load and seed; accepted: one policy with one result for each"
            )
    return found


def _facts(run: Summary) -> list[tuple[str, Any]]:
    """(name, value) of all that must be equal, the policy left out.

    The objectives of goodput are, too: nothing that is compared here depends on them.
    """
    flat = sorted((key, json.loads(text)) for key, text in leaves(run, None).items())
    kept = [one for one in flat if one[0] != _NAMED]
    return kept + [(name, run.data.get(name)) for name in (*_LOAD, "seed")]


def _same(a: Path, b: Path, ours: Summary, theirs: Summary) -> None:
    first, second = dict(_facts(ours)), dict(_facts(theirs))
    for name in first | second:
        values = [repr(one[name]) if name in one else "not known" for one in (first, second)]
        if values[0] != values[1]:
            raise InputError(
                f"{a} and {b} differ in {name}: {values[0]} and {values[1]}; "
                "accepted: runs that differ in the policy alone"
            )


def _both_served(pair: Pair) -> Pair:
    """Requests that both served; InputError where there are none."""
    served = pair.a.served & pair.b.served
    if not served.any():
        raise InputError(
            f"{pair.a.summary.path.parent} and {pair.b.summary.path.parent}: no request was served "
            "by both; accepted: runs that admit the same requests (more server.kv_tokens)"
        )
    return replace(pair, a=replace(pair.a, served=served), b=replace(pair.b, served=served))


def _same_requests(pair: Pair) -> None:
    a, b = pair.a, pair.b
    names = ["sequence"] if a.summary.closed_loop else ["sequence", "arrival_s"]
    for name in names:
        if not np.array_equal(a.requests[name], b.requests[name]):
            raise InputError(
                f"{a.summary.path.parent} and {b.summary.path.parent} differ in {name} of their "
                "requests; accepted: runs that differ in the policy alone"
            )
