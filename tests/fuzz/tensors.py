"""Damage to safetensors files: their header, their metadata, and the numbers behind it."""

from __future__ import annotations

import json
import struct

import numpy as np
from safetensors.numpy import load, save

from tests.fuzz.damage import damaged
from tests.fuzz.trees import ODD, json_text, tree_damaged

TYPES = (
    "BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "I16", "U16", "F16", "BF16", "I32", "U32", "F32",
    "I64", "U64", "F64", "C64", "F4", "X9", "", None,
)  # fmt: skip
VALUES = (-1, 0, 1, 2, 127, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**62, 1e-30, 0.5, 1e4, 1e30, 1e300)
NOT_NUMBERS = (np.nan, np.inf, -np.inf)
DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "int64", "uint64", "float16",
          "float32", "float64")  # fmt: skip


def safetensors_damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes, header or content changed; content changes keep the file well-formed."""
    chance = rng.random()
    if chance < 0.15:
        return damaged(data, rng)
    if chance < 0.3:
        return _header_damaged(data, rng)
    if chance < 0.5:
        return _metadata_damaged(data, rng)
    return _content_damaged(data, rng)


def parts(data: bytes) -> tuple[dict, bytes]:
    """The header as JSON, and the bytes behind it."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header: dict, body: bytes) -> bytes:
    raw = json_text(header).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(raw)) + raw + body


def _header_damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Types, shapes and offsets that are not those of the bytes; lengths that are no lengths."""
    header, body = parts(data)
    kind = int(rng.integers(5))
    if kind == 0:
        return struct.pack("<Q", int(rng.choice([0, 1, 8, 2**20, 2**40, 2**63 - 1]))) + data[8:]
    if kind == 1:
        return joined(tree_damaged(header, rng), body)
    names = [name for name in header if name != "__metadata__"]
    name, other = (names[int(rng.integers(len(names)))] for _ in range(2))
    entry = dict(header[name])
    if kind == 2:
        entry["dtype"] = TYPES[int(rng.integers(len(TYPES)))]
    elif kind == 3:
        shape = list(entry["shape"])
        odd = (0, -1, 2**31, 2**62, 2**64, 1, 10**30)[int(rng.integers(7))]
        shapes = (shape[::-1], [*shape, 1], shape[1:], [odd, *shape[1:]], [2**32, 2**32], [])
        entry["shape"] = shapes[int(rng.integers(len(shapes)))]
    else:
        low, high = entry["data_offsets"]
        far = int(rng.choice([1, 8, len(body), 2**40]))
        pairs = ([low + far, high + far], [high, low], [low, low], [-8, high], [low, high + far],
                 header[other]["data_offsets"])  # fmt: skip
        entry["data_offsets"] = pairs[int(rng.integers(len(pairs)))]
    return joined({**header, name: entry}, body)


def _metadata_damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """The JSON text inside the header."""
    header, body = parts(data)
    held = header.get("__metadata__", {})
    if not held or rng.random() < 0.1:
        return joined({**header, "__metadata__": ODD[int(rng.integers(len(ODD)))]}, body)
    key = list(held)[int(rng.integers(len(held)))]
    if rng.random() < 0.15:
        text = damaged(held[key].encode(), rng).decode("utf-8", "replace")
    else:
        text = json_text(tree_damaged(json.loads(held[key]), rng))
    return joined({**header, "__metadata__": {**held, key: text}}, body)


def _content_damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Arrays with other numbers, types or shapes, gone, or more of them."""
    arrays = {name: array.copy() for name, array in sorted(load(data).items())}
    for _ in range(int(rng.integers(1, 3))):
        name = list(arrays)[int(rng.integers(len(arrays)))]
        arrays = _array_damaged(arrays, name, rng) or arrays
    return save(arrays, parts(data)[0].get("__metadata__"))


def _array_damaged(arrays: dict, name: str, rng: np.random.Generator) -> dict:
    kind, array = int(rng.integers(10)), arrays[name]
    if kind < 5 and array.size:
        return {**arrays, name: _value_damaged(array, rng)}
    if kind == 5:
        return {key: held for key, held in arrays.items() if key != name}
    if kind == 6:
        with np.errstate(all="ignore"):
            return {**arrays, name: array.astype(DTYPES[int(rng.integers(len(DTYPES)))])}
    if kind == 7:
        shapes = (array[:0], array[:-1], array.reshape(-1), array[None], array.T)
        return {**arrays, name: np.ascontiguousarray(shapes[int(rng.integers(5))])}
    if kind == 8:
        names = ("seq_x", "anchor_x", "output_x", "x", "", "../x", "confidence", "target_margin",
                 "head", "a\nb")  # fmt: skip
        return {**arrays, names[int(rng.integers(len(names)))]: array}
    other = list(arrays)[int(rng.integers(len(arrays)))]
    return {**arrays, name: arrays[other], other: array}


def _value_damaged(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One entry, two that change places or become one, a row, or a whole array."""
    flat = array.reshape(-1).copy()
    at, other = (int(rng.integers(flat.size)) for _ in range(2))
    kind = int(rng.integers(6))
    with np.errstate(all="ignore"):
        if kind == 0 and array.dtype.kind == "f" and rng.random() < 0.5:
            flat[at] = NOT_NUMBERS[int(rng.integers(3))]
        elif kind == 0:
            flat[at] = np.array(VALUES[int(rng.integers(len(VALUES)))]).astype(array.dtype)
        elif kind == 1:
            flat[[at, other]] = flat[[other, at]]
        elif kind == 2:
            step = np.array(int(rng.choice([1, -1, 3]))).astype(array.dtype)
            flat[at] = (flat[at] + step).astype(array.dtype)
        elif kind == 3:
            flat[at] = flat[at - 1]
        elif kind == 4:  # of log-probabilities: larger or smaller ones in the same order
            row = flat.reshape(-1, array.shape[-1])[at // array.shape[-1]]
            row[:] = (row * rng.choice([0.5, 0.9, 2])).astype(array.dtype)
        else:
            flat[:] = flat[::-1].copy() if rng.random() < 0.5 else flat[at]
    return flat.reshape(array.shape)
