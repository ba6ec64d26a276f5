"""Damage to the bytes of a file: what disks, networks and editors do, and what attackers try."""

from __future__ import annotations

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


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """One to three changes of random kinds at random places."""
    for _ in range(int(rng.integers(1, 4))):
        change = CHANGES[int(rng.integers(len(CHANGES)))]
        data = change(data, rng)
    return data


def _place(data: bytes, rng: np.random.Generator) -> int:
    return int(rng.integers(len(data) + 1))


def flip(data: bytes, rng: np.random.Generator) -> bytes:
    """One bit."""
    if not data:
        return data
    at = int(rng.integers(len(data)))
    return data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :]


def replace(data: bytes, rng: np.random.Generator) -> bytes:
    """A few bytes by as many random ones."""
    at, count = _place(data, rng), int(rng.integers(1, 9))
    return data[:at] + rng.bytes(len(data[at : at + count])) + data[at + count :]


def truncate(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: _place(data, rng)]


def delete(data: bytes, rng: np.random.Generator) -> bytes:
    """A few bytes, or a long piece."""
    at, count = _place(data, rng), int(rng.choice([1, 2, 8, max(1, len(data) // 3)]))
    return data[:at] + data[at + count :]


def insert(data: bytes, rng: np.random.Generator) -> bytes:
    """A word that means something to some reader."""
    at = _place(data, rng)
    return data[:at] + TOKENS[int(rng.integers(len(TOKENS)))] + data[at:]


def overwrite(data: bytes, rng: np.random.Generator) -> bytes:
    """A word over what was there, of the same length."""
    at, word = _place(data, rng), TOKENS[int(rng.integers(len(TOKENS)))]
    return data[:at] + word + data[at + len(word) :]


def double(data: bytes, rng: np.random.Generator) -> bytes:
    """A piece stands there twice."""
    low, high = sorted((_place(data, rng), _place(data, rng)))
    return data[:high] + data[low:]


def swap(data: bytes, rng: np.random.Generator) -> bytes:
    """Two neighbouring pieces change places."""
    low, middle, high = sorted(_place(data, rng) for _ in range(3))
    return data[:low] + data[middle:high] + data[low:middle] + data[high:]


def empty(data: bytes, rng: np.random.Generator) -> bytes:
    return b""


CHANGES = (flip, flip, replace, truncate, delete, insert, insert, overwrite, double, swap, empty)
