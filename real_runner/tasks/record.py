"""task=record: record a live pair at every output position."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from real_runner.settings import live_settings, make_folder
from traces.common.errors import InputError


def run(config: dict[str, Any], log: Callable[[str], None]) -> None:
    """Record every drafter of the pair, at every temperature, into `output`."""
    from real_runner.models.loading import load_live
    from real_runner.recording.record import corpus_prompts, record
    from real_runner.serving.prompts import read_plan, record_prompts

    asked = live_settings(config)
    settings = read_plan(asked)
    output = Path(asked.output or f"record/{settings.plan.name}")
    pair = load_live(config)
    drafted = pair.target.vocab_size - len(pair.target.banned_tokens)
    if settings.plan.pool > drafted:
        raise InputError(
            f"record.pool is {settings.plan.pool}; accepted: up to the {drafted} tokens that are "
            "drafted"
        )
    plan = settings.plan
    if settings.prompts is not None:
        plan, prompts = record_prompts(pair, settings)
    make_folder(output)
    if settings.prompts is not None:
        paths = record(pair, plan, lambda _: prompts, output, log)
    else:
        paths = record(
            pair,
            plan,
            lambda t: corpus_prompts(pair, plan.domains, settings.count(t), plan.seed),
            output,
            log,
        )
    for path in paths:
        log(f"recorded in {path}")
