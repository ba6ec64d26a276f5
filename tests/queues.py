"""One server as a queue, for tests: requests bring their service times, theory says the waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import factorial

import numpy as np
import simpy

from simulator.cost import Source, StepTime
from simulator.engine.arrivals import Workload, make_workload
from simulator.engine.fleet import Fleet
from simulator.engine.settings import ServerSettings, Settings
from simulator.results.facts import Facts
from simulator.results.invariants import Accounts
from simulator.results.ledger import Ledger
from tests.serving import Plain
from tests.synthetic import make_geometric

STRIDE = 64  # tokens between the contexts of two requests, more than any text here has
TEXT = make_geometric(0.5, np.random.default_rng(0), sequences=1, length=STRIDE, depths=1)


class OwnService:
    """Every request has a time of its own for its prompt and for each of its steps: (N,) s."""

    def __init__(self, prompt_s: Sequence[float], step_s: Sequence[float]) -> None:
        self.prompt_s, self.step_s = list(prompt_s), list(step_s)

    def prefill_s(self, tokens: int) -> float:
        return self.prompt_s[tokens // STRIDE]

    def step(self, packed, context, **_) -> StepTime:
        (tokens,) = context.tolist()  # one request at a time
        return StepTime(0.0, self.step_s[tokens // STRIDE], 0.0, Source.MEASURED)


def arriving(
    rate: float, outputs: np.ndarray, *, burstiness: float = 1.0, seed: int = 0
) -> Workload:
    """Requests at the simulator's own arrival times, of (N,) output tokens."""
    number = np.arange(len(outputs))
    settings = Settings(
        request_rate=rate, burstiness=burstiness, num_prompts=len(outputs), seed=seed
    )
    work = make_workload(settings, TEXT, np.arange(1))
    context = number * STRIDE + 1
    return replace(work, context=context, prompt_tokens=context, output_tokens=outputs)


def served(work: Workload, cost: OwnService, **server) -> Facts:
    """The run of servers that take one request at a time."""
    ledger = Ledger(work)
    rules = ServerSettings(**server)
    Fleet(simpy.Environment(), Plain(), TEXT, cost, work, 1, None, ledger, rules).run()
    facts = ledger.facts()
    Accounts.of(facts).check()
    return facts


def of_prompts(work: Workload, service_s: np.ndarray, **server) -> Facts:
    """Services that prompts take; of texts of one token, so that no step is run."""
    return served(work, OwnService(service_s, service_s * np.nan), **server)


def lindley(arrival_s: np.ndarray, *parts_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of services, first come first served (Lindley 1952): (N,) and (N,) s.

    parts_s: (N, P) arrays of what each service is made of, one part after the other.
    """
    begin_s, end_s, free_s = [], [], 0.0
    for at_s, parts in zip(arrival_s.tolist(), np.column_stack(parts_s).tolist(), strict=True):
        free_s = max(at_s, free_s)
        begin_s.append(free_s)
        for part_s in parts:
            free_s += part_s
        end_s.append(free_s)
    return np.array(begin_s), np.array(end_s)


def mean_wait_s(wait_s: np.ndarray, service_s: np.ndarray, gap_s: np.ndarray) -> float:
    """Mean of (N,) waits in the order of arrival, with a control variate.

    What a request waits does not depend on its own service or on the gap behind it, so that their
    sample covariance has mean 0. Most of the noise of busy queues is in it: squared, Lindley's
    recursion says that the mean wait errs by the covariance over the mean of gap - service.
    """
    drift_s = service_s[:-1] - gap_s[1:]  # (N - 1,)
    return wait_s.mean() + np.cov(wait_s[:-1], drift_s)[0, 1] / drift_s.mean()


def pollaczek_khinchine_s(rate: float, service_s: np.ndarray) -> float:
    """Mean wait of M/G/1 with the services' own first two moments."""
    return rate * np.mean(service_s**2) / (2 * (1 - rate * service_s.mean()))


def gamma_wait_s(rate: float, shape: float, service_rate: float) -> float:
    """Mean wait of G/M/1 with gamma gaps (Kleinrock 1975, 6.4): s / (mu (1 - s)).

    s is the root below 1 of s = A(mu (1 - s)), A the Laplace transform of the gaps.
    """
    root = 0.5
    for _ in range(10_000):
        root = (1 + service_rate * (1 - root) / (rate * shape)) ** -shape
    return root / (service_rate * (1 - root))


def erlang_c_wait_s(servers: int, rate: float, service_rate: float) -> float:
    """Mean wait of M/M/c: all wait in one line (Erlang's C formula)."""
    load = rate / service_rate
    last = load**servers / factorial(servers) / (1 - load / servers)
    waiting = last / (sum(load**k / factorial(k) for k in range(servers)) + last)
    return waiting / (servers * service_rate - rate)
