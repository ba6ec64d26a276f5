"""The load of runs that are compared: a closed loop whose full batch sees every prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simulator.engine.settings import Settings
from traces.common.errors import InputError

if TYPE_CHECKING:
    from simulator.engine.run import Job
    from simulator.results.facts import Facts

MOST_PROMPTS = 256  # each prompt is served once behind the clients' first ones, up to these


def base_of(settings: Settings, task: str) -> Settings:
    """What runs of a task that compares policies have in common: server and prompts.

    Raises:
        InputError: no closed loop over recorded texts.
    """
    if not settings.workload.recorded:
        raise InputError(
            f"workload.path is {settings.workload.path!r}; accepted with task={task}: null, it "
            "serves recorded texts"
        )
    if not settings.closed_loop:
        raise InputError(
            f"request_rate is {settings.request_rate:g}; accepted with task={task}: inf, every run "
            "is a closed loop"
        )
    return settings.with_(goodput=None)


def rejection(job: Job, facts: Facts) -> InputError | None:
    """What to say of a run that came to nothing because requests were rejected; None: none was."""
    server, rejected = job.settings.server, facts.requests["rejected"]
    if not rejected.any():
        return None
    return InputError(
        f"server.kv_tokens is {server.kv_tokens} in blocks of {server.kv_block}: "
        f"{np.count_nonzero(rejected)} of {len(rejected)} requests can never fit and are rejected; "
        f"accepted: null, or {_enough(job, facts, rejected)}"
    )


def _enough(job: Job, facts: Facts, rejected: np.ndarray) -> str:
    """Tokens that would hold the largest of them; the last output is never held."""
    if job.lengths is not None:
        return "as many as the prompts and outputs of the file take"
    outputs = job.recording["output_len"][facts.requests["sequence"]]
    largest = int((facts.requests["prompt_tokens"] + outputs)[rejected].max()) - 1
    block = job.settings.server.kv_block
    return f"at least {-(-largest // block) * block}"


def fair_load(
    base: Settings, concurrency: int, prompts: int, seed: int, num_prompts: int | None = None
) -> Settings:
    """Settings of a run that has `prompts` texts to serve; `num_prompts` is kept where given."""
    if num_prompts is None:
        served = 2 * concurrency + min(prompts, MOST_PROMPTS)
        num_prompts = max(64, 6 * concurrency, served)
    return base.with_(max_concurrency=concurrency, num_prompts=num_prompts, seed=seed)
