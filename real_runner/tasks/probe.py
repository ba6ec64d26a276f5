"""task=probe: a latency profile of the live pair on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from real_runner.probing.plan import Plan, command_line, read_probe
from simulator.progress import Progress

if TYPE_CHECKING:
    from real_runner.probing import Cell, Probe
    from real_runner.probing.store import Store

INTERRUPTED = 130
Log = Callable[[str], None]


def run(config: dict[str, Any], log: Log) -> int:
    """Measure into `output`, or go on where an earlier probe was interrupted."""
    from real_runner.engine.engine import Settings
    from real_runner.engine.walk import make_verifier
    from real_runner.load import chosen_drafter, load_live
    from real_runner.probing import Probe
    from real_runner.probing.store import Store

    plan = read_probe(config)
    settings = Settings(packing=config["packing"], graphs=config["graphs"])
    pair = load_live(config)
    drafter = chosen_drafter(pair, config)
    probe = Probe(pair, drafter, settings, make_verifier(plan.temperature), plan.seed)
    device = probe.target.device.type
    plan = replace(plan, name=plan.name or f"{pair.name}_{drafter.kind}_{device}")
    edges = device == "cuda" if plan.edges is None else plan.edges
    plan = replace(plan, grid=replace(plan.grid, edges=edges))
    cells = probe.cells(plan.grid)
    partial = plan.output / f"{plan.name}.partial.jsonl"
    with Store(partial, what_decides(probe, plan)) as store:
        if store.visits:
            log(f"going on with {partial}")
        log(f"{len(cells)} cells, {plan.repeats} repeats in {plan.passes} passes")
        try:
            measure_all(probe, cells, plan, store, log)
        except KeyboardInterrupt:
            log(f"interrupted; samples are kept in {partial}, and the same command goes on")
            return INTERRUPTED
        write(probe, plan, store, _command(config), log)
    if not plan.keep_samples:
        partial.unlink()
    return 0


def what_decides(probe: Probe, plan: Plan) -> dict[str, Any]:
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


def measure_all(probe: Probe, cells: list[Cell], plan: Plan, store: Store, log: Log) -> None:
    """Every pass over every cell that is not in the store yet."""
    from real_runner.probing import DoesNotFit, one_pass, share

    with Progress(len(cells) * plan.passes, "measuring") as progress:
        for index in range(plan.passes):
            for visited, cell in enumerate(one_pass(cells, plan.seed, index)):
                progress.update(index * len(cells) + visited)
                if store.has(cell, index):
                    continue
                try:
                    repeats = share(plan.repeats, plan.passes, index)
                    store.add(cell, index, probe.measure(cell, plan.warmup, repeats))
                except DoesNotFit as error:
                    store.skip(cell, str(error))
                    log(f"{error}: left out, and so are larger ones")


def write(probe: Probe, plan: Plan, store: Store, command: str, log: Log) -> None:
    """The profile of all samples."""
    from real_runner.probing.header import Story, profile_of
    from simulator.cost import write_profile

    notes = [f"{reason}: left out with larger ones." for reason in store.skipped.values()]
    described = {
        **plan.gridded(plan.grid),
        "probe.seed": plan.seed,
        "temperature": plan.temperature,
    }
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
