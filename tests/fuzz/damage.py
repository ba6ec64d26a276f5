"""Damage: to bytes, as disks, networks and editors do, and to what files hold, whatever format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

TOKENS = (
    b"1e9", b"-", b"-1", b"0", b"nan", b"NaN", b"inf", b"-Infinity", b"1e999", b"9" * 30,
    b"9" * 400, b"9" * 5000, b"1_0", b"0x10", b"true", b"null", b"~", b'"', b"'", b"[", b"]",
    b"{", b"}", b",", b":", b"\n", b"\r", b"\r\n", b"\t", b"\0", b"\xff", b"\xef\xbb\xbf",
    b"\xed\xa0\x80", "é１２\u202e\u2028".encode(), b"../", b"/etc/passwd", b"C:\\",
    b"${oc.env:HOME}",
    b"!!python/object/apply:os.getcwd []", b"!!timestamp x", b"!!int ''", b"&a ", b"*a", b"<<: ",
    b"[" * 3000, b'{"a":' * 3000, b"- " * 2000, b"2001-99-99", b"--- ", b"# ", b"%YAML 9.9\n",
)  # fmt: skip
CHANGES = ("flip", "flip", "replace", "truncate", "delete", "insert", "insert", "overwrite",
           "double", "swap", "empty")  # fmt: skip


def pick(options: Sequence, rng: np.random.Generator) -> Any:
    """One of them."""
    return options[int(rng.integers(len(options)))]


def bytes_damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """One to three changes of random kinds at random places."""
    for _ in range(int(rng.integers(1, 4))):
        kind, word = pick(CHANGES, rng), pick(TOKENS, rng)
        low, at, high = sorted(int(rng.integers(len(data) + 1)) for _ in range(3))
        start, rest = data[:at], data[at:]
        if kind == "flip":
            data = (
                start + bytes([rest[0] ^ (1 << int(rng.integers(8)))]) + rest[1:] if rest else b""
            )
        elif kind == "replace":
            count = min(int(rng.integers(1, 9)), len(rest))
            data = start + rng.bytes(count) + rest[count:]
        elif kind == "delete":
            data = start + rest[pick([1, 2, 8, max(1, len(data) // 3)], rng) :]
        elif kind == "double":
            data = data[:high] + data[at:]
        elif kind == "swap":
            data = data[:low] + data[at:high] + data[low:at] + data[high:]
        else:
            ends = {"insert": word + rest, "overwrite": word + rest[len(word) :], "truncate": b""}
            data = start + ends[kind] if kind in ends else b""
    return data


# ---------------- Values inside files: odd numbers, wrong types, entries lost, twice or exchanged.

TWICE = "\ue000"  # ends a key that is to be written without it, beside its twin
NESTED = (10, 70, 900, 5000)
SWOLLEN = (500, 20_000)  # times that an entry stands there
MOST_CHARACTERS = 5_000_000  # of what is there so often
ODD = (
    None, True, False, -1, 0, 1, 1.5, -0.0, 1e-320, 1e-300, 255, 2**31, 2**53 + 1, 2**63, 2**64,
    10**30, 10**299, 10**400, 1e4, 1e12, 1e30, 1e308, float("nan"), float("inf"), -float("inf"),
    "", " ", "x", "inf", "nan", "1", "1.0", " 7 ", "+1", "-1", "1_0", "0x10", "１２", "1e999",
    "9" * 400, "9" * 5000, "\ud800", "\0", '"', "a\nb", "é\u202e", "=1+1", "x" * 200_000, "../x",
    "../../etc/passwd", "/etc/passwd", "/dev/zero", "a" * 300 + ".safetensors", "\0.csv",
    "${oc.env:HOME}", "${nope}", [], {}, [[]], {"": 0}, {"1": {}}, [None], ["x", 1],
)  # fmt: skip
KEYS = ("", "0", "-1", "1.5", "x", "9" * 20, "9" * 400, "__class__", "_target_", "a\nb", "\ud800",
        "seq_x", "anchor_x", "../x", "confidence", "head")  # fmt: skip


def tree_damaged(value: Any, rng: np.random.Generator) -> Any:
    """The value with one or two changes somewhere inside."""
    for _ in range(pick((1, 1, 1, 2), rng)):
        value = _changed(value, rng)
    return value


def _changed(value: Any, rng: np.random.Generator) -> Any:
    if not isinstance(value, dict | list) or not value or rng.random() < 0.02:
        return _odd(value, rng)
    if rng.random() < 0.04:
        factor = pick((-1, 0, 0.5, 2, 1000, 1 + 1e-12, str, bool, float, lambda leaf: [leaf]), rng)
        return _everywhere(value, factor)
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = pick(keys, rng)
    if rng.random() < 0.5:  # where most of the values are
        sizes = np.array([_size(value[one]) for one in keys])
        key = keys[int(rng.choice(len(keys), p=sizes / sizes.sum()))]
    inside = isinstance(value[key], dict | list)
    if rng.random() < (0.9 if inside else 0.5):
        return _with(value, key, _changed(value[key], rng))
    return _reshaped(value, key, rng)


def _size(value: Any) -> int:
    """Values below, itself one of them."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_size, inner))


def _everywhere(value: Any, change: Any) -> Any:
    """Every leaf in another type, or every number times another."""
    if isinstance(value, dict):
        return {key: _everywhere(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_everywhere(inner, change) for inner in value]
    try:
        return change(value) if callable(change) else _times(value, change)
    except (TypeError, ValueError):
        return value


def _times(value: Any, factor: float) -> Any:
    """A number, or a text that is one, times another; ValueError for anything else."""
    if isinstance(value, str):
        return repr(float(value) * factor)
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= 1e300:
        raise ValueError
    return value * factor


def _with(node: Any, key: Any, inner: Any) -> Any:
    if isinstance(node, dict):
        return {**node, key: inner}
    return [*node[:key], inner, *node[key + 1 :]]


def _reshaped(node: Any, key: Any, rng: np.random.Generator) -> Any:
    """An entry gone, there twice or very often, renamed, or changed for another."""
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    kind = pick("grtec" if isinstance(node, dict) else "gtoecc", rng)
    other = keys[keys.index(key) - 1] if rng.random() < 0.5 else pick(keys, rng)
    often = pick(SWOLLEN, rng) if kind == "o" else 1
    often = min(often, MOST_CHARACTERS // len(repr(node[key])))
    if kind == "g":
        kept = [k for k in keys if k != key]
        return {k: node[k] for k in kept} if isinstance(node, dict) else [node[k] for k in kept]
    if kind in "to" and isinstance(node, list):
        return [*node[: key + 1], *[node[key]] * often, *node[key + 1 :]]
    if kind == "t":
        return {**node, f"{key}{TWICE}": _odd(node[key], rng)}
    if kind == "r":
        named = pick(KEYS, rng) if rng.random() < 0.7 else other
        return {(named if k == key else k): inner for k, inner in node.items()}
    changed = _with(node, key, node[other])
    return changed if kind == "c" else _with(changed, other, node[key])


def _odd(value: Any, rng: np.random.Generator) -> Any:
    """Another value of the same kind, or one that has no business there."""
    if rng.random() < 0.7:
        if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.6:
            return value + int(rng.integers(-2, 3))
        try:
            return _times(value, pick((-1, 0, 2, 0.5, 1.01, 0.99, 1 + 1e-12, 1e6, 1e300), rng))
        except (ValueError, OverflowError):
            pass
    if rng.random() < 0.1:
        for _ in range(pick(NESTED, rng)):
            value = [value]
        return value
    return pick(ODD, rng)


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
