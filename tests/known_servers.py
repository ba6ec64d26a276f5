"""Servers whose capacity is known by hand, as files: recordings of equal texts, simple profiles."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import yaml

from tests.synthetic import make_geometric
from tests.test_profiles import HEADER
from traces import write_recording

STEP_MS = 10.0


def write_texts(folder: Path, length: int, alpha: float = 0.5, **changes) -> str:
    """A recording whose texts all have `length` outputs: none takes longer than another."""
    recording = make_geometric(alpha, np.random.default_rng(0), length=length, **changes)
    path = folder / "texts.safetensors"
    write_recording(path, recording.meta, recording.arrays)
    return str(path)


def write_steps(folder: Path, ms_of_batch: dict[int, float], name: str = "steps") -> str:
    """A profile of plain steps: milliseconds by requests in the step."""
    lines = [f"{batch},1,{ms},eager" for batch, ms in ms_of_batch.items()]
    verify = "\n".join(["batch,packed_tokens_per_request,verify_ms,regime", *lines]) + "\n"
    return _write(folder, name, verify, {"kv_prefix_tokens": 512})


def write_constant(folder: Path, ms: float = STEP_MS, name: str = "constant") -> str:
    """A profile whose steps take `ms`, whatever is in them; drafting costs next to nothing."""
    lines = [f"{tokens},{ms},eager" for tokens in (1, 64, 8192)]
    verify = "\n".join(["packed_tokens_total,verify_ms,regime", *lines]) + "\n"
    return _write(folder, name, verify, {"kv_prefix_tokens": 512, "batch": "any"})


def _write(folder: Path, name: str, verify: str, fixed: dict) -> str:
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({**HEADER, "fixed": fixed}))
    (folder / f"{name}.csv").write_text(verify)
    (folder / f"{name}.draft.csv").write_text("batch,draft_ms\n1,1e-6\n64,1e-6\n")
    return str(folder / f"{name}.csv")


def read_json(path: str) -> dict:
    return json.loads(Path(path).read_text())


def rows(path: str) -> list[dict]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))
