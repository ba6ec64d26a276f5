"""Sums over requests, by domain and replica, from which a summary's numbers follow.

They are added up as requests end, so that a run of any length needs no table of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulator.fairness import Fairness
from simulator.goodput import OBJECTIVES, meets
from simulator.ledger import Columns, Facts
from simulator.samples import Samples
from simulator.window import Window

_JUDGED = ("arrival_s", "first_token_s", "finish_s", "output_tokens", "rounds", "draft_nodes")
_BY_DOMAIN = ("mean", "median", "p99")  # of latencies; the whole run has more
INSIDE = ("rounds", "drafts", "accepted")  # of a request, in the window's steps


def inside_window(facts: Facts, window: Window) -> Columns:
    """What each request did in the window's steps: (N,) of `INSIDE` and `tokens`.

    `accepted` counts rounds that paid a draft.
    """
    rounds, count = facts.rounds, len(facts.requests["finish_s"])
    kept = window.steps(facts)[rounds["step"]]
    request = rounds["request"][kept]
    drafted = facts.steps["drafted"][rounds["step"][kept]]

    def per_request(which: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        return np.bincount(which, values, count).astype(np.int64)

    return {
        "rounds": per_request(request),
        "drafts": per_request(request[drafted]),
        "accepted": per_request(request[drafted], rounds["accepted"][kept][drafted]),
        "tokens": per_request(request, rounds["committed"][kept]),
    }


def request_times(requests: Columns) -> Columns:
    """Seconds per request: ttft, tpot (NaN for one output token), e2el; NaN without an end."""
    ttft = requests["first_token_s"] - requests["arrival_s"]
    e2el = requests["finish_s"] - requests["arrival_s"]
    later = requests["output_tokens"] - 1
    tpot = np.divide(e2el - ttft, later, out=np.full(len(later), np.nan), where=later > 0)
    return {"ttft": ttft, "tpot": tpot, "e2el": e2el}


@dataclass(slots=True)
class GroupSums:
    """Sums over some requests: those of a domain, or all."""

    exact: int | None  # values that percentiles hold, see `Samples`
    occurs: int = 0  # requests
    ended: int = 0  # in the window
    measured: int = 0  # of them, without warm-up requests
    good: int = 0  # of them, meeting every objective
    rounds: int = 0
    drafts: int = 0
    accepted: int = 0
    fairness: Fairness = field(default_factory=Fairness.none)
    times: dict[str, Samples] = field(init=False)

    def __post_init__(self) -> None:
        self.times = {name: Samples(self.exact) for name in OBJECTIVES}

    def measure(self, requests: Columns, limits: Mapping[str, float] | None) -> None:
        """Take measured requests in."""
        times_s = request_times(requests)
        self.measured += len(requests["finish_s"])
        if limits is not None:
            self.good += int(np.count_nonzero(meets(limits, times_s)))
        for name, values in times_s.items():
            self.times[name].add(values[~np.isnan(values)] * 1e3)  # vLLM: no TPOT of one token
        if "rounds" in requests:
            self.fairness.add(requests)

    @property
    def exactly(self) -> bool:
        """Whether all percentiles are exact."""
        return all(samples.exact for samples in self.times.values())

    def goodput(self, seconds: float) -> float | None:
        """Requests per second that meet every objective; see `metrics.request_goodput`."""
        if not self.measured or seconds <= 0:
            return None
        return self.good / self.measured * self.ended / seconds

    def latency(self) -> dict[str, float | None]:
        """Statistics of every latency."""
        result: dict[str, float | None] = {}
        for name, samples in self.times.items():
            result |= samples.statistics(name)
        return result

    def acceptance_length(self) -> float | None:
        """1 + accepted / drafts over the window's rounds, see `acceptance.acceptance`."""
        if not self.rounds:
            return None
        return 1.0 + (self.accepted / self.drafts if self.drafts else 0.0)


@dataclass(slots=True)
class RequestSums:
    """Sums over all requests of a run.

    Args:
        domains: how many there are. limits: objectives in milliseconds, None without.
    """

    domains: int
    replicas: int = 1
    limits: Mapping[str, float] | None = None
    exact: int | None = None
    groups: list[GroupSums] = field(init=False)  # by domain
    everyone: GroupSums = field(init=False)
    # of the window
    first_tokens: int = 0
    prompt_tokens: int = 0
    prefill_s: float = 0.0
    replica_ended: np.ndarray = field(init=False)  # (R,)
    replica_first: np.ndarray = field(init=False)  # (R,) first tokens
    replica_prefill_s: np.ndarray = field(init=False)  # (R,)
    # of the whole run
    requests: int = 0
    arrived: int = 0
    completed: int = 0
    rejected: int = 0
    preemptions: int = 0
    hand_overs: int = 0
    handed_over: int = 0  # requests
    last_arrival_s: float = 0.0

    def __post_init__(self) -> None:
        self.groups = [GroupSums(self.exact) for _ in range(self.domains)]
        self.everyone = GroupSums(self.exact)
        self.replica_ended, self.replica_first = np.zeros((2, self.replicas), np.int64)
        self.replica_prefill_s = np.zeros(self.replicas)

    @classmethod
    def of(cls, facts: Facts, window: Window, domains: int, **options: Any) -> RequestSums:
        """All requests of a run; `options` of the constructor."""
        sums = cls(domains, **options)
        sums.add(facts, window, inside_window(facts, window))
        return sums

    def add(self, facts: Facts, window: Window, inside: Columns) -> None:
        """Take the requests of `facts` in, whose steps and rounds are not read."""
        requests = facts.requests
        ended, counted = window.requests(facts), ~requests["warmup"]
        self._add_window(facts, window, ended)
        self._add_all(requests)
        counted &= ended
        measured = {name: requests[name][counted] for name in _JUDGED if name in requests}
        self.everyone.measure(measured, self.limits)
        domain, size = requests["domain"], self.domains
        sums = {name: np.bincount(domain, inside[name], size) for name in INSIDE}
        sums |= {"occurs": np.bincount(domain, minlength=size)}
        sums |= {"ended": np.bincount(domain[ended], minlength=size)}
        domain = domain[counted]
        for index, group in enumerate(self.groups):
            for name, by_domain in sums.items():
                for one in (group, self.everyone):
                    setattr(one, name, getattr(one, name) + int(by_domain[index]))
            group.measure(_of(measured, domain == index), self.limits)

    def _add_window(self, facts: Facts, window: Window, ended: np.ndarray) -> None:
        requests = facts.requests
        admitted, prefilled = window.admitted(facts), window.prefilled(facts)
        prefill_s = requests["first_token_s"] - requests["admitted_s"]
        self.first_tokens += int(np.count_nonzero(admitted))
        self.prompt_tokens += int(requests["prompt_tokens"][admitted].sum())
        self.prefill_s += float(prefill_s[prefilled].sum())
        if self.replicas > 1:
            replica, size = requests["replica"], self.replicas
            self.replica_ended += np.bincount(replica[ended], minlength=size)
            self.replica_first += np.bincount(replica[admitted], minlength=size)
            self.replica_prefill_s += np.bincount(replica[prefilled], prefill_s[prefilled], size)

    def _add_all(self, requests: Columns) -> None:
        arrival_s = requests["arrival_s"]
        self.requests += len(arrival_s)
        arrived = ~np.isnan(arrival_s)
        self.arrived += int(np.count_nonzero(arrived))
        self.completed += int(np.count_nonzero(~np.isnan(requests["finish_s"])))
        self.last_arrival_s = float(arrival_s[arrived].max(initial=self.last_arrival_s))
        for name in ("rejected", "preemptions", "hand_overs"):
            if name in requests:
                setattr(self, name, getattr(self, name) + int(requests[name].sum()))
        if "hand_overs" in requests:
            self.handed_over += int(np.count_nonzero(requests["hand_overs"]))

    def by_domain(self, names: tuple[str, ...], seconds: float) -> dict[str, dict[str, Any]]:
        """Requests, latencies, acceptance, goodput and fairness of every domain that occurs."""
        return {
            name: {
                "requests": group.measured,
                "acceptance_length": group.acceptance_length(),
                "request_goodput": None if self.limits is None else group.goodput(seconds),
                "fairness": group.fairness.describe(),
                **_chosen(group.latency()),
            }
            for name, group in zip(names, self.groups, strict=True)
            if group.occurs
        }


def _of(columns: Columns, chosen: np.ndarray) -> Columns:
    return {name: values[chosen] for name, values in columns.items()}


def _chosen(latency: dict[str, float | None]) -> dict[str, float | None]:
    return {key: value for key, value in latency.items() if key.split("_")[0] in _BY_DOMAIN}
