"""Request-rounds per second of compiled rounds, beside a plain Python loop and the SimPy server.

Default profile and recording, one core. Compiled rounds and the server decide every step from the
recorded scores; the loop only replays what they decided, baked as (size, accepted) pairs, with the
same clock. All three are checked to end at the same time.

python tests/benchmarks/bench_simulate.py [--requests N]
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import simpy

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from simulator.cost import StepCost, find_profile
from simulator.engine.arrivals import LazyWorkload, make_workload
from simulator.engine.compiled import eligible
from simulator.engine.compiled.server import FastServer
from simulator.engine.fleet import Fleet
from simulator.engine.inputs import choose_sequences, load_recording
from simulator.engine.run import Job, prepare, tables_of
from simulator.engine.settings import Settings
from simulator.policies.cast import Cast
from simulator.policies.treespark import TreeSpark
from simulator.results.facts import Facts, Ledger, texts_of

RECORDING, PROFILE = "small_semi_t0", "b300"
GOALS = {64: 3e6, 1: 3e5}  # request-rounds per second, by concurrency
SHARE = {"loop": 10, "server": 50}  # they run so many times fewer requests
REPEATS = 5


def make_job(policy, clients: int, requests: int) -> Job:
    recording = load_recording({"recording": RECORDING})
    settings = Settings(max_concurrency=clients, num_prompts=requests)
    sequences = choose_sequences({}, recording)
    cost, tables = StepCost(find_profile(PROFILE)), tables_of(recording)
    return prepare(Job({}, settings, recording, sequences, cost, policy, tables))


def fewer(job: Job, share: int) -> Job:
    wanted = max(4 * job.settings.max_concurrency, job.settings.requests // share)
    return replace(job, settings=replace(job.settings, num_prompts=wanted))


def served(job: Job, compiled: bool) -> tuple[Facts, float]:
    """Facts and seconds of serving, notes in the ledger included."""
    workload, env = make_workload(job.settings, job.recording, job.sequences), simpy.Environment()
    ledger, capacity = Ledger(workload), job.settings.capacity
    parts = (env, job.policy, job.recording, job.cost, workload, capacity, job.tables, ledger)
    if compiled:
        assert eligible(job.settings, workload, job.policy, job.cost)
        server = FastServer(*parts)
        seconds = timed(lambda: env.run(env.process(server.serve())))
    else:
        seconds = timed(Fleet(*parts, job.settings.server).run)
    return ledger.facts(texts_of(job.recording, workload)), seconds


def timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def baked(job: Job, facts: Facts) -> tuple[list, list, dict]:
    """(size, accepted) pairs and outputs behind the root of each request; prices of steps."""
    rounds, steps = facts.rounds, facts.steps
    order = np.argsort(rounds["request"], kind="stable")
    pairs = np.stack([rounds["width"][order], rounds["accepted"][order]], axis=1)
    ends = np.cumsum(np.bincount(rounds["request"], minlength=job.settings.requests))
    by_request = [part.tolist() for part in np.split(pairs, ends[:-1])]
    left = np.bincount(rounds["request"], rounds["committed"], job.settings.requests)
    keys = zip(steps["batch"].tolist(), steps["packed_tokens"].tolist(), strict=True)
    parts = [steps[name].tolist() for name in ("draft_s", "verify_s", "host_s")]
    return by_request, left.astype(int).tolist(), dict(zip(keys, zip(*parts), strict=True))


def replay(pairs: list, left: list, prices: dict, clients: int) -> float:
    """The loop: fill the slots, price the step, commit, free the slots; seconds at the end."""
    now, sent, count = 0.0, 0, len(pairs)
    running: list = []
    while running or sent < count:
        while sent < count and len(running) < clients:
            if left[sent]:
                running.append([iter(pairs[sent]), left[sent]])
            sent += 1
        if not running:
            break
        total, accepted = len(running), []
        for slot in running:
            size, hits = next(slot[0])
            total += size
            accepted.append(hits)
        draft_s, verify_s, host_s = prices[len(running), total]
        now += draft_s + verify_s + host_s
        going = []
        for slot, hits in zip(running, accepted):
            slot[1] -= min(hits + 1, slot[1])
            if slot[1]:
                going.append(slot)
        running = going
    return now


def measure(policy, clients: int, requests: int) -> tuple[str, bool]:
    """A line of the table, and whether the goal is met."""
    job = make_job(policy, clients, requests)
    served(fewer(job, SHARE["loop"]), True)  # compiles
    runs = [served(job, True) for _ in range(REPEATS)]
    rate = len(runs[0][0].rounds["step"]) / min(seconds for _, seconds in runs)
    small = fewer(job, SHARE["loop"])
    facts, _ = served(small, True)
    inputs = baked(small, facts)
    assert replay(*inputs, clients) == facts.duration_s
    loop_s = min(timed(lambda: replay(*inputs, clients)) for _ in range(3))
    loop = len(facts.rounds["step"]) / loop_s
    smallest = fewer(job, SHARE["server"])
    facts, seconds = served(smallest, False)
    assert facts.duration_s == served(smallest, True)[0].duration_s
    server = len(facts.rounds["step"]) / seconds
    name, goal = type(policy).__name__.lower(), GOALS[clients]
    line = (
        f"{name:10s} {clients:11d} {rate / 1e6:9.2f} {goal / 1e6:6.1f} {loop / 1e6:9.2f} "
        f"{rate / loop:6.1f} x {server / 1e6:9.3f} {rate / server:6.0f} x"
    )
    return line, rate >= goal


class Sums:
    """A ledger that keeps nothing but counts."""

    rounds = 0

    def times(self, name: str, request: np.ndarray, time_s: np.ndarray) -> None:
        """Not kept."""

    def block(self, steps: dict, rounds: dict) -> None:
        self.rounds += len(rounds["request"])


def many(requests: int) -> str:
    """Time and memory of a run that is read and forgotten as it goes."""
    job, env, sums = make_job(TreeSpark(), 64, requests), simpy.Environment(), Sums()
    workload = LazyWorkload(job.settings, job.recording, job.sequences)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    parts = (env, job.policy, job.recording, job.cost, workload, 64, job.tables, sums)
    seconds = timed(lambda: env.run(env.process(FastServer(*parts).serve())))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return (
        f"{requests} requests, {sums.rounds} rounds: {seconds:.1f} s, "
        f"{grown / 1024:.0f} MiB above the runs before"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=40_000, help="of the runs at 64 clients")
    requests = parser.parse_args().requests
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"{RECORDING}, {PROFILE}; million request-rounds per second on one core")
    print("policy     concurrency  compiled   goal      loop           SimPy server")
    met = True
    for policy in (Cast, TreeSpark):
        for clients, share in ((64, 1), (1, 4)):
            line, fast = measure(policy(), clients, requests // share)
            print(line, flush=True)
            met &= fast
    print(many(1_000_000))
    raise SystemExit(0 if met else "slower than the goal")


if __name__ == "__main__":
    main()
