"""Where requests are: a replica's queue, the prompts that are read, memory; replayed and checked.

Whatever may come next is worked out from the settings alone, in Python's numbers and lists.
"""

from __future__ import annotations

import math

from tests.watched import Admitted, Began, Came, Pushed, Read, Reading, Run, Stepping


class Places:
    """What is outside steps; every verb is one event and asserts what must hold."""

    def __init__(self, run: Run) -> None:
        self.rules, self.capacity = run.job.settings.server, run.job.settings.capacity
        self.run, self.facts, self.total = (
            run,
            run.facts.requests,
            run.job.settings.server.kv_blocks,
        )
        self.waiting: list[int] = []  # head first
        self.reading: dict[int, int] = {}  # tokens read, in the order of admission
        self.running: list[int] = []  # so too
        self.pushed: set[int] = set()  # that wait to come in again
        self.begun: set[int] = set()  # output 0 is out
        self.context: dict[int, int] = {}
        self.left: dict[int, int] = {}
        self.size: dict[int, int] = {}  # outputs behind the first root
        self.deferred: dict[int, int] = {}  # committed tokens that the drafter has not read
        self.beside: int | None = None  # tokens that the step's budget leaves
        self.stepping: Stepping | None = None
        self.begin_s = 0.0  # of the last prompt, or of the pass that reads prompts alone
        self.read_tokens = self.pushes = 0
        self.just_pushed = False  # since the last step

    def blocks(self, tokens: int) -> int:
        return math.ceil(tokens / self.rules.kv_block)

    def held(self, running: int) -> int:
        """Blocks of prompts that are read, their roots', and `running` ones."""
        return running + sum(self.blocks(self.context[one] + 1) for one in self.reading)

    def committed_blocks(self) -> int:
        return self.held(sum(self.blocks(self.context[one]) for one in self.running))

    def needed(self) -> int:
        """Blocks once everybody's root is verified."""
        return self.held(sum(self.blocks(self.context[one] + 1) for one in self.running))

    def room(self, request: int) -> bool:
        """A free slot, and memory beside the next roots of those inside and the watermark."""
        inside = len(self.reading) + len(self.running)
        if inside >= self.capacity or self.total is None:
            return inside < self.capacity
        spare = self.total - self.needed() - self.blocks(self.context[request] + 1)
        return spare >= (math.ceil(self.rules.watermark * self.total) if inside else 0)

    # ---------------------------------------------------------------- queue and admission

    def came(self, event: Came) -> None:
        request = event.request
        self.context[request], self.left[request] = event.context, event.behind
        self.size[request] = event.behind
        assert event.context == self.run.workload.context[request]
        never = self.total is not None and self.blocks(event.context + event.behind) > self.total
        assert self.facts["rejected"][request] == never
        if not never:
            self.waiting.append(request)

    def next(self) -> int:
        """Who was pushed out goes first; then first come, or the shortest, first served."""
        if self.rules.scheduling == "fcfs" or self.waiting[0] in self.pushed:
            return self.waiting[0]
        return min(self.waiting, key=lambda request: self.size[request])

    def admitted(self, event: Admitted) -> None:
        request = event.request
        assert request == self.next()
        assert event.context == self.context[request]
        assert self.room(request)
        if request not in self.pushed:
            assert self.facts["admitted_s"][request] == event.time_s
        self.waiting.remove(request)
        self.pushed.discard(request)
        self.reading[request] = 0
        self.begin_s = event.time_s

    def push(self, event: Pushed) -> None:
        """The last prompt that is read, else the last that runs, goes to the queue's head."""
        assert self.total is not None
        assert self.needed() > self.total
        last = self.reading.popitem()[0] if self.reading else self.running.pop()
        assert event.request == last
        assert self.running  # one that is alone always has room
        self.waiting.insert(0, last)
        self.pushed.add(last)
        self.pushes += 1
        self.just_pushed = True

    # ---------------------------------------------------------------- prompts

    def chunks(self, budget: int | None) -> list[tuple[int, int, int]]:
        """First come, first read, while tokens last."""
        chunks = []
        for one, read in self.reading.items():
            tokens = self.context[one] - read
            tokens = tokens if budget is None else min(tokens, budget)
            if tokens <= 0:
                break
            chunks.append((one, read, tokens))
            budget = None if budget is None else budget - tokens
        return chunks

    def alone(self, event: Reading) -> None:
        self.begin_s = event.time_s

    def prompts_s(self, tokens: int) -> float:
        return tokens * self.run.cost.prompt_token_s

    def read(self, event: Read) -> None:
        if self.stepping is None:  # a pass of its own
            assert self.reading
            assert not (self.running and self.rules.mixed)
            assert event.chunks == self.chunks(self.rules.max_num_batched_tokens)
            tokens = sum(tokens for _, _, tokens in event.chunks)
            assert event.time_s == self.begin_s + self.prompts_s(tokens)
        else:
            assert event.chunks == (self.chunks(self.beside) if self.rules.mixed else [])
        self.stepping = None
        for one, _, tokens in event.chunks:
            self.reading[one] += tokens
            self.read_tokens += tokens

    def began(self, event: Began) -> None:
        request = event.request
        assert request == next(iter(self.reading))
        read = self.reading.pop(request)
        if self.rules.prefill == "whole" and not self.rules.mixed:
            self.read_tokens += self.context[request]  # at once, from admission
            assert event.time_s == self.begin_s + self.prompts_s(self.context[request])
            read += self.context[request]
        assert read == self.context[request]
        if request not in self.begun:
            assert self.facts["first_token_s"][request] == event.time_s
        self.begun.add(request)
        self.deferred[request] = 0
        if self.left[request]:
            self.running.append(request)
        else:
            assert self.facts["finish_s"][request] == event.time_s
