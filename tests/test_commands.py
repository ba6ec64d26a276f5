"""Commands as users type them, of every task, group, import and format: their numbers stay.

`commands.json` is the table. An entry has a name, the words after `python -m` and what must come
out: of each file named in `files` (`{}` stands for the name of a row) the values at `keys`, and the
numbers in the printed line that begins with each name in `printed`. Where `from` is there, it says
where the numbers can be had without this program; all others came out of it when they were first
written down, and a change of one has to be explained. Commands share a folder, and `after` names
those whose files they read.

`PYTHONPATH=. python tests/test_commands.py` writes the numbers of today into the table, but for
entries with `from`.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import runpy
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet as parquet
import pytest
import yaml
from safetensors.numpy import load_file

from tests.synthetic import make_geometric, make_hidden, make_pool
from traces import write_recording

TABLE = Path(__file__).with_name("commands.json")
TEXT = TABLE.read_text(encoding="utf-8") if TABLE.exists() else '{"inputs": {}, "commands": []}'
INPUTS, COMMANDS = json.loads(TEXT).values()
BY_NAME = {entry["name"]: entry for entry in COMMANDS}
CONF = TABLE.parents[1] / "conf"
DEFAULTS = {"default", "recorded"}
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
BORDER = re.compile(r"[\s|&]+")


class Place:
    """A folder with inputs, and the commands that were run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, {}
        (folder / "said").mkdir()
        for name, lines in INPUTS.items():
            (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        for name, recording in recordings():
            write_recording(folder / f"{name}.safetensors", recording.meta, recording.arrays)

    def run(self, name: str) -> str:
        """What the command prints; it and what it comes after are run once."""
        if name not in self.said:
            entry = BY_NAME[name]
            for before in entry.get("after", ()):
                self.run(before)
            status, self.said[name], errors = started(entry["words"], self.folder)
            assert status == entry.get("status", 0), errors
            (self.folder / f"said/{name}.csv").write_text(self.said[name], encoding="utf-8")
        return self.said[name]

    def found(self, entry: dict[str, Any]) -> Iterator[tuple[str, str, Any, Any]]:
        """(table, row, keys or None, what came out) of an entry."""
        said = self.run(entry["name"]).splitlines()
        lines = [" ".join(BORDER.split(line)).strip() for line in said]
        for row in entry.get("printed", {}):
            line = next((line for line in lines if line.startswith(f"{row} ")), row)
            numbers = NUMBER.findall(line[len(row) :])
            yield "printed", row, None, [float(number.replace(",", "")) for number in numbers]
        for pattern, wanted in entry.get("files", {}).items():
            for row in wanted["rows"]:
                values = read(self.folder / pattern.format(row))
                yield pattern, row, wanted["keys"], [values.get(key) for key in wanted["keys"]]


def recordings() -> Iterator[tuple[str, Any]]:
    """Small recordings of every kind."""
    size = {"sequences": 12, "depths": 7, "lengths": [30] * 12}
    for heat in (0, 1):
        rng = np.random.default_rng(heat)
        yield f"semi_t{heat}", make_hidden(rng, temperature=float(heat), **size)
        yield f"block_t{heat}", make_pool(rng, temperature=float(heat), noise=0.3, **size)
    yield "geometric", make_geometric(0.7, np.random.default_rng(3), sequences=12, length=200)


def started(words: list[str], folder: Path) -> tuple[Any, str, str]:
    """Exit status and what is printed by `python -m ...` in a folder."""
    out, errors = io.StringIO(), io.StringIO()
    here = {"SPECSIM_CACHE": str(folder / "orders"), "COLUMNS": "200"}
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, here),
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        pytest.raises(SystemExit) as end,
    ):
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    return end.value.code or 0, out.getvalue(), errors.getvalue()


def read(path: Path) -> dict[str, Any]:
    """Values of a file by dotted keys; of columns and arrays their sums."""
    if path.suffix == ".parquet":
        table = parquet.read_table(path).to_pandas().select_dtypes("number")
        return {"rows": len(table), **{name: float(table[name].sum()) for name in table}}
    if path.suffix == ".safetensors":
        return {name: float(array.sum(dtype=float)) for name, array in load_file(path).items()}
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        rows = csv.DictReader(io.StringIO(text))
        return dict(flat([{key: number(cell) for key, cell in row.items()} for row in rows]))
    if path.suffix == ".txt":
        return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return dict(flat(json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)))


def flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything in nested mappings and lists."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for name, one in inner:
        if isinstance(one, dict | list):
            yield from flat(one, f"{key}{name}.")
        else:
            yield f"{key}{name}", one


def number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    return Place(tmp_path_factory.mktemp("commands"))


@pytest.mark.parametrize("name", BY_NAME)
def test_the_numbers_of_a_command(place, name):
    entry = BY_NAME[name]
    if entry["words"][0] == "real_runner":
        pytest.importorskip("torch")
    for table, row, keys, found in place.found(entry):
        expected = entry["printed"][row] if keys is None else entry["files"][table]["rows"][row]
        within = {"rel": entry.get("within", 1e-9), "abs": 1e-12}
        close = [pytest.approx(v, **within) if isinstance(v, int | float) else v for v in expected]
        assert found == close, (table, row, keys)


@pytest.mark.parametrize("group", ["policy", "latency", "server", "workload"])
def test_every_option_of_a_group_is_in_some_command(group):
    told = json.dumps(COMMANDS)
    options = {path.stem for path in (CONF / group).glob("*.yaml")}
    assert options
    assert not {option for option in options - DEFAULTS if not re.search(rf"\b{option}\b", told)}


def write(folder: Path) -> None:
    """Put the numbers of today into the table."""
    place = Place(folder)
    for entry in COMMANDS:
        print(entry["name"], file=sys.stderr)
        for table, row, keys, found in place.found(entry):
            if "from" not in entry:
                rows = entry["printed"] if keys is None else entry["files"][table]["rows"]
                rows[row] = found
    entries = ",\n".join(json.dumps(entry) for entry in COMMANDS)
    TABLE.write_text(f'{{"inputs": {json.dumps(INPUTS)},\n"commands": [\n{entries}\n]}}\n')


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
