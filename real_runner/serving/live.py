"""A live run from its configuration: what is asked, checked before a model is loaded; then loaded,
fitted, warmed up and served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from real_runner.engine.engine import Engine
from real_runner.engine.engine import Settings as EngineSettings
from real_runner.engine.models import LiveDrafter, LivePair
from real_runner.engine.residual import make_verifier
from real_runner.models.loading import chosen_drafter, load_live
from real_runner.recording.record import corpus_prompts
from real_runner.serving.prompts import PromptLine, RecordSettings, read_plan, requests_of_prompts
from real_runner.serving.requests import Requests, check_fits
from real_runner.serving.server import LiveServer, OnEnd, OnStep
from real_runner.settings import choice, live_settings
from simulator.cost import StepCost
from simulator.engine.arrivals import Workload
from simulator.engine.inputs import load_cost, load_recording
from simulator.engine.run import fit, tables_of
from simulator.policies.loading import make_policy
from simulator.policy import Policy
from traces.common.errors import InputError
from traces.recordings.recording import Recording
from traces.recordings.schema import SPLITS

WARM_TOKENS = 12  # outputs of every request of the warm-up


@dataclass(frozen=True, slots=True)
class LivePlan:
    """What was asked, checked; no model is needed for it."""

    config: Mapping[str, Any]
    temperature: float
    max_new_tokens: int
    engine: EngineSettings
    recording: Recording  # what policies fit on
    cost: StepCost  # what policies are told
    record: RecordSettings  # the prompts: lines of a file, or how many of the corpus


def read_live(config: Mapping[str, Any], lines: tuple[PromptLine, ...] | None = None) -> LivePlan:
    """Check the keys that every live run reads.

    lines: prompts in place of the `prompts` file.

    Raises:
        InputError: the first bad key, value or file.
    """
    settings = live_settings(config)
    record = read_plan(settings, lines)
    make_policy(settings.policy)
    recording = load_recording(config["trace"])
    if record.prompts is None:
        corpus_choice(config["trace"], record.plan.domains)
    pool = {} if "pool_token" not in recording else {"pool": recording["pool_token"].shape[2]}
    return LivePlan(
        config=config,
        temperature=settings.temperature,
        max_new_tokens=settings.max_new_tokens,
        engine=EngineSettings(packing=settings.packing, graphs=settings.graphs, **pool),
        recording=recording,
        cost=load_cost(settings.latency),
        record=record,
    )


@dataclass(frozen=True)
class Live:
    """A loaded pair, what it is asked, and what its policy fits on."""

    plan: LivePlan
    pair: LivePair
    drafter: LiveDrafter
    requests: Requests
    sequences: np.ndarray  # of the requests, that may be served

    @cached_property
    def tables(self):
        """Order tables of the recording."""
        return tables_of(self.plan.recording)

    def policy(self, capacity: int) -> Policy:
        """A fresh one, fitted."""
        policy = make_policy(self.plan.config["policy"])
        fit(policy, self.plan.recording, self.plan.cost, capacity, self.tables)
        return policy

    def server(
        self,
        policy: Policy,
        workload: Workload,
        capacity: int,
        on_end: OnEnd | None = None,
        on_step: OnStep | None = None,
    ) -> LiveServer:
        """A server with an engine of its own."""
        plan, requests = self.plan, self.requests
        rows = min(capacity, len(workload))
        engine = Engine(
            self.pair.target,
            self.drafter if policy.drafts else None,
            rows,
            requests.longest,
            make_verifier(plan.temperature),
            plan.engine,
        )
        return LiveServer(engine, policy, plan.cost, workload, requests, capacity, on_end, on_step)

    def warm_up(self, workload: Workload, capacity: int) -> None:
        """Write the first tokens of a full batch, unmeasured: kernels load and compile."""
        count = min(capacity, len(workload))
        none = np.zeros(count, np.int64)
        first = Workload(workload.sequence[:count], none, none.astype(bool), None, count)
        short = np.minimum(self.requests.max_new_tokens, WARM_TOKENS)
        requests = replace(self.requests, max_new_tokens=short)
        replace(self, requests=requests).server(self.policy(capacity), first, capacity).run()


def open_live(plan: LivePlan) -> Live:
    """Load the pair and hold everything against it; no file is touched.

    Raises:
        InputError: models that cannot be loaded, a recording of another pair, a prompt too long.
    """
    pair = load_live(plan.config)
    drafter = chosen_drafter(pair, plan.config)
    check_recording(plan.recording, pair, drafter)
    if plan.record.prompts is None:
        requests, sequences, names = _corpus(plan, pair)
    else:
        lines = plan.record.prompts
        requests = requests_of_prompts(
            lines, pair.tokenizer, plan.max_new_tokens, plan.record.plan.seed
        )
        sequences, names = np.arange(len(lines)), [line.where for line in lines]
    check_fits(requests, pair.target, names)
    return Live(plan, pair, drafter, requests, sequences)


def check_recording(recording: Recording, pair: LivePair, drafter: LiveDrafter) -> None:
    """Refuse to fit on drafts that this pair cannot have made."""
    theirs = recording.meta["drafter"]
    wanted = (
        ("vocab_size", recording.vocab_size, pair.target.vocab_size),
        ("drafter.kind", theirs["kind"], drafter.kind),
        ("depths", recording.depths, drafter.depths),
    )
    for key, value, accepted in wanted:
        if value != accepted:
            raise InputError(
                f"trace.recording {recording.source}: {key} is {value!r}; accepted: {accepted!r}, "
                f"a recording of {pair.name} with its drafter {drafter.name} (task=record)"
            )


def _corpus(plan: LivePlan, pair: LivePair) -> tuple[Requests, np.ndarray, list[str]]:
    """The small pair's held-out prompts; those of the trace's split and domains are served."""
    record, names = plan.record, plan.record.plan.domains
    split, chosen = corpus_choice(plan.config["trace"], names)
    prompts = corpus_prompts(pair, names, record.count(plan.temperature), record.plan.seed)
    served = [i for i, one in enumerate(prompts) if one.split == split and one.domain in chosen]
    if not served:
        raise InputError(
            f"trace.split is {SPLITS[split]!r}, of which {len(prompts)} corpus prompts hold none; "
            "accepted: another split, or more sequences per domain"
        )
    requests = Requests(
        prompt=[np.array(one.tokens, np.int64) for one in prompts],
        seed=np.array([one.seed for one in prompts], np.int64),
        max_new_tokens=np.full(len(prompts), plan.max_new_tokens),
        domain=np.array([one.domain for one in prompts]),
        domains=names,
    )
    return requests, np.array(served), [f"corpus prompt {i}" for i in range(len(prompts))]


def corpus_choice(trace: Mapping[str, Any], names: tuple[str, ...]) -> tuple[int, set[int]]:
    """Index of the `trace` node's split and of its domains among the corpus's `names`."""
    split = SPLITS.index(choice("trace.split", trace.get("split", "report"), SPLITS))
    domains = trace.get("domains")
    if domains is None:
        return split, set(range(len(names)))
    if not isinstance(domains, list) or not domains:
        raise InputError(
            f"trace.domains is {domains!r}; accepted: null, or a list of {', '.join(names)}"
        )
    return split, {names.index(choice("trace.domains", name, names)) for name in domains}
