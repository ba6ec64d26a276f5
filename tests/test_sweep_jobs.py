"""Composing many jobs at once gives what Hydra composes for each."""

from __future__ import annotations

import pytest
from hydra import compose
from omegaconf import OmegaConf

from simulator.cli import survey
from simulator.cli.survey import opened, parse, planned
from traces.common.errors import InputError

JOBS = [
    ["seed=1"],
    ["seed=2", "policy=treespark", "max_concurrency=null", "request_rate=2.5"],
    ["policy=cast", "seed=3", "policy.width=auto", "goodput='tpot:3 ttft:5'"],
    ["seed=4", "goodput=[tpot:3,e2el:9]", "latency=mi355x", "temperature=1"],
    ["experiment=bursty_arrivals", "seed=5", "burstiness=0.5"],
    ["+policy.nothing=1", "num_prompts=7", "~bounds.nodes"],
    ["request_rate=inf", "trace.domains=[code]", "task=rtable"],
    ["goodput={tpot:3}", "hydra.job.name=other", "burstiness=${seed}"],
    ["latency.host={round_s:0.5}", "latency.host.node_s=1"],
    ["seed=1", "++seed=2", "policy.width=3", "++policy.width=4"],
]


@pytest.mark.parametrize("job", JOBS, ids=" ".join)
def test_a_job_is_composed_as_by_hydra(job):
    with opened(parse([])) as composer:
        expected = OmegaConf.to_container(compose("config", job), resolve=True)
        composer.settings(["seed=9", *job[1:]])  # something to share
        for _ in range(2):
            config, hydra = composer.settings(job)
            assert config == expected
    assert set(hydra["overrides"]["task"]) <= set(job)


@pytest.fixture
def compositions(monkeypatch) -> list[list[str]]:
    """The words of every composition of Hydra's."""
    found = []

    def counted(name: str, overrides: list[str], **more):
        found.append(overrides)
        return compose(name, overrides, **more)

    monkeypatch.setattr("hydra.compose", counted)
    return found


def test_values_share_a_composition_and_other_words_do_not(compositions):
    with opened(parse([])) as composer:
        for policy in ("cast", "ddtree"):
            for seed in range(3):
                words = [f"policy={policy}", f"seed={seed}", f"latency.draft_steps={seed + 1}"]
                config, _ = composer.settings(words)
                assert (config["policy"]["name"], config["seed"]) == (policy, seed)
                assert config["latency"]["draft_steps"] == seed + 1
    assert len(compositions) == 2


def test_a_single_run_is_composed_once(compositions):
    with opened(parse(["policy=ddtree", "seed=3", "policy.nodes=7"])) as composer:
        job = composer.job(planned(composer).jobs[0], None)
    assert (job.config["policy"]["nodes"], job.config["seed"]) == (7, 3)
    assert len(compositions) == 1


def test_objectives_are_left_out_of_folders(here):
    with opened(parse([])) as composer:
        words = ["++objective=output_throughput", "seed=3", "++direction=maximize"]
        jobs = [composer.job(one, 0, str(here)) for one in (words, ["seed=3"])]
    assert {job.folder for job in jobs} == {here / "seed=3"}
    assert jobs[0].identity() == jobs[1].identity() is not None
    assert jobs[0].objective.name == "output_throughput"


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("${hydra.job.num}", "4"),
        ("${hydra:job.name}_${seed}", "simulator_3"),
        ("x/${folder_name:${hydra.job.override_dirname}}", "x/seed=3"),
        ("${policy.name}", "cast"),
    ],
)
def test_names_of_folders(here, pattern, name):
    words = [f"hydra.sweep.subdir='{pattern}'", "seed=3"]
    with opened(parse([])) as composer:
        assert composer.job(words, 4, str(here)).folder == here / name


def test_a_refused_job_is_never_finished(here):
    with opened(parse([])) as composer:
        job = composer.job(["policy=cast", "trace.recording=nowhere"], 0, str(here))
    assert (job.identity(), job.is_finished()) == (None, False)


@pytest.mark.parametrize(
    "words",
    [
        ["seed=range(100000000)"],
        ["seed=range(0,1e17)", "policy=cast,ddtree"],
        ["seed=range(0,1000)", "max_concurrency=range(1,1000)"],
    ],
)
def test_a_sweep_of_too_many_runs_is_refused_before_it_is_expanded(words, monkeypatch):
    monkeypatch.setattr(survey, "_expanded", None)
    command = parse(["-m", *words])
    with opened(command) as composer, pytest.raises(InputError, match="accepted: up to 100000 in"):
        planned(composer)


def test_every_option_of_a_large_sweep_is_checked():
    words = ["policy=cast,ddtree", "seed=range(0,300)", "latency=b300,mi355x", "max_concurrency=1"]
    with opened(parse(["-m", *words])) as composer:
        found = planned(composer)
    assert (found.total, found.arguments) == (1200, None)
    assert found.launcher.endswith(".BasicLauncher")
    jobs = [job for _, job in found.sample()]
    assert len(jobs) == survey.MOST_CHECKED
    options = {(job[0], job[2]) for job in jobs}
    assert {("policy=cast", "latency=b300"), ("policy=cast", "latency=mi355x")} <= options
    assert ("policy=ddtree", "latency=b300") in options
