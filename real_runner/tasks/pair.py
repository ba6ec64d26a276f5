"""What makes the shipped small pair and its data: task=train, task=record, task=evaluate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import traces
from real_runner.models.loading import load_live
from real_runner.recording.record import RecordPlan, corpus_prompts, record
from real_runner.recording.texts import Prompt
from real_runner.serving.prompts import prompt_lines, record_prompts
from real_runner.settings import CORPUS_LICENSE, LiveSettings, make_folder
from real_runner.training.evaluate import evaluate
from real_runner.training.task import train
from traces.common.errors import InputError

DATA = Path(traces.__file__).parent / "data"
Log = Callable[[str], None]


def run_train(config: Mapping[str, Any], live: LiveSettings, log: Log) -> None:
    """Train the small pair again, into `output`."""
    train(live.train, Path(live.output or "trained_pair"), log)


def run_record(config: Mapping[str, Any], live: LiveSettings, log: Log) -> None:
    """Record every drafter of the pair at every output position, into `output`."""
    lines, corpus, asked = prompt_lines(live), live.corpus, live.record
    plan = RecordPlan(
        domains=corpus.domains,
        max_new_tokens=corpus.max_new_tokens,
        temperatures=asked.temperatures,
        shard_mb=corpus.shard_mb,
        text_license=CORPUS_LICENSE if lines is None else asked.license,
        pool=asked.pool,
        seed=asked.seed,
        name=live.size if lines is None else Path(live.prompts).stem,
    )
    output = Path(live.output or f"record/{plan.name}")
    pair = load_live(config)
    drafted = pair.target.vocab_size - len(pair.target.banned_tokens)
    if plan.pool > drafted:
        raise InputError(
            f"record.pool is {plan.pool}; accepted: up to the {drafted} tokens that are drafted"
        )
    prompts = None
    if lines is not None:
        plan, prompts = record_prompts(pair, plan, lines)

    def prompts_at(temperature: float) -> list[Prompt]:
        if prompts is not None:
            return prompts
        return corpus_prompts(pair, plan.domains, corpus.count(temperature), plan.seed)

    make_folder(output)
    for path in record(pair, plan, prompts_at, output, log):
        log(f"recorded in {path}")


def run_evaluate(config: Mapping[str, Any], live: LiveSettings, log: Log) -> None:
    """Print the figures of the model card, from the weights in `pair`, recordings in `output`."""
    from real_runner.models.small.load import SHIPPED, load_pair

    pair = load_pair(Path(live.pair or SHIPPED))
    evaluate(pair, Path(live.output or DATA), live.size, log)
