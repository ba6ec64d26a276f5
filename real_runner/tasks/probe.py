"""task=probe: a latency profile of the live pair on this machine."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from hydra import compose
from omegaconf import OmegaConf

from real_runner.engine.engine import Settings
from real_runner.engine.residual import make_verifier
from real_runner.models.loading import chosen_drafter, load_live, place
from real_runner.probing.grid import Cell, Grid, one_pass
from real_runner.probing.measure import DoesNotFit, Probe
from real_runner.probing.profile import hardware, profile_of, short_name, type_name
from real_runner.probing.shapes import random_pair
from real_runner.probing.store import Store
from real_runner.settings import LiveSettings, ProbeKeys
from simulator.cost import write_profile
from simulator.progress import Progress
from traces.common.errors import InputError
from traces.common.files import INTERRUPTED

OUTPUT = "profiles"
EARLY = 25  # visits after which a call with a time limit says how long all will take
GRID = tuple(field.name for field in fields(Grid))
# What a command line must repeat to measure the same again.
TOLD = (
    *("pair", "target", "drafter", "device", "dtype", "threads", "packing", "graphs"),
    "temperature",
)
UNTOLD = ("name", "keep_samples", "time_s", "finish")  # change no number
Log = Callable[[str], None]


def run_probe(config: Mapping[str, Any], live: LiveSettings, log: Log) -> int:
    """Measure into `output`, or go on where an earlier probe was interrupted or out of time."""
    begun_s = time.monotonic()
    asked, settings = live.probe, Settings(packing=live.packing, graphs=live.graphs)
    if asked.shape is None:
        pair = load_live(config)
        drafter = chosen_drafter(pair, config)
    else:
        pair = random_pair(asked.shape, *place(config), asked.seed)
        (drafter,) = pair.drafters.values()
    probe = Probe(pair, drafter, settings, make_verifier(live.temperature), asked.seed)
    edges = probe.target.device.type == "cuda" if asked.edges is None else asked.edges
    asked = asked.with_(name=asked.name or profile_name(asked.shape, probe), edges=edges)
    cells = probe.cells(Grid(**{name: getattr(asked, name) for name in GRID}))
    path = Path(live.output or OUTPUT) / f"{asked.name}.csv"
    partial = path.with_name(f"{asked.name}.partial.jsonl")
    with Store(partial, what_decides(probe, asked, live.temperature)) as store:
        if store.done:
            log(f"going on with {partial}")
        log(f"{len(cells)} cells, {asked.repeats} repeats in {asked.passes} passes")
        try:
            done = asked.finish or measure_all(probe, cells, asked, store, log, begun_s)
        except KeyboardInterrupt:
            log(f"interrupted; samples are kept in {partial}, and the same command goes on")
            return INTERRUPTED
        if not done:
            log(f"samples are kept in {partial}, and the same command goes on")
            return 0
        if not any(samples.draft_s for samples in store.kept().values()):
            raise InputError(
                f"{partial} holds no step that drafts; accepted: samples of at least one"
                + (", so without probe.finish first" if asked.finish else "")
            )
        defaults = OmegaConf.to_container(compose("real_runner"), resolve=True)
        write(path, probe, asked, live.temperature, store, command_line(config, defaults), log)
    if not asked.keep_samples and not asked.finish:
        partial.unlink(missing_ok=True)
    return 0


def profile_name(shape: str | None, probe: Probe) -> str:
    """A loaded pair's: with drafter and device; a shape's: GPU, shape, and how it runs."""
    if shape is None:
        return f"{probe.pair.name}_{probe.drafter.kind}_{probe.target.device.type}"
    mode = "graphs" if probe.settings.graphs else "eager"
    return f"{short_name(probe.target.device)}_{shape}_{mode}"


def what_decides(probe: Probe, asked: ProbeKeys, temperature: float) -> dict[str, Any]:
    """Everything that a sample depends on, by key."""
    target, drafter = probe.target, probe.drafter
    names = (*GRID, "warmup", "repeats", "passes", "seed")
    return {
        "target": f"{target.name} {target.sha256}",
        "drafter": f"{drafter.name} {drafter.sha256}",
        "device": hardware(target.device),
        "dtype": type_name(target.dtype),
        "torch": str(torch.__version__),
        **asdict(probe.settings),
        **{f"probe.{name}": getattr(asked, name) for name in names},
        "temperature": temperature,
    }


def measure_all(
    probe: Probe, cells: list[Cell], asked: ProbeKeys, store: Store, log: Log, begun_s: float
) -> bool:
    """Every pass over every cell that is not in the store yet; False when time is up before."""
    measured, first_s = 0, time.monotonic()
    visits = [
        (cell, index)
        for index in range(asked.passes)
        for cell in one_pass(cells, asked.seed, index)
    ]
    with Progress(len(visits), "measuring") as progress:
        for visited, (cell, index) in enumerate(visits):
            progress.update(visited)
            if store.has(cell, index):
                continue
            if asked.time_s is not None and measured:
                now_s = time.monotonic()
                is_over = now_s - begun_s > asked.time_s
                if is_over or measured == EARLY:
                    left = sum(not store.has(*visit) for visit in visits)
                    left_s = left * (now_s - first_s) / measured
                    log(
                        f"{'time is up: ' if is_over else ''}{len(visits) - left} of {len(visits)} "
                        f"visits done, the rest takes about {left_s / 60:.1f} minutes "
                        f"(calls of {asked.time_s:g} s: {math.ceil(left_s / asked.time_s)})"
                    )
                if is_over:
                    return False
            measured += 1
            repeats = asked.repeats // asked.passes + (index < asked.repeats % asked.passes)
            try:
                store.add(cell, index, probe.measure(cell, asked.warmup, repeats))
            except DoesNotFit as error:
                store.skip(cell, str(error))
                log(f"{error}: left out, and so are larger ones")
    return True


def write(
    path: Path,
    probe: Probe,
    asked: ProbeKeys,
    temperature: float,
    store: Store,
    command: str,
    log: Log,
) -> None:
    """The profile of all samples."""
    notes = [f"{reason}: left out with larger ones." for reason in store.skipped.values()]
    if asked.finish:
        notes.append("Finished before all cells had all their repeats.")
    described = {f"probe.{name}": getattr(asked, name) for name in (*GRID, "seed")}
    described["temperature"] = temperature
    words = [
        f"{key} {'/'.join(map(str, value)) if isinstance(value, tuple) else value}"
        for key, value in described.items()
    ]
    notes.append(f"Settings: {', '.join(words)}.")
    repeats = (
        f"{asked.warmup} warm-ups per visit, median of {asked.repeats} repeats over "
        f"{asked.passes} shuffled passes"
    )
    profile = profile_of(probe, store.kept(), asked.name, asked.isotonic, command, repeats, notes)
    header = {key: value for key, value in profile.header.model_dump().items() if value != ""}
    write_profile(path, header, profile.verify, profile.draft, profile.prefill)
    for name, value in profile.header.noise.items():
        log(f"{name} {value:.1%}")
    log(f"wrote {path}")


def command_line(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """The words that measure the same again, wherever it is written; no paths."""
    changed = {key: config[key] for key in TOLD if config[key] != defaults[key]}
    for key, value in config["probe"].items():
        if value != defaults["probe"][key] and key not in UNTOLD:
            changed[f"probe.{key}"] = value
    words = ["python -m real_runner task=probe"]
    for key, value in changed.items():
        if not isinstance(value, str):
            value = json.dumps(value, separators=(",", ":"))
        elif Path(value).exists():
            value = Path(value).name
        words.append(f"{key}={value}")
    return " ".join(words)
