"""Files of the live side: prompts, samples of a probe, and the folder of a checkpoint."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from real_runner.models.hub.files import open_checkpoint
from real_runner.probing.grid import PrefillCell, Samples, StepCell
from real_runner.probing.store import Store
from real_runner.serving.prompts import read_prompts
from tests.fuzz.cases import Target, of_file

PROMPTS = """{"prompt": "Why?", "domain": "chat", "max_new_tokens": 8, "seed": 3}
{"question": "How?", "category": "code"}
{"turns": ["When?", "And then?"]}
"""
PARTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"


def _make_checkpoint(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"hidden_size": 4, "num_hidden_layers": 1}))
    for number, part in enumerate(PARTS):
        (folder / part).write_bytes(save({f"w{number}": np.zeros((2, 4), np.float32)}))
    weights = {f"w{number}": part for number, part in enumerate(PARTS)}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weights}))


def _check_checkpoint(folder: Path, found: Any, good: Any) -> None:
    """Every file it would open lies in the folder, and every tensor is read or refused."""
    for path, shape in found.tensors.values():
        assert path.resolve().parent == folder.resolve()
        assert all(type(size) is int and size >= 0 for size in shape)
    assert isinstance(found.config, dict)
    assert len(found.sha256()) == 64


def _check_prompts(folder: Path, found: Any, good: Any) -> None:
    lines = (folder / "prompts.jsonl").read_bytes().split(b"\n")
    assert len(found) == sum(1 for line in lines if line.removeprefix(b"\xef\xbb\xbf").strip())
    for one in found:
        assert one.text.strip()
        one.text.encode()
        assert one.seed is None or 0 <= one.seed < 2**63


_STORE, _SETTINGS = "x.partial.jsonl", {"device": "cpu", "batches": [1, 2]}


def _make_store(folder: Path) -> None:
    with Store(folder / _STORE, _SETTINGS) as store:
        store.add(StepCell(1, 64, 4), 0, Samples((0.1, 0.2), (0.05,)))
        store.add(PrefillCell(64), 0, Samples(prefill_s=(0.3,)))
        store.skip(StepCell(2, 64, 512), "out of memory")


def _read_store(folder: Path) -> tuple[dict, dict]:
    with Store(folder / _STORE, _SETTINGS) as store:
        return store.kept(), store.skipped


def _check_store(folder: Path, found: Any, good: Any) -> None:
    kept, skipped = found
    for samples in kept.values():
        times = (*samples.verify_s, *samples.draft_s, *samples.prefill_s)
        assert all(0 <= seconds < math.inf for seconds in times)
    for cell in (*kept, *skipped):
        sizes = (getattr(cell, name) for name in cell.__slots__)
        assert all(type(size) is int and size >= 0 for size in sizes)


def _open(folder: Path) -> Any:
    return open_checkpoint(str(folder), "target")


def _make_prompts(folder: Path) -> None:
    (folder / "prompts.jsonl").write_text(PROMPTS)


_read_prompts = of_file(read_prompts, "prompts.jsonl")
TARGETS = [
    Target("probe store", _make_store, (_STORE,), _read_store, _check_store),
    Target("checkpoint", _make_checkpoint, ("*",), _open, _check_checkpoint),
    Target("prompts", _make_prompts, ("*",), _read_prompts, _check_prompts),
]
