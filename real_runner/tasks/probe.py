"""task=probe: a latency profile of the live pair on this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from real_runner.probing.plan import ProbePlan, command_line, read_probe
from simulator.progress import Progress
from traces.common.errors import InputError
from traces.common.files import INTERRUPTED

if TYPE_CHECKING:
    from real_runner.probing import Cell, Probe
    from real_runner.probing.store import Store


EARLY = 25  # visits after which a call with a time limit says how long all will take
Log = Callable[[str], None]


def run(config: dict[str, Any], log: Log) -> int:
    """Measure into `output`, or go on where an earlier probe was interrupted or out of time."""
    from real_runner.engine.engine import Settings
    from real_runner.engine.residual import make_verifier
    from real_runner.probing import Probe
    from real_runner.probing.store import Store

    begun_s = time.monotonic()
    plan = read_probe(config)
    settings = Settings(packing=config["packing"], graphs=config["graphs"])
    pair, drafter = _pair(plan, config)
    probe = Probe(pair, drafter, settings, make_verifier(plan.temperature), plan.seed)
    device = probe.target.device.type
    plan = replace(plan, name=plan.name or profile_name(plan, probe))
    edges = device == "cuda" if plan.edges is None else plan.edges
    plan = replace(plan, grid=replace(plan.grid, edges=edges))
    cells = probe.cells(plan.grid)
    partial = plan.output / f"{plan.name}.partial.jsonl"
    with Store(partial, what_decides(probe, plan)) as store:
        if store.visits:
            log(f"going on with {partial}")
        log(f"{len(cells)} cells, {plan.repeats} repeats in {plan.passes} passes")
        try:
            done = plan.finish or measure_all(probe, cells, plan, store, log, begun_s)
        except KeyboardInterrupt:
            log(f"interrupted; samples are kept in {partial}, and the same command goes on")
            return INTERRUPTED
        if not done:
            log(f"samples are kept in {partial}, and the same command goes on")
            return 0
        if not any(samples.draft_s for samples in store.kept().values()):
            raise InputError(
                f"{partial} holds no step that drafts; accepted: samples of at least one"
                + (", so without probe.finish first" if plan.finish else "")
            )
        write(probe, plan, store, _command(config), log)
    if not plan.keep_samples and not plan.finish:
        partial.unlink(missing_ok=True)
    return 0


def what_decides(probe: Probe, plan: ProbePlan) -> dict[str, Any]:
    """Everything that a sample depends on, by key."""
    import torch

    from real_runner.probing.header import hardware, type_name

    target, drafter = probe.target, probe.drafter
    return {
        "target": f"{target.name} {target.sha256}",
        "drafter": f"{drafter.name} {drafter.sha256}",
        "device": hardware(target.device),
        "dtype": type_name(target.dtype),
        "torch": str(torch.__version__),
        **asdict(probe.settings),
        **plan.gridded(plan.grid),
        **plan.repeated(),
    }


def _pair(plan: ProbePlan, config: Mapping[str, Any]):
    """The pair that is timed, and its drafter."""
    from real_runner.models.loading import chosen_drafter, load_live, place
    from real_runner.probing.shapes import random_pair

    if plan.shape is None:
        pair = load_live(config)
        return pair, chosen_drafter(pair, config)
    pair = random_pair(plan.shape, *place(config), plan.seed)
    (drafter,) = pair.drafters.values()
    return pair, drafter


def profile_name(plan: ProbePlan, probe: Probe) -> str:
    """A loaded pair's: with drafter and device; a shape's: GPU, shape, and how it runs."""
    from real_runner.probing.header import short_name

    if plan.shape is None:
        return f"{probe.pair.name}_{probe.drafter.kind}_{probe.target.device.type}"
    mode = "graphs" if probe.settings.graphs else "eager"
    return f"{short_name(probe.target.device)}_{plan.shape}_{mode}"


def measure_all(
    probe: Probe, cells: list[Cell], plan: ProbePlan, store: Store, log: Log, begun_s: float
) -> bool:
    """Every pass over every cell that is not in the store yet; False when time is up before."""
    from real_runner.probing import DoesNotFit, one_pass, share

    visits, first_s, total = 0, time.monotonic(), len(cells) * plan.passes
    with Progress(total, "measuring") as progress:
        for index in range(plan.passes):
            for visited, cell in enumerate(one_pass(cells, plan.seed, index)):
                progress.update(index * len(cells) + visited)
                if store.has(cell, index):
                    continue
                now_s = time.monotonic()
                if visits and plan.time_s is not None and now_s - begun_s > plan.time_s:
                    left = _left(cells, plan, store)
                    rate = visits / (now_s - first_s)
                    log(f"time is up: {_outlook(total - left, left, rate, plan.time_s)}")
                    return False
                if visits == EARLY and plan.time_s is not None:
                    left = _left(cells, plan, store)
                    log(_outlook(total - left, left, visits / (now_s - first_s), plan.time_s))
                visits += 1
                try:
                    repeats = share(plan.repeats, plan.passes, index)
                    store.add(cell, index, probe.measure(cell, plan.warmup, repeats))
                except DoesNotFit as error:
                    store.skip(cell, str(error))
                    log(f"{error}: left out, and so are larger ones")
    return True


def _left(cells: list[Cell], plan: ProbePlan, store: Store) -> int:
    """Visits to come."""
    return sum(not store.has(cell, index) for cell in cells for index in range(plan.passes))


def _outlook(done: int, left: int, rate: float, time_s: float) -> str:
    """How far a probe is, at `rate` visits a second and `time_s` a call."""
    return (
        f"{done} of {done + left} visits done, the rest takes about {left / rate / 60:.1f} minutes "
        f"(calls of {time_s:g} s: {math.ceil(left / rate / time_s)})"
    )


def write(probe: Probe, plan: ProbePlan, store: Store, command: str, log: Log) -> None:
    """The profile of all samples."""
    from real_runner.probing.header import Story, profile_of
    from simulator.cost import write_profile

    notes = [f"{reason}: left out with larger ones." for reason in store.skipped.values()]
    described = {
        **plan.gridded(plan.grid),
        "probe.seed": plan.seed,
        "temperature": plan.temperature,
    }
    if plan.finish:
        notes.append("Finished before all cells had all their repeats.")
    notes.append("Settings: " + ", ".join(f"{k} {_plain(v)}" for k, v in described.items()) + ".")
    repeats = (
        f"{plan.warmup} warm-ups per visit, median of {plan.repeats} repeats over {plan.passes} "
        "shuffled passes"
    )
    story = Story(command, repeats, tuple(notes))
    profile = profile_of(probe, store.kept(), plan.name, plan.isotonic, story)
    path = plan.output / f"{plan.name}.csv"
    header = {key: value for key, value in asdict(profile.header).items() if value != ""}
    write_profile(path, header, profile.verify, profile.draft, profile.prefill)
    for name, value in profile.header.noise.items():
        log(f"{name} {value:.1%}")
    log(f"wrote {path}")


def _plain(value: Any) -> str:
    return "/".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _command(config: Mapping[str, Any]) -> str:
    from hydra import compose
    from omegaconf import OmegaConf

    return command_line(config, OmegaConf.to_container(compose("real_runner"), resolve=True))
