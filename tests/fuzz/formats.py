"""Damage to files by their suffix: a file is a tree of plain values in one way of writing it."""

from __future__ import annotations

import csv
import io
import json
import struct
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tests.fuzz.damage import TWICE, bytes_damaged, json_text, pick, tree_damaged
from traces.common.json import check_depth
from traces.common.yaml import load_yaml

TRAP = "trapped"  # what code in a file would make, in the working folder
BOMBS = (
    "a: &a [x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
    + "".join(f"{k}: &{k} [{', '.join(['*' + c] * 9)}]\n" for c, k in zip("bcdefghi", "cdefghij")),
    "a: &a\n  b: *a\n",
    "x: &x {y: *x}\nprofile: *x\n",
    "? [a, b]\n: 1\n",
    f"!!python/object/apply:os.mkdir ['{TRAP}']\n",
    "a: !!timestamp x\n",
    "a: !!int ''\n",
    "a: 2001-99-99\n",
    "!!set {a, b}\n",
    "--- a\n--- b\n",
)
# What writers refuse to write of a damaged tree; the file's bytes are damaged then.
UNWRITABLE = (
    *(TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError),
    *(pyarrow.ArrowException, SafetensorError, csv.Error),
)


def file_damaged(name: str, data: bytes, rng: np.random.Generator) -> bytes:
    """The file with damage to its bytes or to the values that it holds."""
    if rng.random() < 0.3:
        return bytes_damaged(data, rng)
    try:
        return FORMATS[Path(name).suffix](data, rng)
    except UNWRITABLE:
        return bytes_damaged(data, rng)


def _json(data: bytes, rng: np.random.Generator) -> bytes:
    return json_text(tree_damaged(json.loads(data), rng)).encode()


def _json_lines(data: bytes, rng: np.random.Generator) -> bytes:
    nodes = tree_damaged([json.loads(line) for line in data.splitlines()], rng)
    return "\n".join(map(json_text, nodes)).encode()


def _yaml(data: bytes, rng: np.random.Generator) -> bytes:
    if rng.random() < 0.15:
        return pick(BOMBS, rng).encode() + (data if rng.random() < 0.5 else b"")
    return json_text(tree_damaged(load_yaml(data.decode()), rng)).encode()


def _turned(rows: list[list]) -> list[list]:
    """Columns of rows, or rows of columns; what is missing is None."""
    return [list(row) for row in zip_longest(*rows)]


def _csv(data: bytes, rng: np.random.Generator) -> bytes:
    rows = list(csv.reader(io.StringIO(data.decode())))
    rows = (
        tree_damaged(rows, rng) if rng.random() < 0.5 else _turned(tree_damaged(_turned(rows), rng))
    )
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


def _parquet(data: bytes, rng: np.random.Generator) -> bytes:
    columns = parquet.read_table(io.BytesIO(data), use_threads=False).to_pydict()
    if rng.random() < 0.2:  # whole rows
        columns = dict(zip(columns, _turned(tree_damaged(_turned(list(columns.values())), rng))))
    else:
        columns = tree_damaged(columns, rng)
        columns = dict(zip(columns, _turned(_turned(list(columns.values())))))
    check_depth(list(columns.values()))  # Arrow takes all memory for a list in thousands of others
    names = [name.removesuffix(TWICE) for name in columns]
    written = io.BytesIO()
    parquet.write_table(pyarrow.table([*map(_column, columns.values())], names=names), written)
    return written.getvalue()


def _column(values: list) -> pyarrow.Array:
    try:
        return pyarrow.array(values)
    except UNWRITABLE:
        return pyarrow.array([None if value is None else str(value) for value in values])


TYPES = (
    "BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "I16", "U16", "F16", "BF16", "I32", "U32", "F32",
    "I64", "U64", "F64", "C64", "F4", "X9", "", None,
)  # fmt: skip
DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "int64", "uint64", "float16",
          "float32", "float64")  # fmt: skip
LENGTHS = (0, 1, 8, 2**20, 2**40, 2**63 - 1)


def parts(data: bytes) -> tuple[dict, bytes]:
    """The header of a safetensors file as JSON, and the bytes behind it."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header: dict, body: bytes) -> bytes:
    """A safetensors file."""
    raw = json_text(header).encode()
    return struct.pack("<Q", len(raw)) + raw + body


def _safetensors(data: bytes, rng: np.random.Generator) -> bytes:
    """Its header, the JSON in its metadata, or its arrays, which stay well-formed then."""
    header, body = parts(data)
    kind = rng.random()
    if kind < 0.02:
        return struct.pack("<Q", pick(LENGTHS, rng)) + data[8:]
    if kind < 0.1:
        entry = pick([one for name, one in header.items() if name != "__metadata__"], rng)
        entry["dtype"] = pick(TYPES, rng)
        return joined(header, body)
    if kind < 0.2:
        return joined(tree_damaged(header, rng), body)
    texts = header.get("__metadata__", {})
    if texts and kind < 0.35:
        held = tree_damaged({key: json.loads(text) for key, text in texts.items()}, rng)
        texts = {key: json_text(value) for key, value in held.items()}
        return joined({**header, "__metadata__": texts}, body)
    arrays = dict(sorted(load(data).items()))
    damaged = tree_damaged({name: array.tolist() for name, array in arrays.items()}, rng)
    changed = pick([*damaged], rng) if rng.random() < 0.1 else None
    for name, values in damaged.items():
        dtype = arrays[name].dtype if name in arrays else np.asarray(values).dtype
        with np.errstate(all="ignore"):
            array = np.asarray(values).astype(pick(DTYPES, rng) if name == changed else dtype)
        damaged[name] = array.reshape(0, *arrays[name].shape[1:]) if not array.size else array
    return save(damaged, texts or None)


class Trap:
    """Unpickled, it would make a file."""

    def __reduce__(self):
        return Path.touch, (Path(TRAP),)


def torch_saved(content: Any, old: bool = False) -> bytes:
    """A torch file, in either of its two formats."""
    import torch

    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=not old)
    return file.getvalue()


def _torch(data: bytes, rng: np.random.Generator) -> bytes:
    """A list of dicts: in the older format, with a trap, an odd tensor, or other values."""
    import torch

    content, kind = torch.load(io.BytesIO(data), weights_only=True), rng.random()
    if kind < 0.2:
        return bytes_damaged(torch_saved(content, old=True), rng)
    if kind < 0.3:
        return torch_saved([*content, Trap()], old=kind < 0.25)
    item = pick(content, rng)
    if kind < 0.5:
        item[pick(list(item), rng)] = pick((
            torch.tensor(float("nan")), torch.zeros(0), torch.zeros(2, 4, dtype=torch.bool),
            torch.full((2, 4), 2**62), torch.zeros(2, 4).to_sparse(), torch.zeros(2, 4).cfloat(),
            torch.zeros(2, 4, dtype=torch.bfloat16), torch.zeros(1).expand(2**20, 2**12),
            torch.full((2, 4), float("inf")), torch.zeros(2, 4, 1), torch.zeros(2, 4).t(), 10**5000,
            torch.nn.Parameter(torch.zeros(2, 4)), torch.zeros(2, 4, dtype=torch.uint8),
        ), rng)  # fmt: skip
        return torch_saved(content)
    plain = [
        {k: x.tolist() if hasattr(x, "tolist") else x for k, x in one.items()} for one in content
    ]
    return torch_saved(tree_damaged(plain, rng))


FORMATS = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".yaml": _yaml,
    ".csv": _csv,
    ".parquet": _parquet,
    ".safetensors": _safetensors,
    ".pt": _torch,
}
