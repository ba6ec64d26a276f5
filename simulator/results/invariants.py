"""What must hold at the end of every run, whatever the policy, the load and the server.

A run that breaks one of these is a fault of this program, not of its input.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from simulator.results.facts import Columns

RELATIVE = 1e-9  # of times and of sums of them


class InvariantError(AssertionError):
    """A run contradicts itself; the message names the numbers."""


@dataclass(slots=True)
class Accounts:
    """Sums of a run that must agree, added up block by block."""

    rounds: int = 0
    batches: int = 0  # sum of the steps' batches
    kv_blocks: int = 0  # most in any step
    latest_s: float = 0.0  # end of the last step or request
    ends_s: dict[int, float] = field(default_factory=dict)  # of the last step, by replica
    # requests
    requests: int = 0
    arrived: int = 0
    completed: int = 0
    rejected: int = 0
    decoded: int = 0  # tokens that finished requests' rounds committed
    first: int = 0  # first tokens of finished requests that are no warm-up
    emitted: int = 0  # tokens that finished requests say they emitted
    # Little's law, in request-seconds
    in_steps_s: float = 0.0
    between_s: float = 0.0  # from a chunk to the request's next step
    before_s: float = 0.0  # in the queue and in prefill
    queued_s: float = 0.0  # queue length x step time
    stay_s: float = 0.0
    fault: str | None = None  # the first contradiction found while adding up

    def add_steps(self, steps: Columns) -> None:
        """Take steps in, in order; of one replica no two may be at a time."""
        self.batches += int(steps["batch"].sum())
        self.kv_blocks = max(self.kv_blocks, int(steps["kv_blocks"].max(initial=0)))
        self.in_steps_s += float(steps["batch"] @ steps["step_s"])
        self.queued_s += float(steps["queued"] @ steps["step_s"])
        for replica in np.flatnonzero(np.bincount(steps["replica"])).tolist():
            own = steps["replica"] == replica
            begin_s, end_s = steps["time_s"][own], (steps["time_s"] + steps["step_s"])[own]
            before_s = np.concatenate([[self.ends_s.get(replica, 0.0)], end_s[:-1]])
            early = np.flatnonzero(begin_s < before_s - _slack(before_s))
            if len(early):
                self._fault(
                    f"replica {replica}: a step begins at {begin_s[early[0]]!r} s, before the one "
                    f"before it ends at {before_s[early[0]]!r} s"
                )
            self.ends_s[replica] = float(end_s[-1])
            self.latest_s = max(self.latest_s, float(end_s[-1]))

    def add_waits(self, rounds: int, waited_s: float, least_s: float) -> None:
        """Take rounds in: seconds from a chunk of a request to its next step, summed and least."""
        self.rounds += rounds
        self.between_s += waited_s
        if least_s < -_slack(self.latest_s):
            self._fault(f"a request is in a step {-least_s!r} s before its last one ends")

    def add_requests(self, requests: Columns) -> None:
        """Take requests in, once each, with what `fold` added to them."""
        last_s = requests["last_s"]
        times = [requests[f"{name}_s"] for name in ("arrival", "admitted", "first_token")]
        ends_s = np.where(np.isnan(last_s), times[-1], last_s)
        finished, rejected = ~np.isnan(requests["finish_s"]), requests["rejected"]
        self._check_times(requests, [*times, ends_s])
        served = rejected & (finished | ~np.isnan(times[1]))
        if served.any():
            self._fault(f"request {requests['request'][served][0]} is rejected and served")
        self.requests += len(finished)
        self.arrived += int(np.count_nonzero(~np.isnan(times[0])))
        self.completed += int(np.count_nonzero(finished))
        self.rejected += int(np.count_nonzero(rejected))
        self.decoded += int(requests["committed"][finished].sum())
        self.first += int(np.count_nonzero(finished & ~requests["warmup"]))
        self.emitted += int(requests["output_tokens"][finished].sum())
        read_s = np.where(np.isnan(times[2]), times[1], times[2])
        self.before_s += float(np.nansum(read_s - times[0]))
        stay_s = np.where(np.isnan(ends_s), read_s, ends_s) - times[0]
        self.stay_s += float(np.nansum(stay_s))
        self.latest_s = float(requests["finish_s"][finished].max(initial=self.latest_s))

    def _check_times(self, requests: Columns, times: list[np.ndarray]) -> None:
        """Arrival, admission, first token and last chunk follow each other; that is the finish."""
        request, finish_s, ends_s = requests["request"], requests["finish_s"], times[-1]
        for earlier, later in pairwise(times):
            wrong = (later < earlier - _slack(earlier)) | (np.isnan(earlier) & ~np.isnan(later))
            for place in np.flatnonzero(wrong)[:1]:
                self._fault(
                    f"request {request[place]}: arrival, admission, first token and last chunk at "
                    f"{[float(time[place]) for time in times]} s"
                )
        apart = ~np.isnan(finish_s) & ~(np.abs(finish_s - ends_s) <= _slack(finish_s))
        for place in np.flatnonzero(apart)[:1]:
            self._fault(
                f"request {request[place]} finishes at {finish_s[place]!r} s; its last chunk is at "
                f"{ends_s[place]!r} s"
            )

    def _fault(self, message: str) -> None:
        """Two steps of a replica or of a request at a time, times that fall, an end that is no
        chunk's, a rejected request served; the first one is kept."""
        self.fault = self.fault or message

    def check(self, capacity: int | None = None) -> None:
        """Of a run that is over.

        Args:
            capacity: KV blocks of a replica; None: no limit.

        Raises:
            InvariantError: with the numbers that contradict each other.
        """
        if self.fault is not None:
            raise InvariantError(self.fault)
        if self.rounds != self.batches:
            raise InvariantError(
                f"rounds {self.rounds}, the sum of the steps' batches {self.batches}"
            )
        if self.decoded + self.first != self.emitted:
            raise InvariantError(
                f"tokens: {self.decoded} of rounds and {self.first} first ones, "
                f"{self.decoded + self.first}, those that finished requests emitted {self.emitted}"
            )
        if self.completed + self.rejected != self.requests:
            raise InvariantError(
                f"{self.requests} requests, {self.arrived} arrived, {self.completed} finished, "
                f"{self.rejected} rejected: not all are over"
            )
        if capacity is not None and self.kv_blocks > capacity:
            raise InvariantError(f"{self.kv_blocks} KV blocks held; there are {capacity}")
        # Little's law: the time-integral of the number in the system is the sum of the stays. The
        # number is put together from the steps (those in the batch), from the time between steps,
        # and from queue and prefill.
        integral_s = self.in_steps_s + self.between_s + self.before_s
        slack_s = RELATIVE * (self.stay_s + self.latest_s)
        if abs(integral_s - self.stay_s) > slack_s:
            raise InvariantError(
                f"Little's law: {self.in_steps_s!r} request-seconds in steps, {self.between_s!r} "
                f"between and {self.before_s!r} before them; the stays add up to {self.stay_s!r}"
            )
        alone = len(self.ends_s) < 2 and not self.rejected
        if alone and self.in_steps_s + self.queued_s > self.stay_s + slack_s:
            raise InvariantError(
                f"Little's law: {self.in_steps_s!r} request-seconds in steps and {self.queued_s!r} "
                f"in the queue meanwhile; the stays add up to {self.stay_s!r}"
            )


def _slack(time_s):
    return RELATIVE * np.maximum(1.0, time_s)
