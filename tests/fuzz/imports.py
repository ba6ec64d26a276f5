"""Files of other programs: imported whole, or refused with nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from simulator.cost import read_profile
from tests.fuzz.cases import Target, command
from tests.fuzz.formats import torch_saved
from tests.fuzz.profiles import check_profile
from tests.fuzz.recordings import check_recording
from traces.__main__ import main
from traces.importers.points import read_points
from traces.recordings.files import read_recording

IN = "in.json"
FACTS = ("--hardware", "h", "--model", "m", "--num-gpus", "1", "--dtype", "d", "--source", "s")
PROBE = {"verify_ms": {"1024": {"1": 20.5, "16": 30}, "512": {"1": 19}}, "draft_ms": 2, "gpu": "x"}
BATCHED = {"1": {"2": 5.0, "7": 6.5}, "16": {"7": 9}}
TRACES = {"rows": [{"tree_sizes": [4, 8], "accepted_lens": [3, 1]}, {"tree_sizes": [2],
          "accepted_lens": [2]}]}  # fmt: skip
ACCEPTED = [2, 5, 5, 0, 3]
RESULT = {
    "model_id": "m",
    "request_rate": "inf",
    "max_concurrency": 4,
    "output_throughput": 400.0,
    "mean_ttft_ms": 50,
    "p99.9_itl_ms": 8.5,
    "completed": 10,
    "num_prompts": 10,
    "date": "20260101",
}


def _imported(name: str, file: str, out: str, *words: str):
    """Import the file, and read what came out."""

    def read(folder: Path) -> Any:
        command(main, "import", name, folder / file, "--out", folder / out, *words)
        path = folder / out
        if path.suffix == ".safetensors":
            return read_recording(path)
        return read_profile(path) if path.suffix == ".csv" else read_points(path)

    return read


def _check_times(folder: Path, found: Any, good: Any) -> None:
    """As many times as the file has, each of them its own."""
    check_profile(folder, found, good)
    node = json.loads((folder / IN).read_text("utf-8-sig"))
    assert len(found.verify) == sum(map(len, node.get("verify_ms", node).values()))


def _check_traces(folder: Path, found: Any, good: Any) -> None:
    """Sums over the file's rounds."""
    rows = json.loads((folder / IN).read_text("utf-8-sig"))["rows"]
    (point,) = found.points
    lengths = [length for row in rows for length in row["accepted_lens"]]
    sizes = [size for row in rows for size in row["tree_sizes"]]
    assert point.facts["rounds"] == len(lengths) == len(sizes)
    assert np.isclose(point.metrics["acceptance_length"], sum(lengths) / len(lengths))
    assert all(1 <= length <= size + 1 for length, size in zip(lengths, sizes))


def _check_accepted(folder: Path, found: Any, good: Any) -> None:
    """Every position counts once."""
    (point,) = found.points
    text = (folder / IN).read_text("utf-8-sig")
    values = json.loads(text) if text.lstrip().startswith("[") else list(map(int, text.split()))
    assert point.facts["positions"] == len(values)
    mean = 1 + sum(values) / len(values)
    assert np.isclose(point.metrics["acceptance_length_over_positions"], mean)
    assert 1 <= point.facts["rounds"] <= len(values)


def _check_points(folder: Path, found: Any, good: Any) -> None:
    for point in found.points:
        assert point.metrics
        assert all(0 <= value < 1e300 for value in point.metrics.values())
        assert point.max_concurrency is None or point.max_concurrency >= 1


def _rounds() -> list[dict]:
    import torch

    idx = torch.arange(8).reshape(2, 4)
    content = {"top_idx": idx, "top_val": -idx.float(), "realized": [0, 5], "accepted": 1}
    return [dict(content) for _ in range(3)]


def _check_rounds(folder: Path, found: Any, good: Any) -> None:
    check_recording(folder, found, good)
    assert (found["seq_accepted"] <= found["seq_realised"]).all()
    assert (found["seq_realised"] <= found.depths).all()


def _target(name: str, out: str, content: Any, check, *words: str, label: str = "") -> Target:
    return Target(
        f"import {label or name}",
        lambda folder: (folder / IN).write_text(json.dumps(content)),
        (IN,),
        _imported(name, IN, out, *words),
        check,
    )


SINGLE = (*FACTS, "--layout", "single")
AT = (*FACTS, "--context", "64", "--draft-ms", "2")
TARGETS = [
    _target("cast-probe", "o.csv", PROBE, _check_times, *SINGLE, label="cast-probe single"),
    _target(
        "cast-probe", "o.csv", BATCHED, _check_times, *AT, "--layout", "batched",
        label="cast-probe batched",
    ),
    _target("treespark-cost", "o.csv", BATCHED, _check_times, *AT),
    _target("treespark-traces", "o.json", TRACES, _check_traces),
    _target("accepted-list", "o.json", ACCEPTED, _check_accepted),
    _target("vllm-result", "o.json", RESULT, _check_points),
    Target(
        "import cast-rounds",
        lambda folder: (folder / "in.pt").write_bytes(torch_saved(_rounds())),
        ("in.pt",),
        _imported("cast-rounds", "in.pt", "o.safetensors"),
        _check_rounds,
    ),
]  # fmt: skip
