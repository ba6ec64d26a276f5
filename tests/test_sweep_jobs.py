"""Composing many jobs at once gives what Hydra composes for each."""

from __future__ import annotations

import pickle
from contextlib import contextmanager

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf, open_dict

from simulator.cli.overrides import CONF
from simulator.cli.survey import parse, survey
from simulator.cli.sweep.compose import OURS, Composing
from simulator.cli.sweep.job import job_name
from simulator.cli.sweep.progress import planned

JOBS = [
    ["seed=1"],
    ["seed=2", "policy=treespark", "max_concurrency=null", "request_rate=2.5"],
    ["policy=cast", "seed=3", "policy.width=auto", "goodput='tpot:3 ttft:5'"],
    ["seed=4", "goodput=[tpot:3,e2el:9]", "latency=mi355x", "temperature=1"],
    ["experiment=bursty_arrivals", "seed=5", "burstiness=0.5"],
    ["+policy.nothing=1", "num_prompts=7", "~bounds.nodes"],
    ["request_rate=inf", "trace.domains=[code]", "task=rtable"],
    ["goodput={tpot:3}", "hydra.job.name=other", "burstiness=${seed}"],
]


@contextmanager
def hydras(*words: str):
    """Hydra's own loader, and a sweep's configuration as it gives it."""
    with initialize_config_dir(str(CONF), job_name="simulator", version_base="1.3"):
        master = compose("config", ["hydra.mode=MULTIRUN", *words], return_hydra_config=True)
        with open_dict(master.hydra):
            master.hydra.sweep.dir = "somewhere"
        yield GlobalHydra.instance().config_loader(), master


@pytest.mark.parametrize("job", JOBS, ids=" ".join)
def test_a_job_is_composed_as_by_hydra(job):
    with hydras("hydra.job.env_copy=[HOME]") as (loader, master):
        expected = loader.load_sweep_config(master, job)
        ours = Composing(loader, master, elsewhere=False)
        ours.load_sweep_config(master, ["seed=9", *job[1:]])  # something to share
        for _ in range(2):
            found = ours.load_sweep_config(master, job)
            assert OmegaConf.to_yaml(found) == OmegaConf.to_yaml(expected)


def test_settings_share_a_composition_and_other_words_do_not():
    with hydras() as (loader, master):
        ours = Composing(loader, master, elsewhere=False)
        composed = []
        original = loader.load_configuration
        loader.load_configuration = lambda **words: composed.append(words) or original(**words)
        for policy in ("cast", "ddtree"):
            for seed in range(3):
                found = ours.load_sweep_config(master, [f"policy={policy}", f"seed={seed}"])
                assert (found.policy.name, found.seed) == (policy, seed)
        assert len(composed) == 2
        Composing(loader, master, elsewhere=False).load_sweep_config(master, ["policy=cast"])
        assert len(composed) == 3  # files may have changed since another sweep


def test_a_loader_reaches_other_processes():
    with hydras() as (loader, master):
        ours = Composing(loader, master, elsewhere=True)
        found = pickle.loads(pickle.dumps(ours)).load_sweep_config(master, ["seed=3"])
        assert found.seed == 3
        assert found.hydra.sweep.dir.endswith("/somewhere")
        assert found.hydra.sweep.dir.startswith("/")


def test_a_sweep_keeps_no_record_of_our_word():
    with hydras(OURS) as (loader, master):
        ours = Composing(loader, master, elsewhere=False)
        assert OURS not in OmegaConf.to_yaml(master)
        assert master.hydra.output_subdir == ".hydra"
        assert ours.load_sweep_config(master, ["seed=3"]).hydra.output_subdir is None


def test_objectives_are_left_out_of_folders():
    with hydras() as (loader, master):
        ours = Composing(loader, master, elsewhere=False)
        words = ["++objective=output_throughput", "seed=3", "++direction=maximize"]
        job = planned(words, ours.load_sweep_config(master, words))
        assert job.folder.name == "seed=3"
        same = planned(["seed=3"], ours.load_sweep_config(master, ["seed=3"]))
        assert job.config_hash == same.config_hash is not None


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["hydra.sweep.subdir=${hydra.job.num}"], "its launcher gives the number"),
        (["hydra.sweep.subdir=${hydra:job.name}"], "its job alone sees that"),
    ],
)
def test_a_folder_that_is_not_known_yet(words, why, monkeypatch):
    with hydras(*words) as (loader, master):
        monkeypatch.setattr(HydraConfig.instance(), "cfg", master)  # as after a job
        ours = Composing(loader, master, elsewhere=False)
        job = planned(["seed=3"], ours.load_sweep_config(master, ["seed=3"]))
        assert (job.folder, job.is_finished) == (None, False), why


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["policy=cast", "latency.profile=my.csv", "latency.name=null", "seed=3"],
         "policy=cast latency=my.csv seed=3"),
        (["latency.profile='my own.csv'", "latency.name=null"], "latency='my own.csv'"),
        (["trace.recording=a.safetensors", "++objective=request_goodput"], "trace=a.safetensors"),
        (["latency.profile=b300", "latency.name=null"], "latency.profile=b300 latency.name=null"),
    ],
)  # fmt: skip
def test_files_are_shown_as_they_are_typed(words, shown):
    assert job_name(words) == shown


def test_a_refused_job_is_never_finished():
    with hydras() as (loader, master):
        ours = Composing(loader, master, elsewhere=False)
        job = planned([], ours.load_sweep_config(master, ["policy=cast", "policy.width=-1"]))
        assert (job.config_hash, job.is_finished) == (None, False)


def test_what_is_known_of_a_command():
    found = survey(parse(["-m", "seed=range(0,400)", "policy=cast"]))
    assert found.total == 400
    assert found.launcher.endswith(".BasicLauncher")
    assert not found.searches
    assert survey(parse(["seed=1"])).total == 1
