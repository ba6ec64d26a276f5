"""Files of the live side: prompts, and the folder of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from real_runner.checkpoints.files import open_checkpoint
from real_runner.serving.prompts import read_prompts
from tests.fuzz.cases import Target
from tests.fuzz.tensors import safetensors_damaged
from tests.fuzz.trees import json_damaged

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
    """Every file it would open lies in the folder."""
    for path, shape in found.tensors.values():
        assert path.resolve().parent == folder.resolve()
        assert all(isinstance(size, int) for size in shape)
    assert isinstance(found.config, dict)


def _check_prompts(folder: Path, found: Any, good: Any) -> None:
    lines = (folder / "prompts.jsonl").read_bytes().split(b"\n")
    assert len(found) == sum(1 for line in lines if line.removeprefix(b"\xef\xbb\xbf").strip())
    for one in found:
        assert one.text.strip()
        one.text.encode()
        assert one.seed is None or 0 <= one.seed < 2**63


TARGETS = [
    Target(
        "checkpoint",
        _make_checkpoint,
        {"*.json": json_damaged, "*.safetensors": safetensors_damaged},
        lambda folder: open_checkpoint(str(folder), "target"),
        _check_checkpoint,
    ),
    Target(
        "prompts",
        lambda folder: (folder / "prompts.jsonl").write_text(PROMPTS),
        {"*.jsonl": json_damaged},
        lambda folder: read_prompts(folder / "prompts.jsonl"),
        _check_prompts,
    ),
]
