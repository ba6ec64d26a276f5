"""The live engine on a GPU: the same rounds as on a CPU, captured graphs, timing by its clock."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel

from real_runner.app import main
from real_runner.engine.attend import mixed
from real_runner.engine.clock import PhaseClock
from real_runner.engine.draws import KeyedDraws
from real_runner.engine.engine import Engine, Settings
from real_runner.engine.pack import PACKINGS
from real_runner.engine.walk import DrawAndMatch, GreedyMatch
from real_runner.probing.profile import short_name
from real_runner.probing.shapes import random_pair
from real_runner.tasks import gpu
from simulator.cost import read_profile
from tests.test_graphs import rounds
from tests.tiny_pair import KINDS, tiny_pair

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
DEVICE = "cuda"


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rounds_are_those_of_a_cpu(kind, packing, graphs, temperature):
    """Seeds make draws, so they are the same on any device, greedy or not."""
    verifier = DrawAndMatch(KeyedDraws(temperature)) if temperature else GreedyMatch()
    wanted = rounds(tiny_pair(dtype=torch.float64), kind, Settings(packing), verifier)
    pair, settings = tiny_pair(device=DEVICE), Settings(packing, graphs=graphs)
    for _ in range(2):
        assert rounds(pair, kind, settings, verifier) == wanted


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("packing", PACKINGS)
def test_the_small_pair_serves_as_the_simulator_replays(packing, graphs, capsys):
    words = ["exact.prompts_per_domain=4", "exact.concurrency=[1,8]", "max_new_tokens=32"]
    policies = "exact.policies=[autoregressive,fixed_chain,fixed_tree,cast]"
    place = [f"device={DEVICE}", "dtype=float32", f"packing={packing}", f"graphs={graphs}".lower()]
    assert main(["task=exact", *place, policies, *words]) == 0, capsys.readouterr().out


def test_a_size_is_captured_once_and_then_replayed(monkeypatch):
    pair, replays = tiny_pair(device=DEVICE), []
    engine = Engine(pair.target, None, 2, 40, settings=Settings(graphs=True))
    plain = Engine(pair.target, None, 2, 40)
    whole = torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(
        torch.cuda.CUDAGraph, "replay", lambda graph: (replays.append(graph), whole(graph))
    )
    for one in (engine, plain):
        for prompt in ([1, 5, 9], [1, 7]):
            one.admit(np.array(prompt), 0)
    none, seeds = np.zeros(2, np.int64), np.arange(2)
    for index in range(4):
        found, wanted = (
            one.verify(None, none, seeds, np.full(2, index)).token.tolist()
            for one in (engine, plain)
        )
        assert found == wanted
        engine.commit()
        plain.commit()
    assert [sizes[:3] for sizes in engine._graphs.captured] == [(2, 2, 1)]
    assert len(replays) == 3
    assert len(set(map(id, replays))) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("spread", [False, True])
def test_a_fused_kernel_takes_masks_and_grouped_heads(dtype, spread):
    """With every other kernel forbidden: it would raise."""
    torch.manual_seed(0)
    query = torch.randn(2, 8, 5, 64, device=DEVICE, dtype=dtype)
    cache = torch.randn(2, 3, 2, 48, 64, device=DEVICE, dtype=dtype)
    key, value = cache[:, :2, :, :32].unbind(0)  # strided, as slices of a cache are
    mask = torch.zeros(2, 1, 1 if spread else 5, 32, device=DEVICE, dtype=dtype)
    mask.masked_fill_(torch.rand(mask.shape, device=DEVICE) < 0.5, float("-inf"))
    mask[..., 0] = 0
    mask = mask.expand(-1, -1, 5, -1)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION]):
        found = mixed(query, key, value, mask)
    wide = (part.repeat_interleave(4, 1).double() for part in (key, value))
    wanted = torch.nn.functional.scaled_dot_product_attention(query.double(), *wide, mask.double())
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-4
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("packing", PACKINGS)
def test_bfloat16_serves(packing, graphs):
    settings = Settings(packing, graphs=graphs)
    for kind in KINDS:
        assert len(rounds(tiny_pair(dtype=torch.bfloat16, device=DEVICE), kind, settings)) == 5
    grouped = random_pair("tiny", torch.device(DEVICE), torch.bfloat16)
    assert len(rounds(grouped, "block", settings)) == 5


def test_phases_are_timed_by_the_devices_clock():
    work = torch.randn(2048, 2048, device=DEVICE)
    clock = PhaseClock(work.device)
    seconds = []
    for products in (1, 1, 200):
        clock.start()
        for _ in range(products):
            out = work @ work
        clock.mark("draft")
        (out @ work).sum().item()
        seconds.append(clock.mark("verify").read())
    for one in seconds:
        assert 0 < one["draft"] < 5
        assert 0 < one["verify"] < 5
        assert one["total"] > 0
    assert seconds[2]["draft"] > 5 * seconds[1]["draft"]  # launched at once, but timed where it ran


@pytest.mark.parametrize("mode", gpu.MODES)
def test_a_surface_of_tiny_shapes(here, mode):
    words = [
        *("surface", "shape=tiny", f"mode={mode}", f"device={DEVICE}"),
        *("probe.batches=[1,2]", "probe.packed_per_request=[1,3]", "probe.prefixes=[12]"),
        *("probe.prompt_tokens=[6]", "probe.repeats=4"),
    ]
    assert gpu.main(words) == 0
    name = f"{short_name(torch.device(DEVICE))}_tiny_{mode}"
    profile = read_profile(here / "traces" / "latency" / f"{name}.csv")
    graphs = mode == "graphs"
    assert profile.header.engine == ("cuda_graph + eager tail" if graphs else "eager")
    assert "CUDA events" in profile.header.timing
    assert all(row.captured == graphs and row.verify_ms > 0 for row in profile.verify)
    rows = [row.verify_ms for row in profile.verify if row.batch == 2]
    assert all(low <= high for low, high in pairwise(rows))
