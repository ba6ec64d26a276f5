"""A live run from its configuration: what is asked, checked before a model is loaded; then loaded,
fitted, warmed up and served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from real_runner.engine.engine import Settings
from real_runner.engine.models import LiveDrafter, LivePair
from real_runner.engine.residual import make_verifier
from real_runner.models.loading import chosen_drafter, load_live
from real_runner.recording.record import corpus_prompts
from real_runner.serving.arena import Arena
from real_runner.serving.prompts import PromptLine, Requests, check_fits, requests_of_prompts
from real_runner.settings import LiveSettings, choice
from simulator.engine.arrivals import Workload
from simulator.engine.inputs import load_cost, load_recording
from simulator.policies.loading import make_policy
from traces.common.errors import InputError
from traces.recordings.recording import Recording
from traces.recordings.schema import SPLITS

WARM_TOKENS = 12  # outputs of every request of the warm-up


@dataclass(frozen=True, slots=True)
class Live:
    """A loaded pair, what it is asked, and what its policy fits on and is told."""

    config: Mapping[str, Any]
    settings: LiveSettings
    lines: Sequence[PromptLine] | None  # None: the corpus
    arena: Arena
    requests: Requests
    sequences: np.ndarray  # of the requests, that may be served

    def warm_up(self, workload: Workload, capacity: int) -> None:
        """Write the first tokens of a full batch, unmeasured: kernels load and compile."""
        count = min(capacity, len(workload))
        none = np.zeros(count, np.int64)
        first = Workload(workload.sequence[:count], none, none.astype(bool), None, count)
        short = np.minimum(self.requests.max_new_tokens, WARM_TOKENS)
        requests = replace(self.requests, max_new_tokens=short)
        self.arena.serve(self.config["policy"], first, capacity, requests)


def open_live(
    config: Mapping[str, Any], settings: LiveSettings, lines: Sequence[PromptLine] | None
) -> Live:
    """Check what every live run reads, load the pair and hold all against it; writes no file.

    lines: the prompts; None: those of the small pair's corpus.

    Raises:
        InputError: the first bad key, value or file, models that cannot be loaded, a recording of
            another pair, or a prompt too long.
    """
    make_policy(settings.policy)
    recording, trace, record = load_recording(config["trace"]), config["trace"], settings.record
    names, asked = settings.corpus.domains, None
    if lines is None:
        asked = corpus_choice(trace, names)
    pool = {} if "pool_token" not in recording else {"pool": recording["pool_token"].shape[2]}
    engine = Settings(packing=settings.packing, graphs=settings.graphs, **pool)
    cost = load_cost(settings.latency)
    pair = load_live(config)
    drafter = chosen_drafter(pair, config)
    check_recording(recording, pair, drafter)
    if lines is None:
        requests, sequences = _corpus(settings, pair, *asked)
        called = [f"corpus prompt {i}" for i in range(len(requests))]
    else:
        requests = requests_of_prompts(lines, pair.tokenizer, settings.max_new_tokens, record.seed)
        sequences, called = np.arange(len(lines)), [line.where for line in lines]
    check_fits(requests, pair.target, called)
    verifier = make_verifier(settings.temperature)
    arena = Arena(pair, drafter, recording, cost, verifier, engine)
    return Live(config, settings, lines, arena, requests, sequences)


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


def _corpus(
    settings: LiveSettings, pair: LivePair, split: int, chosen: set[int]
) -> tuple[Requests, np.ndarray]:
    """The small pair's held-out prompts; those of the trace's split and domains are served."""
    names, count = settings.corpus.domains, settings.corpus.count(settings.temperature)
    prompts = corpus_prompts(pair, names, count, settings.record.seed)
    served = [i for i, one in enumerate(prompts) if one.split == split and one.domain in chosen]
    if not served:
        raise InputError(
            f"trace.split is {SPLITS[split]!r}, of which {len(prompts)} corpus prompts hold none; "
            "accepted: another split, or more sequences per domain"
        )
    requests = Requests(
        prompt=[np.array(one.tokens, np.int64) for one in prompts],
        seed=np.array([one.seed for one in prompts], np.int64),
        max_new_tokens=np.full(len(prompts), settings.max_new_tokens),
        domain=np.array([one.domain for one in prompts]),
        domains=names,
    )
    return requests, np.array(served)


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
