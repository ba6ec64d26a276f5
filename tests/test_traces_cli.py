"""`python -m traces`: exit codes, messages, and what inspect says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.synthetic import make_hidden, make_pool, make_tree
from traces import write_recording
from traces.__main__ import main
from traces.common.errors import near
from traces.recordings.catalog import known_recordings


@pytest.fixture
def good(tmp_path: Path) -> str:
    recording = make_pool(np.random.default_rng(0), lengths=[3, 4, 5, 6, 7, 8])
    margin = np.full(recording.num_anchors, 0.5)
    margin[[2, 9]] = 1e-5
    arrays = dict(recording.arrays) | {"target_margin": margin}
    path = tmp_path / "good.safetensors"
    write_recording(path, recording.meta, arrays)
    return str(path)


def test_validate_checks_all_and_fails(good: str, tmp_path: Path, capsys):
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"not a recording")
    assert main(["validate", str(bad), good, "no-such-name"]) == 2
    out, err = capsys.readouterr()
    # Outputs 3 to 8: anchors 2 + 3 + 4 + 5 + 6 + 7 = 27.
    assert out == f"{good}: ok (pool, 6 sequences, 27 anchors, 4 depths, temperature 0)\n"
    damaged, unknown = err.splitlines()
    assert damaged.startswith(f"error: {bad}: not a complete safetensors file")
    assert unknown.startswith("error: no-such-name: no such recording")


def test_inspect_pool(good: str, capsys):
    assert main(["inspect", good]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["target", "synthetic-target"] in lines
    assert ["drafter", "synthetic-drafter", "(block)"] in lines
    assert ["encoding", "pool,", "8", "candidates", "per", "depth"] in lines
    assert ["output", "tokens", "median", "5.5,", "range", "3", "to", "8"] in lines
    assert ["near", "ties", "2", "of", "27", "anchors,"] in [line[:6] for line in lines]
    # Sequence s: domain s % 2, split s % 3, s + 2 anchors.
    assert ["code", "1", "(2)", "1", "(6)", "1", "(4)"] in lines
    assert ["chat", "1", "(5)", "1", "(3)", "1", "(7)"] in lines
    depths = [line[0] for line in lines if len(line) == 3 and line[1].startswith(("0.", "1."))]
    assert depths == ["1", "2", "3", "4", "all"]


def test_inspect_coverage_counts_realised_tokens(tmp_path: Path, capsys):
    """A pool of the whole vocabulary holds every realised token."""
    recording = make_pool(np.random.default_rng(1), pool=50)
    path = tmp_path / "full.safetensors"
    write_recording(path, recording.meta, recording.arrays)
    assert main(["inspect", str(path)]) == 0
    last = capsys.readouterr().out.splitlines()[-1].split()
    realised = recording.realised(np.arange(recording.num_anchors))
    top1 = np.mean(recording["pool_token"][:, :, 0] == realised)
    assert last == ["all", f"{top1:.3f}", "1.000"]


@pytest.mark.parametrize("maker", [make_hidden, make_tree])
def test_inspect_other_encodings(maker, tmp_path: Path, capsys):
    recording = maker(np.random.default_rng(2), temperature=0.6)
    path = tmp_path / "r.safetensors"
    write_recording(path, recording.meta, recording.arrays)
    assert main(["inspect", str(path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["encoding", f"{recording.encoding},"] in [line[:2] for line in lines]
    assert ["temperature", "0.6"] in lines


def test_a_manifest_may_begin_with_a_byte_order_mark(good: str, capsys):
    shard = Path(good)
    manifest = {"format": "specdec-recording-manifest", "version": 1, "shards": [shard.name]}
    path = shard.with_name("all.json")
    path.write_text("\ufeff" + json.dumps(manifest), encoding="utf-8")
    assert main(["validate", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: ok (pool, 6 sequences")
    assert known_recordings(shard.parent) == {"all": path}


def test_near_names_come_first(capsys):
    """What begins with it before the others; of names spelt alike the nearest; else as listed."""
    names = list(known_recordings())
    assert names == sorted(names)
    for asked, first in (
        ("small_semi", ["small_semi_t0", "small_semi_t1"]),
        ("smal_semi_t1", ["small_semi_t1", "small_semi_t0"]),
        ("x", []),
    ):
        assert main(["inspect", asked]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {asked}: no such recording, ")
        listed = line.partition(" one of: ")[2].split(", ")
        assert listed[: len(first)] == first
        assert sorted(listed) == names
    # Those that hold it or are held by it; else those alike: abcx has three of four letters.
    assert near("abcd", ["zz", "abxy", "abcx", "ABCD-2", "ab"]) == ["ABCD-2", "ab"]
    assert near("abcd", ["zz", "qbxy", "abcx"]) == ["abcx"]
    assert near("", ["a"]) == []
