"""The load of runs that are compared: a closed loop whose full batch sees every prompt."""

from __future__ import annotations

from simulator.settings import Settings

MOST_PROMPTS = 256  # each prompt is served once behind the clients' first ones, up to these


def fair_load(
    concurrency: int, prompts: int, seed: int, max_num_seqs: int, num_prompts: int | None = None
) -> Settings:
    """Settings of a run that has `prompts` texts to serve; `num_prompts` is kept where given."""
    if num_prompts is None:
        served = 2 * concurrency + min(prompts, MOST_PROMPTS)
        num_prompts = max(64, 6 * concurrency, served)
    return Settings(
        max_concurrency=concurrency,
        num_prompts=num_prompts,
        seed=seed,
        max_num_seqs=max_num_seqs,
    )
