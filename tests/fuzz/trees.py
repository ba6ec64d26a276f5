"""Damage to values inside JSON and YAML: odd numbers, wrong types, keys twice, deep nesting."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import yaml

from tests.fuzz.damage import damaged

TWICE = "\ue000"  # ends a key that is to be written without it, beside its twin
NESTED = (10, 70, 900, 5000)
ODD = (
    None, True, False, -1, 0, 1, 1.5, -0.0, 1e-300, 2**31, 2**53, 2**63, 2**64, 10**30, 10**299,
    10**400, 1e308, float("nan"), float("inf"), -float("inf"), "", " ", "x", "inf", "nan", "1",
    "\ud800", "\0", "a\nb", "é\u202e", "x" * 5000, "../x", "../../etc/passwd", "/etc/passwd",
    "/dev/zero", "a" * 300 + ".safetensors", "\0.csv", "${oc.env:HOME}", "${nope}", [], {}, [[]],
    {"": 0}, {"1": {}}, [None], ["x", 1],
)  # fmt: skip
KEYS = ("", "0", "-1", "1.5", "x", "9" * 20, "9" * 400, "__class__", "_target_", "a\nb", "\ud800")


def tree_damaged(value: Any, rng: np.random.Generator) -> Any:
    """The value with one or two changes somewhere inside."""
    for _ in range(int(rng.integers(1, 3))):
        value = _changed(value, rng)
    return value


def _changed(value: Any, rng: np.random.Generator) -> Any:
    if not isinstance(value, dict | list) or not value or rng.random() < 0.04:
        return _odd(value, rng)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[int(rng.integers(len(keys)))]
    if rng.random() < 0.8:
        return _with(value, key, _changed(value[key], rng))
    return _reshaped(value, keys, key, rng)


def _with(node: Any, key: Any, inner: Any) -> Any:
    if isinstance(node, dict):
        return {**node, key: inner}
    return [*node[:key], inner, *node[key + 1 :]]


def _reshaped(node: Any, keys: list, key: Any, rng: np.random.Generator) -> Any:
    """A key or entry gone, twice, renamed, or changed for another."""
    other, kind = keys[int(rng.integers(len(keys)))], int(rng.integers(4))
    if kind == 0:
        kept = [k for k in keys if k != key]
        return {k: node[k] for k in kept} if isinstance(node, dict) else [node[k] for k in kept]
    if kind == 1 and isinstance(node, list):
        return [*node[: key + 1], *node[key:]]
    if kind == 1:
        return {**node, f"{key}{TWICE}": _odd(node[key], rng)}
    if kind == 2 and isinstance(node, dict):
        named = KEYS[int(rng.integers(len(KEYS)))] if rng.random() < 0.7 else other
        return {(named if k == key else k): inner for k, inner in node.items()}
    return _with(_with(node, key, node[other]), other, node[key])


def _odd(value: Any, rng: np.random.Generator) -> Any:
    """Another value of the same kind, or one that has no business there."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and abs(value) < 1e300 and rng.random() < 0.7:
        factor = (-1, 0, 2, 0.5, 1.01, 0.99, 1 + 1e-12, 1e6, 1e300)[int(rng.integers(9))]
        step = int(rng.integers(-2, 3))
        return value + step if isinstance(value, int) and rng.random() < 0.6 else value * factor
    if rng.random() < 0.03:
        count = (1000, 50_000)[int(rng.integers(2))] if not isinstance(value, dict | list) else 50
        count = min(count, 1_000_000 // len(value)) if value and isinstance(value, str) else count
        return {str(k): value for k in range(count)} if rng.random() < 0.5 else [value] * count
    if rng.random() < 0.1:
        for _ in range(NESTED[int(rng.integers(len(NESTED)))]):
            value = [value]
        return value
    return ODD[int(rng.integers(len(ODD)))]


def json_text(value: Any) -> str:
    """As `json.dumps`, at any depth, with keys twice where `tree_damaged` put them."""
    levels = 0
    while isinstance(value, list) and len(value) == 1 and levels < 10_000:
        value, levels = value[0], levels + 1
    try:
        text = json.dumps(value)
    except RecursionError:
        text = _deep_text(value)
    text = text.replace(json.dumps(TWICE)[1:-1], "")
    return "[" * levels + text + "]" * levels


def _deep_text(value: Any) -> str:
    """Without recursion: parts that are still to be written wait on a stack."""
    parts: list[str] = []
    waiting: list[tuple[bool, Any]] = [(False, value)]
    while waiting:
        plain, one = waiting.pop()
        if plain:
            parts.append(one)
        elif isinstance(one, dict):
            pairs = [((True, f"{json.dumps(k)}: "), (False, v)) for k, v in one.items()]
            flat = [part for pair in pairs for part in (*pair, (True, ","))][:-1]
            waiting += reversed([(True, "{"), *flat, (True, "}")])
        elif isinstance(one, list):
            flat = [part for v in one for part in ((False, v), (True, ","))][:-1]
            waiting += reversed([(True, "["), *flat, (True, "]")])
        else:
            parts.append(json.dumps(one))
    return "".join(parts)


def json_damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """A JSON file, or one of JSON lines, with damage to its values or to its bytes."""
    if rng.random() < 0.3:
        return damaged(data, rng)
    lines = data.decode().splitlines()
    try:
        value = json.loads(data)
    except ValueError:
        at = int(rng.integers(len(lines)))
        lines[at] = json_text(tree_damaged(json.loads(lines[at]), rng))
        return "\n".join(lines).encode("utf-8", "surrogatepass")
    return json_text(tree_damaged(value, rng)).encode("utf-8", "surrogatepass")


BOMBS = (
    "a: &a [x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
    + "".join(f"{k}: &{k} [{', '.join(['*' + c] * 9)}]\n" for c, k in zip("bcdefghi", "cdefghij")),
    "a: &a\n  b: *a\n",
    "x: &x {y: *x}\nprofile: *x\n",
    "? [a, b]\n: 1\n",
    "!!python/object/apply:os.mkdir ['trapped']\n",
    "a: !!timestamp x\n",
    "a: !!int ''\n",
    "a: 2001-99-99\n",
    "!!set {a, b}\n",
    "--- a\n--- b\n",
)


def yaml_damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """A YAML file with damage to its values or bytes, or one with tricks put before it."""
    chance = rng.random()
    if chance < 0.3:
        return damaged(data, rng)
    if chance < 0.4:
        return BOMBS[int(rng.integers(len(BOMBS)))].encode() + (data if rng.random() < 0.5 else b"")
    try:
        value = json.loads(data)  # which is YAML, but for 1e-06
    except ValueError:
        value = yaml.safe_load(data)
    return json_text(tree_damaged(value, rng)).encode("utf-8", "surrogatepass")
