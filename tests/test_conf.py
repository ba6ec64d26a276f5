"""Every YAML under conf/ composes, and names something that exists."""

from __future__ import annotations

import pytest

from simulator.cli.overrides import OPTION_GROUPS
from simulator.cli.remarks import remarks
from simulator.cli.survey import opened, parse, planned
from simulator.cli.sweep.objective import split_objective
from simulator.engine.inputs import load_cost
from simulator.engine.settings import read_settings
from simulator.policies.loading import make_policy
from simulator.studies.options import CONF, read_option
from tests.composing import composed
from traces.recordings.catalog import known_recordings

FILES = sorted(path.relative_to(CONF) for path in CONF.rglob("*.yaml"))


def options(group: str) -> list[str]:
    return [path.stem for path in FILES if path.parts[0] == group]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_every_file_composes(path):
    """Options of the simulator's groups inside its configuration, everything else alone."""
    name = str(path.with_suffix(""))
    if path.parts[0] in OPTION_GROUPS:
        config = composed("config", f"{path.parts[0]}={path.stem}")
        settings = read_settings(split_objective(config)[0])
        assert settings.requests > 0
    else:
        assert composed(name)


@pytest.mark.parametrize("name", options("trace"))
def test_recordings_are_shipped(name):
    assert read_option("trace", name, "trace")["recording"] in known_recordings()


SWEEPS = {"concurrency_sweep": 7 * 5, "arrival_rate_sweep": 4 * 5, "bursty_arrivals": 3 * 3 * 3}


@pytest.mark.parametrize("name", options("experiment"))
def test_every_experiment_composes(name):
    """A job with each of its values: settings, a policy and a cost of it, and nothing idle."""
    if name.endswith("_optuna"):
        pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    with opened(parse([f"experiment={name}"])) as composer:
        jobs, seen, configs = planned(composer).jobs, set(), []
        assert len({tuple(job) for job in jobs}) == len(jobs) == SWEEPS.get(name, len(jobs))
        for job in jobs:
            if not seen.issuperset(job) or not configs:
                configs.append(composer.settings(job)[0])
                seen.update(job)
    for config in configs:
        read_settings(split_objective(config)[0])
        make_policy(config["policy"])
        assert load_cost(config["latency"]).num_gpus >= 1
    assert list(remarks(configs)) == []
