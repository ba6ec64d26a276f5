"""Sums over steps, from which a summary's numbers of steps, cost and replicas follow.

They are added up step block by step block, so that a run of any length needs no table of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from simulator.cost import Source, shares
from simulator.results.facts import Columns, Facts
from simulator.results.goodput import OBJECTIVES, meets
from simulator.results.quantiles import Samples
from simulator.results.window import Window

PARTS = {
    "draft": "draft_s",
    "verify": "verify_s",
    "host": "host_s",
    "prefill": "chunk_s",
    "total": "step_s",
}


@dataclass(slots=True)
class StepSums:
    """Sums over the steps of a window, and over all steps of the run."""

    replicas: int
    # of the window
    steps: int = 0
    committed: int = 0
    packed: int = 0
    executed: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    replica_tokens: np.ndarray = field(init=False)  # (R,) committed
    replica_s: np.ndarray = field(init=False)  # (R,) of its steps
    # of the whole run
    order_ties: int = 0
    prefill_tokens: int = 0
    kv_blocks_peak: int = 0
    source_steps: Counter[int] = field(default_factory=Counter)
    source_s: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.replica_tokens = np.zeros(self.replicas, np.int64)
        self.replica_s = np.zeros(self.replicas)

    @classmethod
    def of(cls, facts: Facts, window: Window, replicas: int) -> StepSums:
        """All steps of a run."""
        sums = cls(replicas)
        sums.add(facts.steps, window.steps(facts))
        return sums

    def add(self, steps: Columns, inside: np.ndarray) -> None:
        """Take (S,) steps in.

        Args:
            inside: (S,) bool, whether each lies in the window.
        """
        self._add_all(steps)
        if not inside.any():
            return
        self.steps += int(np.count_nonzero(inside))
        for part, name in PARTS.items():
            self.seconds[part] += float(steps[name][inside].sum())
        self.committed += int(steps["committed"][inside].sum())
        self.packed += int(steps["packed_tokens"][inside].sum())
        self.executed += int(steps["executed_tokens"][inside].sum())
        if self.replicas > 1:
            replica = steps["replica"][inside]
            self.replica_tokens += self._by_replica(replica, steps["committed"][inside])
            self.replica_s += np.bincount(replica, steps["step_s"][inside], self.replicas)

    def _by_replica(self, replica: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        return np.bincount(replica, tokens, self.replicas).astype(np.int64)

    def _add_all(self, steps: Columns) -> None:
        self.order_ties += int(steps["order_ties"].sum())
        self.prefill_tokens += int(steps["prefill_tokens"].sum())
        self.kv_blocks_peak = max(self.kv_blocks_peak, int(steps["kv_blocks"].max(initial=0)))
        source, step_s = steps["source"], steps["step_s"]
        for kind in np.flatnonzero(np.bincount(source)).tolist():
            this = source == kind
            self.source_steps[kind] += int(np.count_nonzero(this))
            self.source_s[kind] += float(step_s[this].sum())

    def step_ms(self) -> dict[str, float | None]:
        """Mean milliseconds of a step by part."""
        if not self.steps:
            return dict.fromkeys(PARTS)
        return {part: seconds / self.steps * 1e3 for part, seconds in self.seconds.items()}

    def padding_share(self) -> float | None:
        """Share of the verified tokens that are padding; None where executed is not known."""
        return 1 - self.packed / self.executed if self.executed else None

    def cost_shares(self) -> dict[str, dict[str, float]]:
        """See `simulator.cost.shares`."""
        counts = {Source(kind): count for kind, count in sorted(self.source_steps.items())}
        seconds = {Source(kind): total_s for kind, total_s in sorted(self.source_s.items())}
        return shares(counts, seconds)


# ---------------- How evenly a server treats its requests: Jain's index.


@dataclass(slots=True)
class JainSums:
    """Sums over n shares x, of which (sum x)^2 / (n sum x^2) is Jain's index.

    1 where all are equal, 1 / n where one has everything (Jain, Chiu and Hawe, DEC-TR-301, 1984,
    section 3).
    """

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, shares: np.ndarray) -> None:
        """Take (n,) shares in."""
        self.count += len(shares)
        self.total += float(shares.sum())
        self.squares += float(np.square(shares).sum())

    def join(self, other: JainSums) -> None:
        """Take another group in."""
        self.count += other.count
        self.total += other.total
        self.squares += other.squares

    @property
    def index(self) -> float | None:
        """Jain's index; None of nobody, 1 where everyone has nothing."""
        if not self.count:
            return None
        return self.total**2 / (self.count * self.squares) if self.squares else 1.0


@dataclass(slots=True)
class Fairness:
    """Output tokens per second of residence, and draft nodes per round, over requests."""

    rates: JainSums
    nodes: JainSums

    @classmethod
    def none(cls) -> Fairness:
        """Of no request yet."""
        return cls(JainSums(), JainSums())

    def add(self, requests: Columns) -> None:
        """Take finished requests in; one that took no time, or no round, has no share there."""
        stay_s = requests["finish_s"] - requests["arrival_s"]
        stayed, rounds = stay_s > 0, requests["rounds"]
        self.rates.add(requests["output_tokens"][stayed] / stay_s[stayed])
        self.nodes.add(requests["draft_nodes"][rounds > 0] / rounds[rounds > 0])

    def join(self, other: Fairness) -> None:
        """Take another group in."""
        self.rates.join(other.rates)
        self.nodes.join(other.nodes)

    def describe(self) -> dict[str, float | None]:
        """For the summary."""
        return {
            "output_tokens_per_s": self.rates.index,
            "draft_nodes_per_round": self.nodes.index,
        }


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


@dataclass(slots=True)
class RoundSums:
    """Sums over a window's rounds, added up block by block."""

    rounds: int = 0
    committed: int = 0
    nodes: int = 0
    verified: int = 0  # nodes of rounds that paid a draft
    accepting: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    # accepting: (deepest + 1,) rounds that paid a draft, by draft tokens accepted

    @classmethod
    def of(cls, facts: Facts, window: Window) -> RoundSums:
        """Those of a run whose tables are in memory."""
        sums, step = cls(), facts.rounds["step"]
        inside = window.steps(facts)
        paid = (inside & facts.steps["drafted"])[step]
        for name, column in (("committed", "committed"), ("nodes", "width")):
            setattr(sums, name, int(facts.rounds[column][inside[step]].sum()))
        sums.rounds = int(np.count_nonzero(inside[step]))
        sums.verified = int(facts.rounds["width"][paid].sum())
        sums.accepting = np.bincount(facts.rounds["accepted"][paid], minlength=1)
        return sums

    def add_steps(self, steps: Columns, inside: np.ndarray, accepting: np.ndarray) -> None:
        """Take steps in.

        Args:
            inside: (S,) whether each lies in the window.
            accepting: (d + 1,) their rounds in the window that paid a draft, by tokens accepted.
        """
        nodes = steps["draft_nodes"]
        self.rounds += int(steps["batch"][inside].sum())
        self.committed += int(steps["committed"][inside].sum())
        self.nodes += int(nodes[inside].sum())
        self.verified += int(nodes[inside & steps["drafted"]].sum())
        longer, shorter = sorted((accepting, self.accepting), key=len, reverse=True)
        self.accepting = longer.copy()
        self.accepting[: len(shorter)] += shorter

    def numbers(self) -> dict[str, Any]:
        """The summary's keys."""
        drafts, deepest = int(self.accepting.sum()), np.arange(len(self.accepting))
        total = int(self.accepting @ deepest)
        length = None
        if self.rounds:
            length = 1.0 + (total / drafts if drafts else 0.0)
        return {
            "acceptance_length": length,
            "committed_round_length": self.committed / self.rounds if self.rounds else None,
            "draft_nodes_per_request": self.nodes / self.rounds if self.rounds else None,
            "share_verified_accepted": total / self.verified if self.verified else None,
            "acceptance_rate_by_depth": _rates(self.accepting),
            **_counted_as_vllm(self.accepting, self.verified),
        }


def acceptance(facts: Facts, window: Window) -> dict[str, Any]:
    """Acceptance over the window's rounds.

    `acceptance_length` is 1 + accepted / drafts (vLLM), accepted not clipped at the end of the
    text. Rounds that paid no draft are left out; a run without any has length 1, the target's
    token.
    """
    return RoundSums.of(facts, window).numbers()


def _counted_as_vllm(accepting: np.ndarray, verified: int) -> dict[str, Any]:
    """Counts of the drafted rounds under vLLM's benchmark keys; its acceptance rate is in percent.

    Its rates per position are not conditional: drafts that accepted depth d over all drafts.

    Args:
        accepting: (deepest + 1,) rounds by draft tokens accepted. verified: nodes.
    """
    reached = _reaching(accepting)
    drafts, total = int(accepting.sum()), int(reached[1:].sum())
    return {
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": verified,
        "spec_decode_accepted_tokens": total,
        "spec_decode_acceptance_rate": 100 * total / verified if verified else None,
        "spec_decode_acceptance_length": 1 + total / drafts if drafts else None,
        "spec_decode_per_position_acceptance_rates": [int(n) / drafts for n in reached[1:]],
    }


def rate_by_depth(accepted: np.ndarray) -> list[float]:
    """P(depth d accepted | depth d - 1 accepted), d = 1 to the deepest one accepted.

    Args:
        accepted: (n,) draft tokens accepted per drafted round. A round that did not verify depth
            d counts as one that did not accept it.
    """
    return _rates(np.bincount(accepted))


def _rates(accepting: np.ndarray) -> list[float]:
    return [int(more) / int(less) for less, more in pairwise(_reaching(accepting))]


def _reaching(accepting: np.ndarray) -> np.ndarray:
    """Rounds that accept at least so many draft tokens, up to the most that any did."""
    some = np.flatnonzero(accepting)
    deepest = int(some[-1]) if len(some) else 0
    return accepting[: deepest + 1][::-1].cumsum()[::-1]  # (deepest + 1,)


def by_domain(
    facts: Facts,
    window: Window,
    names: tuple[str, ...],
    limits: Mapping[str, float] | None = None,
) -> dict[str, dict[str, Any]]:
    """Every domain that occurs, see `RequestSums.by_domain`; `limits`: objectives in ms."""
    sums = RequestSums.of(facts, window, len(names), limits=limits)
    return sums.by_domain(names, window.seconds)


def near_ties(facts: Facts, margin: np.ndarray | None, below: float) -> dict[str, Any]:
    """Rounds of the whole run at anchors whose two best target tokens are nearly equal.

    Args:
        margin: (A,) top-2 margin of the target in logits; None: not recorded.
        below: margins under this count.
    """
    count = None
    if margin is not None:
        count = int(np.count_nonzero(margin[facts.rounds["anchor"]] < below))
    return {"target_margin": count, "margin_below": below}
