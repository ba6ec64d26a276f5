"""Request-rounds per second of compiled rounds beside the SimPy server, of the README's policies.

Default profile and recording, one core; closed loops of 64 clients and of one, and an open loop of
the same load. Both servers are checked to end at the same time. Then a sweep of short runs, as
people make them: every run by the SimPy server, and by whichever pays.

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

import simpy

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from simulator import compiling
from simulator.cost import StepCost, find_profile
from simulator.engine.arrivals import LazyWorkload, arrival_times, make_workload
from simulator.engine.compiled import eligible, modules
from simulator.engine.compiled.server import FastServer
from simulator.engine.fleet import Fleet
from simulator.engine.inputs import choose_sequences, load_recording
from simulator.engine.run import Job, prepare, simulate, tables_of
from simulator.engine.settings import Settings
from simulator.policies.autoregressive import Autoregressive
from simulator.policies.cast import Cast
from simulator.policies.fixed_chain import FixedChain
from simulator.policies.fixed_tree import FixedTree
from simulator.policies.priced_survival import PricedSurvival
from simulator.policies.treespark import TreeSpark
from simulator.policies.tuned_chain import TunedChain
from simulator.results.facts import Facts
from simulator.results.ledger import Ledger

RECORDING, PROFILE = "small_semi_t0", "b300"
POLICIES = (Autoregressive, FixedChain, TunedChain, FixedTree, Cast, TreeSpark, PricedSurvival)
GOALS = {64: 5e6, 1: 1e6}  # request-rounds per second, by concurrency
FEWER = 50  # the SimPy server runs so many times fewer requests
REPEATS = 3


def make_job(policy, requests: int, profile: str = PROFILE, **load) -> Job:
    recording = load_recording({"recording": RECORDING})
    settings = Settings(num_prompts=requests, **load)
    sequences = choose_sequences({}, recording)
    cost, tables = StepCost(find_profile(profile)), tables_of(recording)
    return prepare(Job({}, settings, recording, sequences, cost, policy, tables))


def served(job: Job, compiled: bool) -> tuple[Facts, float]:
    """Facts and seconds of serving, notes in the ledger included."""
    workload = make_workload(job.settings, job.recording, job.sequences)
    ledger, capacity = Ledger(workload), job.settings.capacity
    parts = (job.policy, job.recording, job.cost, workload, capacity, job.tables, ledger)
    if compiled:
        assert eligible(job.settings, workload, job.policy, job.cost)
        times = arrival_times(job.settings, workload)
        seconds = timed(FastServer(*parts, arrival_s=times).run)
    else:
        seconds = timed(Fleet(simpy.Environment(), *parts, job.settings.server).run)
    return ledger.facts(), seconds


def timed(run: Callable[[], object]) -> float:
    """Processor seconds: a busy machine does not count."""
    started = time.process_time()
    run()
    return time.process_time() - started


def rate_of(job: Job) -> tuple[float, Facts]:
    served(job, True)
    runs = [served(job, True) for _ in range(REPEATS)]
    return len(runs[0][0].rounds["step"]) / min(seconds for _, seconds in runs), runs[0][0]


def measure(policy, clients: int, requests: int) -> tuple[str, bool]:
    """A line of the table, and whether the goal is met."""
    rate, facts = rate_of(make_job(policy(), requests, max_concurrency=clients))
    load = {"max_concurrency": clients, "request_rate": 0.9 * requests / facts.duration_s}
    opened, _ = rate_of(make_job(policy(), requests, **load))
    few = max(4 * clients, requests // FEWER)
    facts, seconds = served(make_job(policy(), few, max_concurrency=clients), False)
    same, _ = served(make_job(policy(), few, max_concurrency=clients), True)
    assert facts.duration_s == same.duration_s
    server = len(facts.rounds["step"]) / seconds
    line = (
        f"{policy.__name__.lower():15s} {clients:7d} {rate / 1e6:9.2f} {GOALS[clients] / 1e6:5.1f} "
        f"{opened / 1e6:9.2f} {server / 1e6:9.3f} {rate / server:6.0f} x"
    )
    return line, rate >= GOALS[clients]


class Sums:
    """A ledger that keeps nothing but counts."""

    rounds = 0

    def times(self, name: str, request, time_s) -> None:
        """Not kept."""

    def block(self, steps: dict, rounds: dict) -> None:
        self.rounds += len(rounds["request"])


def many(requests: int) -> str:
    """Time and memory of a run that is read and forgotten as it goes."""
    job, sums = make_job(TreeSpark(), requests, max_concurrency=64), Sums()
    workload = LazyWorkload(job.settings, job.recording, job.sequences)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    parts = (job.policy, job.recording, job.cost, workload, 64, job.tables, sums)
    seconds = timed(FastServer(*parts).run)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return (
        f"{requests} requests, {sums.rounds} rounds: {seconds:.1f} s, "
        f"{grown / 1024:.0f} MiB above the runs before"
    )


def sweep() -> str:
    """Serving alone, of 7 policies x 9 loads x 2 profiles, the default number of prompts each."""
    loads = [1 << i for i in range(9)]
    jobs = [
        make_job(policy(), max(64, 6 * clients), profile, max_concurrency=clients)
        for policy in POLICIES
        for profile in (PROFILE, "mi355x")
        for clients in loads
    ]
    slow = sum(served(job, False)[1] for job in jobs)
    jobs = [prepare(replace(job)) for job in jobs]
    fast = sum(timed(lambda job=job: simulate(job)) for job in jobs)
    return f"{len(jobs)} short runs served in {slow:.1f} s by SimPy, in {fast:.1f} s by what pays"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=20_000, help="of the runs at 64 clients")
    requests = parser.parse_args().requests
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    here = all(compiling.kept("advance", *modules(priced)) for priced in (False, True))
    print(f"compiled code is {'here' if here else 'made first'}", flush=True)
    print(f"{RECORDING}, {PROFILE}; million request-rounds per second on one core")
    print("policy          clients  compiled  goal open loop     SimPy  compiled / SimPy")
    met = True
    for policy in POLICIES:
        for clients, share in ((64, 1), (1, 10)):
            line, fast = measure(policy, clients, requests // share)
            print(line, flush=True)
            met &= fast
    print(many(1_000_000), flush=True)
    print(sweep())
    raise SystemExit(0 if met else "slower than the goal")


if __name__ == "__main__":
    main()
