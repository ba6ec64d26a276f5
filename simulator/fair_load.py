"""The load of runs that are compared: a closed loop whose full batch sees every prompt."""

from __future__ import annotations

from dataclasses import replace

from simulator.settings import Settings
from traces.errors import InputError

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
    return replace(settings, goodput=None)


def fair_load(
    base: Settings, concurrency: int, prompts: int, seed: int, num_prompts: int | None = None
) -> Settings:
    """Settings of a run that has `prompts` texts to serve; `num_prompts` is kept where given."""
    if num_prompts is None:
        served = 2 * concurrency + min(prompts, MOST_PROMPTS)
        num_prompts = max(64, 6 * concurrency, served)
    return replace(base, max_concurrency=concurrency, num_prompts=num_prompts, seed=seed)
