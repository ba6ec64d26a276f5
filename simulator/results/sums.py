"""Sums over a run, from which all numbers of its summary follow.

They are added up block by block, so that a run of any length needs no table. A new number takes
two places: what is added up for it here, and its key in `numbers` of the class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from simulator.cost import shares
from simulator.results.facts import Columns, Facts
from simulator.results.fold import Folded, fold_facts
from simulator.results.latency import OBJECTIVES, meets, request_times
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


COUNTED = ("batch", "committed", "draft_nodes", "packed_tokens", "executed_tokens")


class StepSums:
    """Sums over the steps of a window, and over all steps of the run."""

    def __init__(self, replicas: int) -> None:
        # of the window
        self.steps = 0
        self.sums: dict[str, float] = dict.fromkeys((*COUNTED, *PARTS.values()), 0)  # of columns
        self.verified = 0  # nodes of steps that paid a draft
        # (deepest + 1,) rounds that paid a draft, by draft tokens accepted
        self.accepting = np.zeros(1, np.int64)
        self.replica_tokens = np.zeros(replicas, np.int64)  # committed
        self.replica_s = np.zeros(replicas)  # of its steps
        # of the whole run
        self.order_ties = self.kv_blocks_peak = 0
        self.source_steps: Counter[int] = Counter()
        self.source_s: Counter[int] = Counter()

    def add(self, steps: Columns, inside: np.ndarray, accepting: np.ndarray) -> None:
        """Take (S,) steps in.

        Args:
            inside: (S,) bool, whether each lies in the window.
            accepting: (d + 1,) rounds in the window that paid a draft, by tokens accepted.
        """
        self.order_ties += int(steps["order_ties"].sum())
        self.kv_blocks_peak = max(self.kv_blocks_peak, int(steps["kv_blocks"].max(initial=0)))
        for kind in np.flatnonzero(np.bincount(steps["source"])).tolist():
            this = steps["source"] == kind
            self.source_steps[kind] += int(np.count_nonzero(this))
            self.source_s[kind] += float(steps["step_s"][this].sum())
        self.accepting = _added(self.accepting, accepting)
        self.steps += int(np.count_nonzero(inside))
        for name in self.sums:
            self.sums[name] += steps[name][inside].sum().item()
        self.verified += int(steps["draft_nodes"][inside & steps["drafted"]].sum())
        replica, size = steps["replica"][inside], len(self.replica_s)
        if size > 1:
            tokens = np.bincount(replica, steps["committed"][inside], size)
            self.replica_tokens += tokens.astype(np.int64)
            self.replica_s += np.bincount(replica, steps["step_s"][inside], size)

    def acceptance(self) -> dict[str, Any]:
        """Acceptance over the window's rounds, and its counts under vLLM's benchmark keys.

        `acceptance_length` is 1 + accepted / drafts (vLLM), accepted not clipped at the end of the
        text. Rounds that paid no draft are left out; a run without any has length 1, the target's
        token. vLLM's acceptance rate is in percent, and its rates per position are not
        conditional: drafts that accepted depth d over all drafts.
        """
        some = np.flatnonzero(self.accepting)
        deepest = int(some[-1]) if len(some) else 0
        # (deepest + 1,) rounds that accept at least so many; those that did not verify a depth
        # count as ones that did not accept it
        reached = self.accepting[: deepest + 1][::-1].cumsum()[::-1]
        drafts, total = int(self.accepting.sum()), int(reached[1:].sum())
        length, rounds = 1.0 + total / drafts if drafts else None, self.sums["batch"]
        return {
            "acceptance_length": length or (1.0 if rounds else None),
            "committed_round_length": _over(self.sums["committed"], rounds),
            "draft_nodes_per_request": _over(self.sums["draft_nodes"], rounds),
            "share_verified_accepted": _over(total, self.verified),
            "acceptance_rate_by_depth": [int(n) / int(less) for less, n in pairwise(reached)],
            "spec_decode_num_drafts": drafts,
            "spec_decode_draft_tokens": self.verified,
            "spec_decode_accepted_tokens": total,
            "spec_decode_acceptance_rate": _over(100 * total, self.verified),
            "spec_decode_acceptance_length": length,
            "spec_decode_per_position_acceptance_rates": [int(n) / drafts for n in reached[1:]],
        }

    def step_ms(self) -> dict[str, float | None]:
        """Mean milliseconds of a step by part."""
        mean_s = {part: _over(self.sums[name], self.steps) for part, name in PARTS.items()}
        return {part: None if one is None else one * 1e3 for part, one in mean_s.items()}

    def padding_share(self) -> float | None:
        """Share of the verified tokens that are padding; None where executed is not known."""
        executed = self.sums["executed_tokens"]
        return 1 - self.sums["packed_tokens"] / executed if executed else None

    def cost_shares(self) -> dict[str, dict[str, float]]:
        """See `simulator.cost.shares`."""
        return shares(*(dict(sorted(one.items())) for one in (self.source_steps, self.source_s)))


def _over(amount: float, whole: float | None) -> float | None:
    """None of nothing."""
    return amount / whole if whole else None


def _added(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The sum of two counts by value, of any lengths."""
    longer, shorter = sorted((one, other), key=len, reverse=True)
    total = longer.copy()
    total[: len(shorter)] += shorter
    return total


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


_OF_GROUP = (
    *("in_rounds", "in_drafts", "in_accepted", "warmup", "output_tokens", "rounds"),
    "draft_nodes",
)


class GroupSums:
    """Sums over some requests: those of a domain, or all.

    Args:
        exact: values that percentiles hold, see `Samples`. limits: objectives in ms, or None.
    """

    def __init__(self, exact: int | None, limits: Mapping[str, float] | None) -> None:
        self.limits = limits
        self.requests = 0
        self.rounds = self.drafts = self.accepted = 0  # of the window
        self.ended = 0  # in the window
        self.measured = 0  # of them, without warm-up requests
        self.good = 0  # of them, meeting every objective
        self.rates = JainSums()  # output tokens per second of residence
        self.nodes = JainSums()  # draft nodes per round
        self.times = {name: Samples(exact) for name in OBJECTIVES}

    def add(self, requests: Columns) -> None:
        """Take (n,) requests in: `_OF_GROUP`, `request_times`, and `ended` in the window."""
        self.requests += len(requests["ended"])
        self.ended += int(np.count_nonzero(requests["ended"]))
        self.rounds += int(requests["in_rounds"].sum())
        self.drafts += int(requests["in_drafts"].sum())
        self.accepted += int(requests["in_accepted"].sum())
        judged = requests["ended"] & ~requests["warmup"]
        requests = {name: column[judged] for name, column in requests.items()}
        times_s = {name: requests[name] for name in OBJECTIVES}
        self.measured += int(np.count_nonzero(judged))
        if self.limits is not None:
            self.good += int(np.count_nonzero(meets(self.limits, times_s)))
        for name, values in times_s.items():
            self.times[name].add(values[~np.isnan(values)] * 1e3)  # vLLM: no TPOT of one token
        # a request that took no time, or no round, has no share there
        stayed, served = times_s["e2el"] > 0, requests["rounds"] > 0
        self.rates.add(requests["output_tokens"][stayed] / times_s["e2el"][stayed])
        self.nodes.add(requests["draft_nodes"][served] / requests["rounds"][served])

    def fairness(self) -> dict[str, float | None]:
        """Jain's indices over measured requests."""
        return {"output_tokens_per_s": self.rates.index, "draft_nodes_per_round": self.nodes.index}

    def goodput(self, seconds: float) -> float | None:
        """Requests per second that meet every objective; None without objectives.

        The window's request throughput, times the share of its measured requests that meet them
        (a warm-up request takes a place but cannot be judged). A rejected request never ends and
        meets none, so it adds nothing.
        """
        if self.limits is None or not self.measured or seconds <= 0:
            return None
        return self.good / self.measured * self.ended / seconds

    def latency(self) -> dict[str, float | None]:
        """Statistics of every latency."""
        parts = [samples.statistics(name) for name, samples in self.times.items()]
        return {key: number for part in parts for key, number in part.items()}

    def describe(self, seconds: float) -> dict[str, Any]:
        """What the summary says of a domain: fewer statistics than of the whole run."""
        chosen = ("mean", "median", "p99")
        latency = self.latency().items()
        length = 1.0 + (self.accepted / self.drafts if self.drafts else 0.0)
        return {
            "requests": self.measured,
            "acceptance_length": length if self.rounds else None,  # as of `StepSums.acceptance`
            "request_goodput": self.goodput(seconds),
            "fairness": self.fairness(),
            **{key: number for key, number in latency if key.split("_")[0] in chosen},
        }


_AT_ONCE = 1 << 12  # anchors whose pools are read together


class AnchorCounts:
    """Rounds of the whole run by anchor; the memory is that of the recording's anchors."""

    def __init__(self) -> None:
        self.counts = np.zeros(0, np.int64)

    def add(self, anchor: np.ndarray) -> None:
        """Count (n,) rounds."""
        self.counts = _added(self.counts, np.bincount(anchor))

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
        """Mean and maximum over rounds, see `orders.families.sampled`."""
        from simulator.orders.families.sampled import sampled_error_bound

        total = largest = 0.0
        visited = np.flatnonzero(self.counts)
        for first in range(0, len(visited), _AT_ONCE):
            some = visited[first : first + _AT_ONCE]
            bound = sampled_error_bound(recording, some)
            total += float(bound @ self.counts[some])
            largest = max(largest, float(bound.max()))
        return {"mean": total / int(self.counts.sum()), "max": largest}


class Sums:
    """All sums of a run and its window.

    Args:
        domains: names. limits: objectives in milliseconds, None without.
        longest_prompt: tokens; prompts beyond it are counted. exact: see `Samples`.
    """

    def __init__(
        self,
        domains: tuple[str, ...] = (),
        replicas: int = 1,
        limits: Mapping[str, float] | None = None,
        longest_prompt: int = 0,
        exact: int | None = None,
    ) -> None:
        self.domains, self.replicas, self.longest_prompt = domains, replicas, longest_prompt
        self.window: Window | None = None  # once the run is over
        self.steps, self.anchors = StepSums(replicas), AnchorCounts()
        self.everyone = GroupSums(exact, limits)
        self.groups = [GroupSums(exact, limits) for _ in domains]
        self.gaps = Samples(exact)  # milliseconds between chunks
        # of the window
        self.first_tokens = self.prompt_tokens = 0
        self.prefill_s = 0.0
        self.replica_ended, self.replica_first = np.zeros((2, replicas), np.int64)
        self.replica_prefill_s = np.zeros(replicas)
        # requests of the whole run
        self.requests = self.arrived = self.completed = self.rejected = 0
        self.handed_over = self.longer_prompts = 0
        self.preemptions = self.hand_overs = 0  # of all of them
        self.last_arrival_s = self.last_end_s = 0.0

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
        facts = Facts(requests, {}, {}, None)
        ended, domain = window.requests(facts), requests["domain"]
        arrival_s, finish_s = requests["arrival_s"], requests["finish_s"]
        arrived, completed = ~np.isnan(arrival_s), ~np.isnan(finish_s)
        self.requests += len(arrival_s)
        self.arrived += int(np.count_nonzero(arrived))
        self.completed += int(np.count_nonzero(completed))
        self.last_arrival_s = float(arrival_s[arrived].max(initial=self.last_arrival_s))
        self.last_end_s = float(finish_s[completed].max(initial=self.last_end_s))
        self.rejected += int(requests["rejected"].sum())
        self.preemptions += int(requests["preemptions"].sum())
        self.hand_overs += int(requests["hand_overs"].sum())
        self.handed_over += int(np.count_nonzero(requests["hand_overs"]))
        self.longer_prompts += int((requests["prompt_tokens"] > self.longest_prompt).sum())
        self._add_prefills(facts, window, ended)
        columns = {name: requests[name] for name in _OF_GROUP} | request_times(requests)
        columns["ended"] = ended
        self.everyone.add(columns)
        for index, group in enumerate(self.groups):
            group.add({name: column[domain == index] for name, column in columns.items()})

    def _add_prefills(self, facts: Facts, window: Window, ended: np.ndarray) -> None:
        """They take from admission to output 0: with chunks longer than what is computed."""
        requests, size = facts.requests, self.replicas
        admitted, prefilled = window.admitted(facts), window.prefilled(facts)
        prefill_s = (requests["first_token_s"] - requests["admitted_s"])[prefilled]
        self.first_tokens += int(np.count_nonzero(admitted))
        self.prompt_tokens += int(requests["prompt_tokens"][admitted].sum())
        self.prefill_s += float(prefill_s.sum())
        replica = requests["replica"]
        if size > 1:
            self.replica_ended += np.bincount(replica[ended], minlength=size)
            self.replica_first += np.bincount(replica[admitted], minlength=size)
            self.replica_prefill_s += np.bincount(replica[prefilled], prefill_s, size)

    # ---------------------------------------------------------------- what they come to

    def throughput(self) -> dict[str, Any]:
        """Request, output and total token throughput of the window, and what they count."""
        window, first = self.window, self.first_tokens
        tokens, ended = self.steps.sums["committed"] + first, self.everyone.ended
        # None for a run that takes no time (only one-token requests)
        seconds = window.seconds if window.seconds > 0 else None
        return {
            "window": {
                "kind": window.kind,
                "start_s": window.start_s,
                "end_s": window.end_s,
                "requests": ended,
                "tokens": tokens,
                "first_tokens": first,  # emitted by prefill, not by steps
            },
            "total_input_tokens": self.prompt_tokens,
            "total_output_tokens": tokens,
            "request_throughput": _over(ended, seconds),
            "output_throughput": _over(tokens, seconds),
            "total_token_throughput": _over(tokens + self.prompt_tokens, seconds),
        }

    def latency(self) -> dict[str, float | None]:
        """Mean, median, std (population) and percentiles of TTFT, TPOT, ITL and E2EL in ms."""
        return self.everyone.latency() | self.gaps.statistics("itl")

    def numbers(self, gpus: int = 1) -> dict[str, Any]:
        """The keys of a summary that are counted, whatever was run."""
        steps, everyone = self.steps, self.everyone
        rates, seconds = self.throughput(), self.window.seconds
        output = rates["output_throughput"]
        exact = all(samples.exact for samples in (self.gaps, *everyone.times.values()))
        return {
            "completed": self.completed,
            "duration": self.last_end_s,
            **rates,
            "output_throughput_per_gpu": None if output is None else output / gpus,
            **self.latency(),
            "percentiles": "exact" if exact else "sketch",
            "percentile_error": 0.0 if exact else ERROR,
            "request_goodput": everyone.goodput(seconds),
            **steps.acceptance(),
            "step_ms": steps.step_ms(),
            "by_domain": {
                name: group.describe(seconds)
                for name, group in zip(self.domains, self.groups, strict=True)
                if group.requests
            },
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
