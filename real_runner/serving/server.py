"""The live server: continuous batching on the wall clock, step by step as the simulator's.

Admission, the order of the batch and the clients of a closed loop follow
`simulator.engine.server`, so that the same workload meets the same batches and every round can
be compared.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np

from real_runner.engine.clock import PHASES, PhaseClock
from real_runner.engine.engine import Engine
from real_runner.serving.prompts import Requests
from simulator.cost import Source, StepCost, StepTime
from simulator.engine.arrivals import Workload
from simulator.orders.specs import ChainOrder
from simulator.policies.checks import checked_widths
from simulator.policy import Draft, Load, Outcome, Policy, Step
from simulator.results.facts import Facts
from simulator.results.ledger import Ledger

HOST = tuple(phase for phase in PHASES if phase not in ("draft", "verify"))
OnEnd = Callable[[int, list[int]], None]
OnStep = Callable[[Outcome], None]


class LiveServer:
    """Runs `policy` over the requests of `workload` on `engine`.

    Args:
        cost: shown to the policy; what a step takes is measured.
        on_end: called with a request and its outputs when it ends.
        on_step: called after every step, before the requests that end in it. The run's clock
            stands still during either.
    """

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        cost: StepCost,
        workload: Workload,
        requests: Requests,
        capacity: int,
        on_end: OnEnd | None = None,
        on_step: OnStep | None = None,
    ) -> None:
        self.engine, self.policy, self.cost = engine, policy, deepcopy(cost)
        self.workload, self.requests = workload, requests
        self.ledger = Ledger(workload)
        self.capacity, self.clients = capacity, workload.clients or capacity
        self.queue: deque[int] = deque()
        self.running: list[int] = []  # requests, in the order of admission
        self.outputs: list[list[int]] = [[] for _ in range(len(workload))]
        self.step_orders: list[tuple[int, bool]] = []  # nodes ordered, whether trees were verified
        self._finished, self._prefill_s = 0, 0.0
        self._last_s = 0.0  # end of what was done last: a step's time begins there
        self._waiting = iter(range(len(workload)))  # not yet sent
        self._next_s = np.inf
        if workload.gap_s is None:  # a closed loop sends one for each client at once
            for _, request in zip(range(workload.clients), self._waiting):
                self._submit(request, 0.0)
        else:
            self._due_s = np.append(np.cumsum(workload.gap_s), np.inf)
            self._next_s = float(self._due_s[0])
        self._on_end, self._on_step = on_end, on_step
        self._clock = PhaseClock(engine.target.device)
        self._eos = set(engine.target.eos_tokens)
        self._begun = time.perf_counter()

    def now(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._begun

    def run(self) -> Facts:
        """Serve every request."""
        self._begun = time.perf_counter()
        while self._finished < len(self.workload):
            self._arrive()
            if self._admit():
                continue  # one-token requests are done at once, their clients send again
            if self.running:
                self._step()
            else:
                time.sleep(max(0.0, self._next_s - self.now()))
                self._last_s = self.now()
        return self.ledger.facts(self._written())

    def _submit(self, request: int, time_s: float) -> None:
        self.ledger.note("arrival_s", request, time_s)
        self.queue.append(request)

    def _arrive(self) -> None:
        """Open loop: queue the requests whose time has come."""
        while self._next_s <= self.now():
            request = next(self._waiting)
            self._submit(request, float(self._due_s[request]))
            self._next_s = float(self._due_s[request + 1])

    def _admit(self) -> int:
        """Prefill waiting requests while there is room; returns how many ended at once."""
        ended = 0
        while self.queue and len(self.running) < self.capacity:
            request, begin_s = self.queue.popleft(), self._last_s
            self.ledger.note("admitted_s", request, begin_s)
            self._prefill(request)
            end_s = self._last_s = self.now()
            self.ledger.note("first_token_s", request, end_s)
            self._prefill_s += end_s - begin_s
            if self._is_over(request):
                self.engine.release(np.arange(self.engine.batch) < len(self.running))
                self._end(request, end_s)
                ended += 1
            else:
                self.running.append(request)
            self._arrive()  # those that came meanwhile are started too
        return ended

    def _prefill(self, request: int) -> None:
        """Read the prompt; a warm-up request of a recording starts behind its recorded outputs."""
        sequence, first = self.workload.sequence[request], self.workload.first_output[request]
        prompt, seed = self.requests.prompt[sequence], int(self.requests.seed[sequence])
        root = None
        if self.workload.warmup[request] and self.requests.recorded is not None:
            recorded = self.requests.recorded[sequence]
            prompt, root = np.concatenate([prompt, recorded[:first]]), int(recorded[first])
            self.outputs[request] = recorded[:first].tolist()
        self.outputs[request].append(self.engine.admit(prompt, seed, root))

    def _is_over(self, request: int) -> bool:
        cap = self.requests.max_new_tokens[self.workload.sequence[request]]
        return self.outputs[request][-1] in self._eos or len(self.outputs[request]) >= cap

    def _step(self) -> None:
        begin_s = self._last_s  # bookkeeping since then is part of the step
        clock, engine = self._clock.start(), self.engine
        load, emitted = self._load(begin_s)
        shown, _ = self._load(begin_s)  # a policy may write into what it is shown
        seeds = self.requests.seed[self.workload.sequence[self.running]]
        table, width = self._draft(shown, seeds, emitted - 1)
        walk = engine.verify(table, width, seeds, emitted - 1)
        clock.mark("verify")
        engine.commit()
        committed, over = self._emit(walk)
        request = np.array(self.running)
        if over.any():
            engine.release(~over)
            self.running = request[~over].tolist()
        seconds = clock.mark("commit").read()
        draft_s, verify_s = seconds["draft"], seconds["verify"]
        host_s = max(0.0, self.now() - begin_s - draft_s - verify_s)  # all that is neither
        time_s = StepTime(draft_s, verify_s, host_s, Source.MEASURED)
        end_s = self._last_s = begin_s + time_s.total_s
        outcome = Outcome(
            end_s, time_s.total_s, table is not None, request, width, walk.accepted, committed
        )
        self._note(load, time_s, seconds, emitted - 1, outcome, table)
        self.policy.observe(outcome.copied())
        self._tell(self._on_step, outcome)
        for one in request[over].tolist():
            self._end(one, end_s)

    def _load(self, time_s: float) -> tuple[Load, np.ndarray]:
        """What the policy sees, and the tokens each request has emitted (batch,)."""
        cap = self.requests.max_new_tokens[self.workload.sequence[self.running]]
        emitted = np.array([len(self.outputs[request]) for request in self.running])
        load = Load(
            time_s=time_s,
            batch=len(self.running),
            queued=len(self.queue),
            max_concurrency=self.clients,
            context=self.engine.length.copy(),
            remaining=cap - emitted,
            request=np.array(self.running),
        )
        return load, emitted

    def _draft(self, load: Load, seeds: np.ndarray, output_index: np.ndarray):
        """The step's order table (None: a plain decoding step) and nodes per request."""
        spec = self.policy.plan(load)
        if spec is None:
            return None, np.zeros(load.batch, np.int64)
        block = self.engine.draft()
        self._clock.mark("draft")
        table = self.engine.order(spec, block, seeds, output_index)
        self._clock.mark("order")
        draft = Draft(table.score, table.depth, table.parent, table.size.copy())
        width = self.policy.allocate(Step(load, draft, spec, self.cost))
        width = checked_widths(self.policy, width, table.size, table)
        self._clock.mark("allocate")
        return table, width

    def _emit(self, walk) -> tuple[np.ndarray, np.ndarray]:
        """Append the tokens of a round; committed (batch,), and which requests are over."""
        committed = np.zeros(len(self.running), np.int64)
        over = np.zeros(len(self.running), bool)
        for i, request in enumerate(self.running):
            for token in walk.token[i, : walk.accepted[i] + 1].tolist():
                self.outputs[request].append(token)
                committed[i] += 1
                over[i] = self._is_over(request)
                if over[i]:
                    break
        return committed, over

    def _note(self, load, time_s, seconds, output_index, outcome, table) -> None:
        ordered = 0 if table is None else int(table.size.sum())
        spec = None if table is None else table.spec
        chain = isinstance(spec, ChainOrder) or getattr(spec, "chain", False)
        trees = table is not None and not chain
        self.step_orders.append((ordered, trees and bool(outcome.width.any())))
        offset = self.requests.anchor_offset
        anchor = output_index.copy()
        if offset is not None:
            anchor += offset[self.workload.sequence[outcome.request]]
        ties = 0 if table is None else int(np.count_nonzero(table.ties))
        extra = {f"{phase}_s": seconds[phase] for phase in HOST}
        self.ledger.step(load, time_s, anchor, outcome, ties, **extra, prefill_s=self._prefill_s)
        self._prefill_s = 0.0

    def _end(self, request: int, time_s: float) -> None:
        self.ledger.note("finish_s", request, time_s)
        self._finished += 1
        self._tell(self._on_end, request, self.outputs[request])
        if self.workload.gap_s is None:
            following = next(self._waiting, None)
            if following is not None:
                self._submit(following, time_s)

    def _tell(self, hook: Callable[..., None] | None, *what) -> None:
        """Call a hook off the clock."""
        begun = time.perf_counter()
        if hook is not None:
            hook(*what)
        self._begun += time.perf_counter() - begun

    def _written(self) -> Workload:
        """With the lengths of what was written; a warm-up request's earlier outputs are not."""
        work = self.workload
        before = np.where(
            work.warmup & (self.requests.recorded is not None), work.first_output + 1, 0
        )
        written = np.array([len(output) for output in self.outputs]) - before
        return replace(
            work,
            prompt_tokens=self.requests.prompt_tokens[work.sequence],
            output_tokens=written,
            domain=self.requests.domain[work.sequence],
        )
