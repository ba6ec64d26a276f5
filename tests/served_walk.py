"""A server's own events, replayed by plain bookkeeping that must agree with them."""

from __future__ import annotations

from tests.served_places import Places
from tests.serving import STEP_S
from tests.watched import (
    Admitted,
    Began,
    Came,
    Committed,
    Held,
    Pushed,
    Read,
    Reading,
    Run,
    Stepping,
    WatchedServer,
)


class Walk(Places):
    """Replays the events of one replica; every verb is one event and asserts what must hold."""

    def __init__(self, run: Run, server: WatchedServer) -> None:
        super().__init__(run)
        self.drafts = server.policy.drafts
        generation = run.job.recording.meta["generation"]
        self.longest = run.workload.longest_output or generation["max_new_tokens"]

    def replay(self, events: list[tuple]) -> Walk:
        """All of them; nothing may be left over."""
        verbs = {
            Came: self.came,
            Admitted: self.admitted,
            Reading: self.alone,
            Read: self.read,
            Began: self.began,
            Pushed: self.push,
            Stepping: self.step,
            Committed: self.commit,
            Held: self.hold,
        }
        for event in events:
            verbs[type(event)](event)
        assert [self.waiting, self.reading, self.running, self.pushed] == [[], {}, [], set()]
        return self

    def step(self, event: Stepping) -> None:
        load, self.stepping = event.load, event
        assert load.request.tolist() == self.running
        assert 1 <= load.batch == len(self.running) <= self.capacity
        assert load.context.tolist() == [self.context[one] for one in self.running]
        prompt = self.run.workload.prompt_tokens
        emitted = [1 + self.context[one] - int(prompt[one]) for one in self.running]
        assert load.remaining.tolist() == [self.longest - count for count in emitted]
        assert load.queued == len(self.waiting) + len(self.reading)
        if self.waiting and not self.just_pushed:  # nobody waits where there is room
            assert not self.room(self.next())
        self.just_pushed = False
        assert self.rules.mixed or not self.reading  # prompts first
        self.check_step_memory(event)
        self.check_asked(event)

    def check_step_memory(self, event: Stepping) -> None:
        if self.total is None:
            assert event.width == event.wanted
            return
        nested = event.table is None or event.table.nested
        for most in range(max(event.wanted), -1, -1):  # the largest trees are cut, to one size
            width = [min(one, most) if nested else one * (one <= most) for one in event.wanted]
            rows = zip(event.load.context.tolist(), width, strict=True)
            held = self.held(sum(self.blocks(context + 1 + nodes) for context, nodes in rows))
            if held <= self.total:
                break
        assert event.width == width
        assert event.held == held <= self.total

    def check_asked(self, event: Stepping) -> None:
        """What the cost was asked for, and the token budget."""
        asked, table = self.run.cost.asked[event.asked], event.table
        assert asked["packed"].tolist() == [width + 1 for width in event.width]
        assert asked["context"].tolist() == event.load.context.tolist()
        assert asked["drafted"] == (table is not None)
        assert asked["fed"] == self.drafts
        owed = sum(self.deferred[one] for one in self.running)
        assert asked["deferred"] == (owed if self.drafts else 0)
        size = [0] * len(event.width) if table is None else table.size[event.anchor].tolist()
        assert asked["ordered"] == sum(size)
        assert all(width <= most for width, most in zip(event.width, size, strict=True))
        packed = int(asked["packed"].sum())
        budget = self.rules.max_num_batched_tokens
        self.beside = None if budget is None else max(0, budget - packed)
        chunks = [(read, tokens) for _, read, tokens in self.chunks(self.beside)]
        assert list(asked.get("chunks", [])) == chunks
        if budget is not None:
            assert packed + sum(tokens for _, tokens in chunks) <= max(budget, packed)

    def commit(self, event: Committed) -> None:
        step = self.stepping
        assert event.time_s == step.load.time_s + self.step_s(step)
        for place, one in enumerate(self.running):
            ranks = [] if step.table is None else step.table.hit_rank[step.anchor[place]].tolist()
            hits = sum(rank <= step.width[place] for rank in ranks)
            assert event.accepted[place] == hits
            committed = event.committed[place]
            assert 1 <= committed <= min(hits + 1, self.left[one])
            self.context[one] += committed
            self.left[one] -= committed
            self.deferred[one] = 0 if step.table is not None else self.deferred[one] + committed
            if not self.left[one]:
                assert self.facts["finish_s"][one] == event.time_s
        self.running = [one for one in self.running if self.left[one]]

    def step_s(self, step: Stepping) -> float:
        """The price of `UnevenCost`, by hand."""
        cost, asked = self.run.cost, self.run.cost.asked[step.asked]
        units = 1 + (sum(step.width) + len(step.width)) % 3
        draft_s = 0.0 if step.table is None else cost.draft_s
        tokens = sum(tokens for _, tokens in asked.get("chunks", []))
        return draft_s + units * STEP_S + self.prompts_s(tokens)

    def hold(self, event: Held) -> None:
        if self.total is not None:
            assert event.blocks == self.committed_blocks() <= self.total
