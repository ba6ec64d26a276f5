"""Latency profiles, latency configurations and points of a roofline."""

from __future__ import annotations

import itertools
import math
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np

from simulator.cli.errors import one_line
from simulator.cli.overrides import overrides_of
from simulator.cost import StepCost, build_step_cost, read_profile
from tests.fuzz.cases import Target, of_file
from tests.fuzz.damage import json_text
from traces.common.errors import InputError

HEADER = {
    "hardware": "bench",
    "num_gpus": 1,
    "model": "toy",
    "model_shape": {"layers": 4, "hidden": 64, "kv_heads": 2, "head_dim": 16, "params_b": 0.1},
    "dtype": "float32",
    "attention": "causal",
    "engine": "cuda_graph + eager tail",
    "graph_sizes": [1, 2, 4],
    "timing": "median of 25",
    "source": "a test",
    "kind": "measured",
    "license": "none",
    "fixed": {"kv_prefix_tokens": 512},
    "device": {"peak_tflops": 10.0, "bandwidth_gb_s": 100},
    "noise": {"verify": 0.01},
    "notes": "by hand",
}
VERIFY = """batch,packed_tokens_per_request,verify_ms,regime,noise_ms
1,1,10,cuda_graph,0.1
1,4,11,cuda_graph,0.1
1,16,12.5,eager,
2,1,12,cuda_graph,0.2
2,4,16,eager,0.1
"""
DRAFT = "batch,draft_ms\n1,1.0\n2,1.5\n"
PREFILL = "prompt_tokens,prefill_ms\n64,10\n512,25.5\n"
POINTS = """batch,packed_tokens_total,kv_prefix_tokens,verify_ms
1,1,100,10.5
1,64,100,11.0
4,256,1000,30.0
8,512,1000,58.0
"""
ENGINE = {
    "name": "engine",
    "profile": "toy.csv",
    "strict": False,
    "packing": "ragged",
    "mode": None,
    "graph_sizes": None,
    "cliffs": [{"above": 4, "factor": 1.5, "per": "step"}],
    "host": {"round_s": 1e-3, "node_s": 1e-6, "overlap": False},
    "provenance": {"rounds": "rounds.csv", "rows": 12},
}
ROOFLINE = {
    "profile": "roofline",
    "roofline": {
        "gpu": {"peak_tflops": 1, "bandwidth_gb_s": 100},
        "model": {
            "layers": 10, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "params_b": 0.5,
        },
        "draft_layers": 2,
        "calibrate": "points.csv",
    },
}  # fmt: skip


def make_profile(folder: Path) -> None:
    """NAME.yaml, NAME.csv and both tables beside it."""
    (folder / "toy.yaml").write_text(json_text(HEADER))
    (folder / "toy.csv").write_text(VERIFY)
    (folder / "toy.draft.csv").write_text(DRAFT)
    (folder / "toy.prefill.csv").write_text(PREFILL)


def _make_engine(folder: Path) -> None:
    make_profile(folder)
    (folder / "engine.yaml").write_text(json_text(ENGINE))


def _make_roofline(folder: Path) -> None:
    (folder / "engine.yaml").write_text(json_text(ROOFLINE))
    (folder / "points.csv").write_text(POINTS)


def check_profile(folder: Path, found: Any, good: Any) -> None:
    """Sizes rise, times are times, graphs are those of the header, and every size has a price."""
    keys = [(row.batch or 0, row.kv_prefix_tokens, row.packed_tokens_total) for row in found.verify]
    assert all(low < high for low, high in itertools.pairwise(keys))
    drafts = [(row.batch, row.kv_prefix_tokens) for row in found.draft]
    assert all(low < high for low, high in itertools.pairwise(drafts))
    prompts = [row.prompt_tokens for row in found.prefill]
    assert all(low < high for low, high in itertools.pairwise(prompts))
    times = [row.verify_ms for row in found.verify] + [row.draft_ms for row in found.draft]
    assert all(0 < ms < math.inf for ms in times + [row.prefill_ms for row in found.prefill])
    captured = {row.packed_tokens_total for row in found.verify if row.captured}
    assert captured == set(found.header.graph_sizes)
    _check_prices(StepCost(found), found)


def _check_prices(cost: StepCost, profile: Any) -> None:
    """A measured step costs what was measured."""
    for row in profile.verify:
        batch = row.batch or 1
        if batch > 10_000 or row.packed_tokens_total % batch:
            continue
        packed = np.full(batch, row.packed_tokens_total // batch)
        step = cost.step(
            packed, np.full(batch, row.kv_prefix_tokens), drafted=packed[0] > 1, tree=False
        )
        if row.batch is not None:
            assert math.isclose(step.verify_s, row.verify_ms * 1e-3, rel_tol=1e-9), row
        assert 0 <= step.draft_s < math.inf


def _read_engine(folder: Path) -> StepCost:
    """What `latency=engine.yaml` prices with, by way of the words that Hydra is given."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    with chdir(folder):
        words = overrides_of("engine.yaml")
        try:
            overrides = OverridesParser.create().parse_overrides(words)
        except Exception as error:  # as the command line tells them
            line = one_line(error)
            if line is None:
                raise
            raise InputError(line) from None
        node: dict[str, Any] = {}
        for override in overrides:
            first, *keys = override.key_or_group.split(".")
            assert first == "latency", override.input_line
            assert keys, override.input_line
            assert override.package is None, override.input_line
            at = node
            for key in keys[:-1]:
                at = at.setdefault(key, {})
            at[keys[-1]] = override.value()
        assert "${" not in repr(node)
        return build_step_cost({key: _plain(value) for key, value in node.items()})


def _plain(value: Any) -> Any:
    """Strings as they are in a composed configuration."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    text = getattr(value, "text", None)  # of a quoted one
    return value if text is None else text


def _check_cost(folder: Path, found: StepCost, good: StepCost) -> None:
    """A finite price above 0 for a small step, alone and in a batch."""
    for batch, width in ((1, 1), (1, 8), (3, 4)):
        step = found.step(np.full(batch, width), np.full(batch, 512), drafted=width > 1, tree=False)
        assert 0 < step.total_s < math.inf
    assert found.profile.name != "" or good.profile.name == ""


_read = of_file(read_profile, "toy.csv")
TARGETS = [
    Target("latency profile", make_profile, ("*",), _read, check_profile),
    Target("latency=FILE.yaml", _make_engine, ("engine.yaml",), _read_engine, _check_cost),
    Target("roofline", _make_roofline, ("*",), _read_engine, _check_cost),
]
