"""Small servers for tests: a price that never changes, and runs without files."""

from __future__ import annotations

from functools import cache

import numpy as np

from simulator.cost import Source, StepTime
from simulator.engine.run import Job, simulate
from simulator.engine.settings import ServerSettings, Settings
from simulator.orders import ChainOrder, build_order
from simulator.policy import Load, Outcome, Policy, Step
from simulator.results.facts import Facts
from simulator.results.fold import fold_facts
from simulator.results.invariants import Accounts
from simulator.results.window import find_window
from traces.recordings.recording import Recording

STEP_S = 0.0078125  # 2 ** -7: sums of steps are exact in binary


class ConstantCost:
    """Every step takes the same time, as does each prompt token; remembers what it was asked."""

    def __init__(
        self, draft_s: float = 0.0, verify_s: float = STEP_S, prompt_token_s: float = 0.0
    ) -> None:
        self.draft_s, self.verify_s, self.prompt_token_s = draft_s, verify_s, prompt_token_s
        self.asked: list[dict] = []
        self.prefilled: list[int] = []
        self.chunks: list[tuple[int, int]] = []

    def prefill_s(self, tokens: int) -> float:
        self.prefilled.append(tokens)
        return tokens * self.prompt_token_s

    def chunk_s(self, start: int, tokens: int) -> float:
        self.chunks.append((start, tokens))
        return self.prefill_s(tokens)

    def chunks_s(self, chunks) -> float:
        return sum(self.chunk_s(*chunk) for chunk in chunks)

    def step(self, packed, context, *, drafted: bool, tree: bool, **counts) -> StepTime:
        asked = {"packed": packed.copy(), "context": context.copy(), **counts}
        self.asked.append(asked | {"drafted": drafted, "tree": tree})
        draft_s = self.draft_s if drafted else 0.0
        chunk_s = self.chunks_s(counts.get("chunks", ()))
        return StepTime(draft_s, self.verify_s, 0.0, Source.MEASURED, chunk_s)


class Plain(Policy):
    """Plain decoding."""

    def plan(self, load: Load) -> None:
        return None


class Watched(Policy):
    """Verifies `width` nodes of `order`, cut to what exists, and keeps what it is shown."""

    def __init__(self, width: int = 2, order=None) -> None:
        self.width, self.order = width, order or ChainOrder()
        self.steps: list[Step] = []
        self.outcomes: list[Outcome] = []

    def allocate(self, step: Step) -> np.ndarray:
        self.steps.append(step)
        return np.minimum(step.draft.size, self.width)

    def observe(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


def serve(recording: Recording, policy: Policy, cost=None, sequences=None, **settings) -> Facts:
    """Run `policy` over all sequences of the recording, or those given."""
    chosen = np.arange(recording.num_sequences) if sequences is None else sequences
    tables = cache(lambda spec: build_order(spec, recording))
    cost = ConstantCost() if cost is None else cost
    return simulate(Job({}, load_of(**settings), recording, chosen, cost, policy, tables))


def columns(**values) -> dict[str, np.ndarray]:
    """A table written by hand."""
    return {name: np.array(value) for name, value in values.items()}


def accounts_of(facts: Facts) -> Accounts:
    """What must hold of a run whose tables are in memory."""
    accounts = Accounts()
    requests, folded = fold_facts(facts, find_window(facts))
    accounts.add_steps(facts.steps)
    accounts.add_waits(len(facts.rounds["request"]), folded.waited_s, folded.least_s)
    accounts.add_requests(requests | facts.requests)
    return accounts


def load_of(max_num_seqs: int | None = None, **settings) -> Settings:
    """Settings, with that limit of the server's where it is given."""
    slots = {} if max_num_seqs is None else {"server": ServerSettings(max_num_seqs=max_num_seqs)}
    return Settings(**settings, **slots)
