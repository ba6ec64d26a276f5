"""A sweep on a Ray cluster of two nodes, both of them on this machine."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from simulator.cli.main import main
from tests.sweeping import environment, remains, runs

pytestmark = pytest.mark.skipif(
    not (find_spec("ray") and find_spec("hydra_plugins.hydra_ray_launcher")),
    reason="hydra-ray-launcher is not installed",
)


@pytest.fixture(scope="module")
def cluster():
    """The address of two nodes of one CPU each, which end with the tests."""
    import ray
    from ray.cluster_utils import Cluster

    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    yield nodes.address
    ray.shutdown()
    nodes.shutdown()
    patch.undo()


def on(address: str) -> list[str]:
    """The overrides of conf/SWEEPS.md."""
    # The plugin sets the size of the store, which ray refuses for a cluster that is there.
    init = "hydra.launcher.ray.init"
    return ["hydra/launcher=ray", f"{init}.address={address}", f"+{init}.object_store_memory=null"]


def test_two_nodes(here, recorded, cluster, capfd):
    words = ["-m", f"trace={recorded}", "policy=fixed_chain", "num_prompts=6", "seed=range(0,4)"]
    assert main([*words, "hydra.sweep.dir=here"]) == 0
    expected = capfd.readouterr().out.splitlines()
    assert main([*words, "hydra.sweep.dir=out", *on(cluster)]) == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if "tokens/s" in line]
    assert sorted(lines) == sorted(expected)
    assert runs(here / "out") == runs(here / "here")
    assert not remains(here / "out")
    assert main([*words, "hydra.sweep.dir=out", *on(cluster)]) == 0
    assert capfd.readouterr().out.count("skipped: ") == 4


def test_a_refused_job(here, recorded, cluster, capfd):
    words = ["-m", f"trace={recorded}", "policy=fixed_chain", "num_prompts=1", "seed=0,1"]
    more = ["max_concurrency=1", "objective=mean_tpot_ms", "hydra.sweep.dir=out"]
    assert main([*words, *more, *on(cluster)]) == 2
    errors = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 2
    assert all("seed=" in line and "raise num_prompts" in line for line in errors)
