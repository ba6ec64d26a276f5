"""Recordings: what must hold of every one that is accepted, looked up entry by entry."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np

from tests.fuzz.cases import Target, command, of_file
from tests.synthetic import make_hidden, make_pool, make_tree
from traces.__main__ import main
from traces.recordings.files import read_recording, write_recording
from traces.recordings.recording import Recording

FILE = "r.safetensors"
AGREE = ("temperature", "target", "drafter", "vocab_size", "eos_token", "dtype", "generation")
U = 2**-8  # probabilities of a row of K add up to K^U at most: 1, with logarithms as bfloat16


def _rng() -> np.random.Generator:
    return np.random.default_rng(5)


def _pool(**changes) -> Recording:
    return make_pool(_rng(), sequences=3, depths=3, pool=4, vocab=20, max_new_tokens=6, **changes)


def _with_optional(recording: Recording) -> dict[str, np.ndarray]:
    shape = recording["path_logq"].shape
    confidence = np.linspace(0.1, 0.9, math.prod(shape)).reshape(shape).astype(np.float32)
    margin = np.linspace(0, 2, shape[0]).astype(np.float16)
    return dict(recording.arrays) | {"confidence": confidence, "target_margin": margin}


def _written(make) -> None:
    def write(folder: Path) -> None:
        recording = make()
        arrays = dict(recording.arrays)
        if recording.encoding == "pool" and recording.temperature == 0:
            arrays = _with_optional(recording)
        write_recording(folder / FILE, recording.meta, arrays)

    return write


def _sharded(folder: Path) -> None:
    names = ["a.safetensors", "sub/b.safetensors"]
    (folder / "sub").mkdir()
    for name in names:
        recording = _pool()
        write_recording(folder / name, recording.meta, recording.arrays)
    manifest = {"format": "specdec-recording-manifest", "version": 1, "shards": names}
    (folder / "m.json").write_text(json.dumps(manifest))


def check_recording(folder: Path, found: Recording, good: Recording) -> None:
    """Layout, scores, laws and hash, in plain loops where the reader has vectors."""
    _check_layout(found)
    {"pool": _check_pool, "tree": _check_tree, "hidden": lambda _: None}[found.encoding](found)
    for name, array in found.arrays.items():
        assert not array.flags.writeable, name
        assert array.dtype.kind != "f" or np.isfinite(array).all(), name
    if "confidence" in found:
        assert ((found["confidence"] >= 0) & (found["confidence"] <= 1)).all()
    _check_laws(found)
    same = _same_content(found, good)
    assert same == (found.content_hash == good.content_hash), "content and its hash disagree"


def _same_content(one: Recording, other: Recording) -> bool:
    if json.dumps(dict(one.meta), sort_keys=True) != json.dumps(dict(other.meta), sort_keys=True):
        return False
    if set(one.arrays) != set(other.arrays):
        return False
    pairs = ((one[name], other[name]) for name in one.arrays)
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs
    )


def _check_layout(found: Recording) -> None:
    tokens, offset = found["tokens"].tolist(), found["seq_offset"].tolist()
    assert all(0 <= token < found.vocab_size for token in tokens)
    at, anchors = 0, []
    for s in range(found.num_sequences):
        prompt, output = int(found["prompt_len"][s]), int(found["output_len"][s])
        assert 1 <= output <= found.meta["generation"]["max_new_tokens"]
        assert offset[s] == at
        anchors += [at + prompt + i for i in range(output - 1)]
        at += prompt + output + found.depths
        assert 0 <= found["domain"][s] < len(found.domains)
        assert 0 <= found["split"][s] < 3
    assert offset[-1] == at == len(tokens)
    assert found["anchor_pos"].tolist() == anchors


def _check_pool(found: Recording) -> None:
    realised = found.realised(np.arange(found.num_anchors))
    for a in range(found.num_anchors):
        for d in range(found.depths):
            row, logq = found["pool_token"][a, d].tolist(), found["pool_logprob"][a, d].tolist()
            assert len(set(row)) == len(row)
            assert all(0 <= token < found.vocab_size for token in row)
            assert all(x >= y for x, y in itertools.pairwise(logq))
            _check_mass(logq)
            path = float(found["path_logq"][a, d])
            assert path <= 0
            if int(realised[a, d]) in row:
                assert abs(path - logq[row.index(int(realised[a, d]))]) < 0.101
            elif not found.meta.get("per_round"):
                _check_mass([*logq, path - 0.101])


def _check_mass(logs: list[float]) -> None:
    assert math.fsum(map(math.exp, logs)) <= max(len(logs), 1) ** U * (1 + 1e-6)


def _check_tree(found: Recording) -> None:
    realised = found.realised(np.arange(found.num_anchors))
    for a in range(found.num_anchors):
        parents = found["tree_parent"][a].tolist()
        tokens, logq = found["tree_token"][a].tolist(), found["tree_logq"][a].tolist()
        used = [m for m, parent in enumerate(parents) if parent != -2]
        assert used == list(range(len(used)))
        children: dict[int, list[int]] = {}
        for m in used:
            assert -1 <= parents[m] < m
            assert 0 <= tokens[m] < found.vocab_size
            children.setdefault(parents[m], []).append(m)
        for nodes in children.values():
            assert len({tokens[m] for m in nodes}) == len(nodes)
            _check_mass([logq[m] for m in nodes])
            assert all(logq[m] >= logq[n] for m, n in itertools.pairwise(nodes))
        above = -1
        for token in realised[a].tolist():
            (above,) = [m for m in children.get(above, ()) if tokens[m] == token]


def _check_laws(found: Recording) -> None:
    """What replays ask for: probabilities of at most 1, none undefined."""
    anchors = np.arange(found.num_anchors)
    logq = found.path_logq(anchors)
    assert not np.isnan(logq).any()
    assert (logq <= 1e-9).all()
    for anchor in anchors[:2].tolist():
        for depth in range(found.depths):
            parent = found.anchor_tokens(np.array([anchor]))
            _, row = found.conditional(anchor, depth, parent)
            assert not np.isnan(row).any()
            for logs in row.tolist():
                _check_mass(logs)
    if found.temperature > 0 and len(anchors):
        law = found.target_logp(found.target_row(anchors, 0))
        assert np.allclose(np.exp(law).sum(axis=1), 1)


def _check_manifest(folder: Path, found: Recording, good: Recording) -> None:
    """Shards of one kind, one after the other, and nothing else."""
    check_recording(folder, found, good)
    names = json.loads((folder / "m.json").read_text())["shards"]
    shards = [read_recording(folder / name) for name in names]
    for shard in shards:
        for key in AGREE:
            assert shard.meta[key] == found.meta[key], key
        assert shard.depths == found.depths
    for name in ("tokens", "pool_logprob"):
        assert np.array_equal(found[name], np.concatenate([shard[name] for shard in shards]))


_read, _read_manifest = of_file(read_recording, FILE), of_file(read_recording, "m.json")


def _inspect(folder: Path) -> str:
    inspected = command(main, "inspect", folder / FILE)
    return inspected + command(main, "validate", folder / FILE)


def _said(folder: Path, found: str, good: str) -> None:
    assert found.splitlines()[-1].endswith(")")
    assert "content hash" in found


_KINDS = {
    "pool": _pool,
    "pool sampled": lambda: _pool(temperature=1.0),
    "hidden": lambda: make_hidden(
        _rng(), sequences=3, depths=3, vocab=20, max_new_tokens=6, temperature=0.7
    ),
    "tree": lambda: make_tree(_rng(), sequences=3, depths=3, vocab=12, max_new_tokens=5),
}
TARGETS = [
    *(
        Target(f"recording {name}", _written(make), ("*",), _read, check_recording)
        for name, make in _KINDS.items()
    ),
    Target("manifest", _sharded, ("*",), _read_manifest, _check_manifest),
    Target("inspect", _written(_pool), ("*",), _inspect, _said),
]
