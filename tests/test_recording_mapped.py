"""Recordings are mapped: checked once as long as their file does not change, in bounded memory."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.synthetic import make_pool
from traces import InputError, read_recording, write_recording
from traces.recordings import files, recording


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path / "cache"))
    made = make_pool(np.random.default_rng(0), lengths=[9, 5, 2, 7, 3, 4])
    found = tmp_path / "one.safetensors"
    write_recording(found, made.meta, made.arrays)
    os.utime(found, (1, 1))  # long ago
    return found


def test_a_file_is_checked_once(path, monkeypatch):
    first = read_recording(path)
    monkeypatch.setattr(files, "validate", lambda *_: pytest.fail("checked again"))
    again = read_recording(path)
    assert (
        again.content_hash
        == first.content_hash
        == recording.content_hash(
            first.meta, {name: np.array(array) for name, array in first.arrays.items()}
        )
    )
    assert all(np.array_equal(again[name], first[name]) for name in first.arrays)
    assert not any(array.flags.owndata or array.flags.writeable for array in again.arrays.values())


def test_a_changed_file_is_checked_again(path):
    whole = read_recording(path)
    raw, score = path.read_bytes(), np.asarray(whole["pool_logprob"]).tobytes()
    bad = np.array(whole["pool_logprob"])
    bad[3, 1, 0] = 1.0
    facts = path.stat()
    path.write_bytes(raw.replace(score, bad.tobytes()))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    with pytest.raises(InputError, match=r"pool_logprob\[3, 1, 0\] is 1"):
        read_recording(path)


def test_a_file_just_written_is_checked_again(path):
    """Two writes within a tick of the file system's clock look alike."""
    os.utime(path)
    read_recording(path)
    facts, raw = path.stat(), bytearray(path.read_bytes())
    raw[-1] ^= 0xFF
    path.write_bytes(raw)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    try:
        changed = read_recording(path)
        arrays = {name: np.array(array) for name, array in changed.arrays.items()}
        assert changed.content_hash == recording.content_hash(changed.meta, arrays)
    except InputError:
        pass  # the changed byte is refused: it was seen


def test_blocks_see_every_row_and_name_its_index(path, monkeypatch):
    monkeypatch.setattr(recording, "BLOCK_BYTES", 1)  # a row a block
    whole = read_recording(path)
    last = whole.num_anchors - 1
    bad = {name: np.array(array) for name, array in whole.arrays.items()}
    bad["pool_token"][last, 2, 1] = bad["pool_token"][last, 2, 0]
    with pytest.raises(InputError, match=rf"pool_token\[{last}, 2, 1\]"):
        files.build_recording(whole.meta, bad)


def test_a_cache_that_cannot_be_written_costs_time_only(path, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path / "file"))
    assert read_recording(path).content_hash == read_recording(path).content_hash
