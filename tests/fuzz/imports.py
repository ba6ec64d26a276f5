"""Files of other programs: imported whole, or refused with nothing left behind."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from simulator.cost import read_profile
from tests.fuzz.cases import TRAP, Damage, Target, command
from tests.fuzz.damage import damaged
from tests.fuzz.profiles import check_profile
from tests.fuzz.recordings import check_recording
from tests.fuzz.trees import json_damaged, tree_damaged
from traces.__main__ import main
from traces.importers.points import read_points
from traces.recordings.files import read_recording

FACTS = ("--hardware", "h", "--model", "m", "--num-gpus", "1", "--dtype", "d", "--source", "s")
PROBE = {"verify_ms": {"1024": {"1": 20.5, "16": 30}, "512": {"1": 19}}, "draft_ms": 2, "gpu": "x"}
BATCHED = {"1": {"0": 5.0, "7": 6.5}, "16": {"7": 9}}
COST = {"1": {"1": 5.0, "7": 6.5}, "16": {"7": 9}}
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


def _imported(name: str, out: str, *words: str):
    """Import the file `in`, and read what came out."""

    def read(folder: Path) -> Any:
        command(main, "import", name, folder / "in", "--out", folder / out, *words)
        path = folder / out
        if path.suffix == ".safetensors":
            return read_recording(path)
        return read_profile(path) if path.suffix == ".csv" else read_points(path)

    return read


def _make(content: Any):
    return lambda folder: (folder / "in").write_text(json.dumps(content))


def _check_times(count):
    """As many times as the file has, each of them its own."""

    def check(folder: Path, found: Any, good: Any) -> None:
        check_profile(folder, found, good)
        assert len(found.verify) == count(json.loads((folder / "in").read_text("utf-8-sig")))

    return check


def _of_probe(node: dict) -> int:
    held = node.get("verify_ms", node)
    return sum(len(by_size) for by_size in held.values())


def _check_traces(folder: Path, found: Any, good: Any) -> None:
    """Sums over the file's rounds."""
    rows = json.loads((folder / "in").read_text("utf-8-sig"))["rows"]
    (point,) = found.points
    lengths = [length for row in rows for length in row["accepted_lens"]]
    sizes = [size for row in rows for size in row["tree_sizes"]]
    assert point.facts["rounds"] == len(lengths) == len(sizes)
    assert np.isclose(point.metrics["acceptance_length"], sum(lengths) / len(lengths))
    assert all(1 <= length <= size + 1 for length, size in zip(lengths, sizes))


def _check_accepted(folder: Path, found: Any, good: Any) -> None:
    """Every position counts once."""
    (point,) = found.points
    text = (folder / "in").read_text("utf-8-sig")
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


def _saved(content: Any, old: bool = False) -> bytes:
    import torch

    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=not old)
    return file.getvalue()


class _Trap:
    """Unpickled, it would run a command."""

    def __reduce__(self):
        return Path.touch, (Path(TRAP),)


def _plain(item: dict) -> dict:
    return {key: x.tolist() if hasattr(x, "tolist") else x for key, x in item.items()}


def _torch_damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes changed, in either of torch's two formats, or other content."""
    import torch

    chance = rng.random()
    if chance < 0.4:
        return damaged(data if chance < 0.2 else _saved(_rounds(), old=True), rng)
    if chance < 0.45:
        return _saved([*_rounds(), _Trap()], old=chance < 0.43)
    content = _rounds()
    item = content[int(rng.integers(3))]
    key = list(item)[int(rng.integers(4))]
    if chance < 0.6:
        odd = (
            torch.tensor(float("nan")), torch.zeros(0), torch.zeros(2, 4, dtype=torch.bool),
            torch.full((2, 4), 2**62), torch.zeros(2, 4).to_sparse(), torch.zeros(2, 4).cfloat(),
            torch.zeros(2, 4, dtype=torch.bfloat16), torch.zeros(1).expand(2**20, 2**12),
            torch.full((2, 4), float("inf")), torch.zeros(2, 4, 1), torch.zeros(2, 4).t(), 10**5000,
            torch.nn.Parameter(torch.zeros(2, 4)), torch.zeros(2, 4, dtype=torch.uint8),
        )  # fmt: skip
        item[key] = odd[int(rng.integers(len(odd)))]
        return _saved(content)
    changed = tree_damaged([_plain(one) for one in content], rng)
    if isinstance(changed, list) and rng.random() < 0.1:
        changed = [one | {10**5000: 1} if isinstance(one, dict) else one for one in changed]
    try:
        return _saved(changed)
    except (RecursionError, UnicodeEncodeError):  # torch writes neither
        return damaged(data, rng)


def _check_rounds(folder: Path, found: Any, good: Any) -> None:
    check_recording(folder, found, good)
    assert (found["seq_accepted"] <= found["seq_realised"]).all()
    assert (found["seq_realised"] <= found.depths).all()


def _target(name: str, out: str, content: Any, check, *words: str, label: str = "") -> Target:
    damage: dict[str, Damage] = {"in": json_damaged}
    read = _imported(name, out, *words)
    return Target(f"import {label or name}", _make(content), damage, read, check)


TARGETS = [
    _target(
        "cast-probe", "o.csv", PROBE, _check_times(_of_probe), *FACTS, "--layout", "single",
        label="cast-probe single",
    ),
    _target(
        "cast-probe", "o.csv", BATCHED, _check_times(_of_probe), *FACTS, "--layout", "batched",
        "--context", "64", "--draft-ms", "2", label="cast-probe batched",
    ),
    _target(
        "treespark-cost", "o.csv", COST, _check_times(_of_probe), *FACTS, "--context", "64",
        "--draft-ms", "2",
    ),
    _target("treespark-traces", "o.json", TRACES, _check_traces),
    _target("accepted-list", "o.json", ACCEPTED, _check_accepted),
    _target("vllm-result", "o.json", RESULT, _check_points),
    Target(
        "import cast-rounds",
        lambda folder: (folder / "in").write_bytes(_saved(_rounds())),
        {"in": _torch_damaged},
        _imported("cast-rounds", "o.safetensors"),
        _check_rounds,
    ),
]  # fmt: skip
