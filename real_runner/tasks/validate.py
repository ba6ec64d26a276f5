"""task=validate: how far the simulator's predictions are from live runs on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from real_runner.settings import (
    CORPUS_LICENSE,
    ValidateKeys,
    live_settings,
    make_folder,
    policy_nodes,
    with_fixed_sets,
)
from traces.common.errors import InputError
from traces.common.settings import read

LEAST_TOKENS = 4  # outputs of a text: fewer leave no steady steps
SAME = (
    *("concurrency", "domains", "prompts_per_domain", "repeats", "seed"),
    *("probe_warmup", "probe_repeats"),
)


@dataclass(frozen=True, slots=True)
class ValidateSettings:
    """Checked settings."""

    output: Path
    policies: list[dict[str, Any]]
    concurrency: tuple[int, ...]
    domains: tuple[str, ...]
    prompts_per_domain: int
    repeats: int
    seed: int
    grid: Any
    probe_warmup: int
    probe_repeats: int
    temperature: float
    max_new_tokens: int


def run(config: dict[str, Any], log: Callable[[str], None]) -> int:
    """Measure, predict, write validation.json, report.md, the profile and the figure."""
    from real_runner.models.loading import chosen_drafter, load_live

    asked = read_asked(config)
    pair = load_live(config)
    drafter = chosen_drafter(pair, config)
    make_folder(asked.output)
    validation = _prepared(config, asked, pair, drafter, log)
    interrupted = False
    try:
        validation.run(log)
    except KeyboardInterrupt:
        if not validation.collected.repeats:
            raise
        interrupted = True
        log(f"interrupted: reporting {validation.collected.repeats} complete repeats")
    report = _report(config, asked, validation, pair, drafter)
    _write(asked.output, report, validation, log)
    return 130 if interrupted else 0


def read_asked(config: dict[str, Any]) -> ValidateSettings:
    """The settings of a configuration; InputError for the first bad one."""
    from real_runner.probing.grid import Grid

    live = live_settings(config)
    asked, tokens = read(ValidateKeys, config["validate"]), live.max_new_tokens
    if tokens < LEAST_TOKENS:
        raise InputError(
            f"max_new_tokens is {tokens}; accepted for task=validate: at least {LEAST_TOKENS}"
        )
    sizes = ("batches", "packed_per_request", "prefixes", "prompt_tokens")
    nodes = policy_nodes("validate.policies", asked.policies)
    return ValidateSettings(
        output=Path(live.output or "validation"),
        policies=with_fixed_sets(nodes, live.temperature),
        grid=Grid(**{name: tuple(sorted(getattr(asked, name))) for name in sizes}),
        temperature=live.temperature,
        max_new_tokens=tokens,
        **{name: getattr(asked, name) for name in SAME},
    )


def _prepared(config, asked: ValidateSettings, pair, drafter, log):
    """The validation of a fresh recording in the live type."""
    from real_runner.engine.engine import Settings
    from real_runner.engine.residual import make_verifier
    from real_runner.probing import Probe
    from real_runner.recording.record import RecordPlan, corpus_prompts, record_in_memory
    from real_runner.validating.arena import Arena
    from real_runner.validating.validation import Validation, ValidationPlan

    settings = Settings(packing=config["packing"], graphs=config["graphs"])
    plan = RecordPlan(
        domains=asked.domains,
        max_new_tokens=asked.max_new_tokens,
        temperatures=(asked.temperature,),
        shard_mb=1,
        text_license=CORPUS_LICENSE,
        pool=settings.pool,
        seed=asked.seed,
        name="live",
        stored="float32" if config["dtype"] == "bfloat16" else config["dtype"],
    )
    prompts = corpus_prompts(pair, asked.domains, asked.prompts_per_domain, asked.seed)
    recording = record_in_memory(pair, drafter, plan, prompts, asked.temperature)
    log(f"{recording.num_sequences} texts recorded, {recording.num_anchors} anchors")
    verifier = make_verifier(asked.temperature)

    def arena_of(cost):
        return Arena(pair, drafter, recording, cost, verifier, settings)

    probe = Probe(pair, drafter, settings, verifier)
    wanted = ValidationPlan(
        policies=asked.policies,
        concurrency=asked.concurrency,
        repeats=asked.repeats,
        grid=asked.grid,
        probe_warmup=asked.probe_warmup,
        probe_repeats=asked.probe_repeats,
        seed=asked.seed,
    )
    return Validation(arena_of, probe, wanted)


def _report(config, asked: ValidateSettings, validation, pair, drafter) -> dict[str, Any]:
    """`validation.json`."""
    from real_runner.probing.header import hardware

    profile = validation.profile()
    host = validation.fit(profile)
    recording, collected = validation.arena.recording, validation.collected
    fitted = sum(len(recording.sequences_of(split)) for split in ("calibration", "tuning"))
    terms = {name: value for name, value in host.model_dump().items() if name != "overlap"}
    return {
        "format": "specdec-validation",
        "version": 1,
        "pair": pair.name,
        "drafter": drafter.kind,
        "hardware": hardware(pair.target.device),
        "device": pair.target.device.type,
        "dtype": config["dtype"],
        "packing": config["packing"],
        "temperature": asked.temperature,
        "profile": profile.name,
        "host": terms,
        "fitted_on": {"prompts": int(fitted), "runs": len(collected.fitted)},
        "prompts": len(recording.sequences_of("report")),
        "repeats": collected.repeats,
        "seed": asked.seed,
        **validation.result(profile, host),
    }


def _write(output: Path, report: dict[str, Any], validation, log) -> None:
    from real_runner.validating.report import lines, markdown
    from simulator.cost import write_profile
    from simulator.results.files import write_files

    for line in lines(report):
        log(line)
    text = json.dumps(report, indent=2, allow_nan=False) + "\n"
    write_files(
        output,
        {
            "report.md": lambda path: path.write_text(markdown(report), encoding="utf-8"),
            "validation.json": lambda path: path.write_text(text, encoding="utf-8"),
        },
    )
    profile = validation.profile()
    header = asdict(profile.header)
    write_profile(output / "validation.csv", header, profile.verify, profile.draft, profile.prefill)
    # A process of its own: the figure is the analysis' business, which reads result files alone.
    drawn = [sys.executable, "-m", "analysis", str(output), "--out", str(output)]
    done = subprocess.run(drawn, check=False, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        log(f"no figure drawn ({last}); the report is complete")
    log(f"wrote {output}")
