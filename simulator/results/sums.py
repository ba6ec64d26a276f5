"""Sums over a run, from which all numbers of its summary follow.

They are added up block by block, so that a run of any length needs no table. A new number takes
two places: what is added up for it here, and its key in `numbers` of the class.
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
from simulator.results.fold import Folded, fold_facts
from simulator.results.goodput import OBJECTIVES, meets
from simulator.results.latency import request_times, throughput_numbers
from simulator.results.quantiles import ERROR, Samples
from simulator.results.window import Window, find_window
from traces.recordings.recording import Recording

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
    rounds: int = 0
    committed: int = 0
    nodes: int = 0
    verified: int = 0  # nodes of steps that paid a draft
    accepting: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    # accepting: (deepest + 1,) rounds that paid a draft, by draft tokens accepted
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

    def add(self, steps: Columns, inside: np.ndarray, accepting: np.ndarray) -> None:
        """Take (S,) steps in.

        Args:
            inside: (S,) bool, whether each lies in the window.
            accepting: (d + 1,) rounds in the window that paid a draft, by tokens accepted.
        """
        self._add_all(steps)
        self.accepting = _added(self.accepting, accepting)
        if not inside.any():
            return
        self.steps += int(np.count_nonzero(inside))
        for part, name in PARTS.items():
            self.seconds[part] += float(steps[name][inside].sum())
        self.rounds += int(steps["batch"][inside].sum())
        self.committed += int(steps["committed"][inside].sum())
        self.nodes += int(steps["draft_nodes"][inside].sum())
        self.verified += int(steps["draft_nodes"][inside & steps["drafted"]].sum())
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

    def acceptance(self) -> dict[str, Any]:
        """Acceptance over the window's rounds, and its counts under vLLM's benchmark keys.

        `acceptance_length` is 1 + accepted / drafts (vLLM), accepted not clipped at the end of the
        text. Rounds that paid no draft are left out; a run without any has length 1, the target's
        token. vLLM's acceptance rate is in percent, and its rates per position are not
        conditional: drafts that accepted depth d over all drafts.
        """
        reached = _reaching(self.accepting)
        drafts, total = int(self.accepting.sum()), int(reached[1:].sum())
        length = 1.0 + total / drafts if drafts else None
        share = total / self.verified if self.verified else None
        rounds = self.rounds
        return {
            "acceptance_length": length or (1.0 if rounds else None),
            "committed_round_length": self.committed / rounds if rounds else None,
            "draft_nodes_per_request": self.nodes / rounds if rounds else None,
            "share_verified_accepted": share,
            "acceptance_rate_by_depth": [int(n) / int(less) for less, n in pairwise(reached)],
            "spec_decode_num_drafts": drafts,
            "spec_decode_draft_tokens": self.verified,
            "spec_decode_accepted_tokens": total,
            "spec_decode_acceptance_rate": 100 * total / self.verified if self.verified else None,
            "spec_decode_acceptance_length": length,
            "spec_decode_per_position_acceptance_rates": [int(n) / drafts for n in reached[1:]],
        }

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


def _added(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The sum of two counts by value, of any lengths."""
    longer, shorter = sorted((one, other), key=len, reverse=True)
    total = longer.copy()
    total[: len(shorter)] += shorter
    return total


def _reaching(accepting: np.ndarray) -> np.ndarray:
    """Rounds that accept at least so many draft tokens, up to the most that any did.

    A round that did not verify a depth counts as one that did not accept it.
    """
    some = np.flatnonzero(accepting)
    deepest = int(some[-1]) if len(some) else 0
    return accepting[: deepest + 1][::-1].cumsum()[::-1]  # (deepest + 1,)


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

    @property
    def index(self) -> float | None:
        """Jain's index; None of nobody, 1 where everyone has nothing."""
        if not self.count:
            return None
        return self.total**2 / (self.count * self.squares) if self.squares else 1.0


@dataclass(slots=True)
class GroupSums:
    """Sums over some requests: those of a domain, or all."""

    exact: int | None  # values that percentiles hold, see `Samples`
    occurs: int = 0  # requests
    ended: int = 0  # in the window
    measured: int = 0  # of them, without warm-up requests
    good: int = 0  # of them, meeting every objective
    rounds: int = 0  # of the window
    drafts: int = 0
    accepted: int = 0
    rates: JainSums = field(default_factory=JainSums)  # output tokens per second of residence
    nodes: JainSums = field(default_factory=JainSums)  # draft nodes per round
    times: dict[str, Samples] = field(init=False)

    def __post_init__(self) -> None:
        self.times = {name: Samples(self.exact) for name in OBJECTIVES}

    def add(
        self,
        requests: Columns,
        times_s: Columns,
        ended: np.ndarray,
        of: np.ndarray,
        limits: Mapping[str, float] | None,
    ) -> None:
        """Take (n,) requests in.

        Args:
            times_s: see `request_times`. ended: in the window. of: whether each belongs here.
        """
        self.occurs += int(np.count_nonzero(of))
        self.ended += int(np.count_nonzero(of & ended))
        self.rounds += int(requests["in_rounds"][of].sum())
        self.drafts += int(requests["in_drafts"][of].sum())
        self.accepted += int(requests["in_accepted"][of].sum())
        judged = np.flatnonzero(of & ended & ~requests["warmup"])
        times_s = {name: values[judged] for name, values in times_s.items()}
        self.measured += len(judged)
        if limits is not None:
            self.good += int(np.count_nonzero(meets(limits, times_s)))
        for name, values in times_s.items():
            self.times[name].add(values[~np.isnan(values)] * 1e3)  # vLLM: no TPOT of one token
        self._add_shares({n: requests[n][judged] for n in _SHARED}, times_s["e2el"])

    def _add_shares(self, requests: Columns, stay_s: np.ndarray) -> None:
        """A request that took no time, or no round, has no share there."""
        stayed, rounds = stay_s > 0, requests["rounds"]
        self.rates.add(requests["output_tokens"][stayed] / stay_s[stayed])
        self.nodes.add(requests["draft_nodes"][rounds > 0] / rounds[rounds > 0])

    def fairness(self) -> dict[str, float | None]:
        """Jain's indices over measured requests."""
        return {"output_tokens_per_s": self.rates.index, "draft_nodes_per_round": self.nodes.index}

    @property
    def exactly(self) -> bool:
        """Whether all percentiles are exact."""
        return all(samples.exact for samples in self.times.values())

    def goodput(self, seconds: float) -> float | None:
        """Requests per second that meet every objective.

        The window's request throughput, times the share of its measured requests that meet them
        (a warm-up request takes a place but cannot be judged). A rejected request never ends and
        meets none, so it adds nothing.
        """
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
        """1 + accepted / drafts over the window's rounds, see `StepSums.acceptance`."""
        if not self.rounds:
            return None
        return 1.0 + (self.accepted / self.drafts if self.drafts else 0.0)


_SHARED = ("output_tokens", "rounds", "draft_nodes")
_BY_DOMAIN = ("mean", "median", "p99")  # of latencies; the whole run has more


def _chosen(latency: dict[str, float | None]) -> dict[str, float | None]:
    return {key: value for key, value in latency.items() if key.split("_")[0] in _BY_DOMAIN}


_AT_ONCE = 1 << 12  # anchors whose pools are read together


class AnchorCounts:
    """Rounds of the whole run by anchor; the memory is that of the recording's anchors."""

    def __init__(self) -> None:
        self.counts = np.zeros(0, np.int64)

    def add(self, anchor: np.ndarray) -> None:
        """Count (n,) rounds."""
        counts = np.bincount(anchor, minlength=len(self.counts))
        counts[: len(self.counts)] += self.counts
        self.counts = counts

    def near(self, margin: np.ndarray | None, below: float) -> int | None:
        """Rounds whose two best target tokens are nearly equal.

        Args:
            margin: (A,) top-2 margin of the target in logits; None: not recorded.
            below: margins under this count.
        """
        if margin is None:
            return None
        return int(self.counts[margin[: len(self.counts)] < below].sum())

    def sampled_error_bound(self, recording: Recording) -> dict[str, float]:
        """Mean and maximum over rounds, see `orders.families.sampled_fit`."""
        from simulator.orders.families.sampled_fit import sampled_error_bound

        total = largest = 0.0
        visited = np.flatnonzero(self.counts)
        for first in range(0, len(visited), _AT_ONCE):
            some = visited[first : first + _AT_ONCE]
            bound = sampled_error_bound(recording, some)
            total += float(bound @ self.counts[some])
            largest = max(largest, float(bound.max()))
        return {"mean": total / int(self.counts.sum()), "max": largest}


@dataclass(slots=True)
class Sums:
    """All sums of a run and its window.

    Args:
        domains: names. limits: objectives in milliseconds, None without.
        longest_prompt: tokens; prompts beyond it are counted. exact: see `Samples`.
    """

    domains: tuple[str, ...] = ()
    replicas: int = 1
    limits: Mapping[str, float] | None = None
    longest_prompt: int = 0
    exact: int | None = None
    window: Window | None = field(init=False, default=None)  # once the run is over
    steps: StepSums = field(init=False)
    groups: list[GroupSums] = field(init=False)  # requests by domain
    everyone: GroupSums = field(init=False)
    gaps: Samples = field(init=False)  # milliseconds between chunks
    anchors: AnchorCounts = field(init=False)
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
    longer_prompts: int = 0  # requests
    last_arrival_s: float = 0.0
    last_end_s: float = 0.0

    def __post_init__(self) -> None:
        self.steps, self.anchors = StepSums(self.replicas), AnchorCounts()
        self.groups = [GroupSums(self.exact) for _ in self.domains]
        self.everyone, self.gaps = GroupSums(self.exact), Samples(self.exact)
        self.replica_ended, self.replica_first = np.zeros((2, self.replicas), np.int64)
        self.replica_prefill_s = np.zeros(self.replicas)

    @classmethod
    def of(cls, facts: Facts, window: Window | None = None, **options: Any) -> Sums:
        """Those of a run whose tables are at hand; `options` of the constructor."""
        return cls(**options).take(facts, window)

    def take(self, facts: Facts, window: Window | None = None) -> Sums:
        """Take a whole run in from its tables; returns the sums."""
        self.window = window or find_window(facts)
        requests, folded = fold_facts(facts, self.window)
        self.add_steps(facts.steps, facts.rounds, self.window.steps(facts), folded)
        self.add_requests(requests | facts.requests, self.window)
        return self

    def add_steps(
        self, steps: Columns, rounds: Columns, inside: np.ndarray, folded: Folded
    ) -> None:
        """Take a block of steps in, `inside` the window or not: (S,), and their folded rounds."""
        self.steps.add(steps, inside, folded.accepting)
        self.gaps.add(folded.gaps_s * 1e3)
        self.anchors.add(rounds["anchor"])

    def add_requests(self, requests: Columns, window: Window) -> None:
        """Take (n,) requests in that are over, once each, with what `fold` added to them.

        Args:
            window: as far as it decides about them.
        """
        facts, times_s = Facts(requests, {}, {}, None), request_times(requests)
        ended, domain = window.requests(facts), requests["domain"]
        self._add_all(requests)
        self._add_window(facts, window, ended)
        self.everyone.add(requests, times_s, ended, np.ones(len(ended), bool), self.limits)
        for index, group in enumerate(self.groups):
            group.add(requests, times_s, ended, domain == index, self.limits)

    def _add_window(self, facts: Facts, window: Window, ended: np.ndarray) -> None:
        """Prefills take from admission to output 0: with chunks longer than what is computed."""
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
        arrival_s, finish_s = requests["arrival_s"], requests["finish_s"]
        arrived, completed = ~np.isnan(arrival_s), ~np.isnan(finish_s)
        self.requests += len(arrival_s)
        self.arrived += int(np.count_nonzero(arrived))
        self.completed += int(np.count_nonzero(completed))
        self.last_arrival_s = float(arrival_s[arrived].max(initial=self.last_arrival_s))
        self.last_end_s = float(finish_s[completed].max(initial=self.last_end_s))
        for name in ("rejected", "preemptions", "hand_overs"):
            setattr(self, name, getattr(self, name) + int(requests[name].sum()))
        self.handed_over += int(np.count_nonzero(requests["hand_overs"]))
        longer = requests["prompt_tokens"] > self.longest_prompt
        self.longer_prompts += int(np.count_nonzero(longer))

    # ---------------------------------------------------------------- what they come to

    def throughput(self) -> dict[str, Any]:
        """See `latency.throughput`."""
        return throughput_numbers(
            self.window,
            decoded=self.steps.committed,
            first=self.first_tokens,
            prompts=self.prompt_tokens,
            ended=self.everyone.ended,
        )

    def latency(self) -> dict[str, float | None]:
        """Mean, median, std (population) and percentiles of TTFT, TPOT, ITL and E2EL in ms."""
        return self.everyone.latency() | self.gaps.statistics("itl")

    def numbers(self, gpus: int = 1) -> dict[str, Any]:
        """The keys of a summary that are counted, whatever was run."""
        steps, everyone = self.steps, self.everyone
        rates, seconds = self.throughput(), self.window.seconds
        output, exact = rates["output_throughput"], everyone.exactly and self.gaps.exact
        return {
            "completed": self.completed,
            "duration": self.last_end_s,
            **rates,
            "output_throughput_per_gpu": None if output is None else output / gpus,
            **self.latency(),
            "percentiles": "exact" if exact else "sketch",
            "percentile_error": 0.0 if exact else ERROR,
            "request_goodput": everyone.goodput(seconds) if self.limits else None,
            **steps.acceptance(),
            "step_ms": steps.step_ms(),
            "by_domain": self._by_domain(seconds),
            "rejected": self.rejected,
            "preemptions": self.preemptions,
            "hand_overs": self.hand_overs,
            "hand_over_share": self.handed_over / max(1, self.requests),
            "kv_blocks_peak": steps.kv_blocks_peak,
            "padding_share": steps.padding_share(),
            "fairness": everyone.fairness(),
            "cost_shares": steps.cost_shares(),
        }

    def realised_rate(self) -> float | None:
        """Requests per second that arrived; random gaps of few requests miss the rate asked for."""
        return self.arrived / self.last_arrival_s if self.last_arrival_s > 0 else None

    def _by_domain(self, seconds: float) -> dict[str, dict[str, Any]]:
        """Requests, latencies, acceptance, goodput and fairness of every domain that occurs."""
        return {
            name: {
                "requests": group.measured,
                "acceptance_length": group.acceptance_length(),
                "request_goodput": None if self.limits is None else group.goodput(seconds),
                "fairness": group.fairness(),
                **_chosen(group.latency()),
            }
            for name, group in zip(self.domains, self.groups, strict=True)
            if group.occurs
        }

    def per_replica(self, whole: bool) -> list[dict[str, Any]]:
        """Requests, output tokens and busy share of the window by replica.

        Busy: in a step, or in the prefill of a prompt that is read `whole`, between steps. Chunks
        that are not computed within a step are left out.
        """
        busy_s = self.steps.replica_s + (self.replica_prefill_s if whole else 0.0)
        tokens = self.steps.replica_tokens + self.replica_first
        seconds = self.window.seconds
        return [
            {
                "requests": int(self.replica_ended[replica]),
                "output_tokens": int(tokens[replica]),
                "busy_share": float(busy_s[replica]) / seconds if seconds > 0 else None,
            }
            for replica in range(self.replicas)
        ]
