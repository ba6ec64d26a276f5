"""Recordings: layout, laws, round trips, shards, and every refusal."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save, save_file

from tests.fuzz.formats import joined
from tests.synthetic import make_geometric, make_hidden, make_meta, make_pool, make_tree
from traces import InputError, find_recording, known_recordings, read_recording, write_recording
from traces.recordings.files import build_recording
from traces.recordings.schema import rows_of
from traces.recordings.tree import node_depths, path_nodes

MAKERS = {"pool": make_pool, "hidden": make_hidden, "tree": make_tree}


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _by_hand() -> tuple[dict, dict]:
    """Two sequences, D = 2, K = 2, V = 10 (9 ends): written out by hand.

    Prompt 1 2, outputs 3 4 9, lookahead 5 6; prompt 7, output 9, lookahead 8 0.
    """
    meta = make_meta("pool", 10, 8, domains=["only"])
    arrays = {
        "tokens": np.array([1, 2, 3, 4, 9, 5, 6, 7, 9, 8, 0]),
        "seq_offset": np.array([0, 7, 11]),
        "prompt_len": np.array([2, 1]),
        "output_len": np.array([3, 1]),
        "domain": np.array([0, 0]),
        "split": np.array([0, 2]),
        "anchor_pos": np.array([2, 3]),
        "pool_token": np.array([[[4, 1], [3, 2]], [[9, 4], [5, 6]]]),
        "pool_logprob": np.log([[[0.5, 0.25], [0.5, 0.2]], [[0.6, 0.1], [0.4, 0.4]]]),
        "path_logq": np.log([[0.5, 0.05], [0.6, 0.4]]),
    }
    return meta, arrays


def test_layout_by_hand():
    recording = build_recording(*_by_hand())
    assert (recording.num_sequences, recording.num_anchors, recording.depths) == (2, 2, 2)
    assert recording.anchor_offset.tolist() == [0, 2, 2]
    assert recording.output_offset.tolist() == [0, 5, 8]
    assert recording.realised(np.array([0, 1])).tolist() == [[4, 9], [9, 5]]
    assert recording.anchor_tokens(np.array([0, 1])).tolist() == [3, 4]
    assert recording.remaining_outputs.tolist() == [2, 1]
    assert recording.committed_tokens(0).tolist() == [3, 4, 9]
    assert recording.committed_tokens(1).tolist() == [9]
    assert recording.prompt_tokens(1).tolist() == [7]
    assert recording.eos_tokens == (9,)
    tokens, logq = recording.conditional(1, 0, np.array([0, 8]))  # whatever the parents
    assert tokens.tolist() == [[9, 4], [9, 4]]
    np.testing.assert_allclose(np.exp(logq), [[0.6, 0.1], [0.6, 0.1]])
    assert recording.conditional(1, 1, np.array([0]), top=1)[0].tolist() == [[5]]
    # Row i of a sequence predicts its output i: after anchor 1 (output 1) come outputs 2, 3, 4.
    assert recording.target_row(np.array([1]), np.arange(3)).tolist() == [2, 3, 4]


def test_selection_by_split_and_domain():
    recording = make_pool(_rng(), lengths=[3, 1, 4, 2, 5, 2])
    # Synthetic sequence s has domain s % 2 and split s % 3; anchors per sequence 2 0 3 1 4 1.
    assert recording.sequences_of("calibration").tolist() == [0, 3]
    assert recording.anchors_of("calibration").tolist() == [0, 1, 5]
    assert recording.anchors_of(domain="chat").tolist() == [5, 10]
    assert recording.anchors_of("report", "code").tolist() == [2, 3, 4]
    assert recording.anchors_of().tolist() == list(range(11))
    assert recording.anchor_sequence.tolist() == [0, 0, 2, 2, 2, 3, 4, 4, 4, 4, 5]
    with pytest.raises(InputError, match="unknown split 'train'.*calibration, tuning, report"):
        recording.anchors_of("train")
    with pytest.raises(InputError, match="unknown domain 'law'.*code, chat"):
        recording.sequences_of(domain="law")


def _naive_law(recording, anchor, depth, parent):
    """softmax(head h + W2 W1[u]) with plain Python loops over the vocabulary, banned tokens 0."""
    arrays = {k: v.astype(np.float64) for k, v in recording.arrays.items()}
    weights = []
    for token in range(recording.vocab_size):
        logit = float(np.dot(arrays["head"][token], arrays["hidden"][anchor, depth]))
        logit += float(np.dot(arrays["markov_w2"][token], arrays["markov_w1"][parent]))
        weights.append(0.0 if token in recording.meta["banned_tokens"] else np.exp(logit))
    return np.array(weights) / sum(weights)


def test_hidden_conditional_is_the_naive_softmax_sorted():
    recording = make_hidden(_rng(1), meta={"banned_tokens": [0, 17]})
    parents = np.array([4, 30])
    tokens, logq = recording.conditional(5, 2, parents)
    assert tokens.shape == logq.shape == (2, 50)
    for row, parent in enumerate(parents):
        law = _naive_law(recording, 5, 2, parent)
        np.testing.assert_allclose(np.exp(logq[row]), law[tokens[row]], rtol=1e-12)
        assert sorted(tokens[row]) == list(range(50))
        assert np.all(np.diff(logq[row][:-2]) <= 0)
        assert tokens[row][-2:].tolist() == [0, 17]
        assert np.all(np.isneginf(logq[row][-2:]))
    short, short_logq = recording.conditional(5, 2, parents, top=7)
    assert short.tolist() == tokens[:, :7].tolist()
    assert short_logq.tolist() == logq[:, :7].tolist()


def test_block_drafter_without_markov_factors_ignores_parents():
    base = make_hidden(_rng(1))
    meta = dict(base.meta) | {"drafter": {"name": "d", "sha256": "0", "kind": "block"}}
    arrays = {k: v for k, v in base.arrays.items() if not k.startswith("markov")}
    recording = build_recording(meta, arrays)
    tokens, logq = recording.conditional(5, 2, np.array([4, 30]))
    assert tokens[0].tolist() == tokens[1].tolist()
    weights = np.exp(base["head"].astype(float) @ base["hidden"][5, 2].astype(float))
    np.testing.assert_allclose(np.exp(logq[0]), (weights / weights.sum())[tokens[0]], rtol=1e-12)
    with pytest.raises(InputError, match="array markov_w1 is missing"):
        build_recording(base.meta, arrays)


def test_heads_must_fit_vocabulary_and_hidden_size():
    base = make_hidden(_rng(1), temperature=1.0)
    rows = len(base["target_hidden"])
    for name, change, message in (
        ("head", lambda a: a[:-1], r"array head has shape \(49, 16\), expected \(V=50, d=16"),
        ("target_hidden", lambda a: a[:, :8], "hidden size 8, the shared head has 16"),
        ("target_hidden", lambda a: a[1:], rf"\({rows - 1}, 16\), expected \(P={rows}, e=16"),
    ):
        with pytest.raises(InputError, match=message):
            build_recording(base.meta, {**base.arrays, name: change(base[name])})


def test_ties_go_to_the_smaller_token_with_and_without_top():
    base = make_hidden(_rng(1))
    arrays = dict(base.arrays)
    arrays["hidden"] = np.zeros_like(base["hidden"])
    arrays["markov_w1"] = np.zeros_like(base["markov_w1"])
    flat = build_recording(base.meta, arrays)
    assert flat.conditional(0, 0, np.array([3]))[0][0].tolist() == list(range(50))
    assert flat.conditional(0, 0, np.array([3]), top=4)[0][0].tolist() == [0, 1, 2, 3]


def test_realised_tokens_are_those_committed_and_path_logq_their_conditional():
    for maker in MAKERS.values():
        recording = maker(_rng(2))
        anchors = np.arange(0, recording.num_anchors, 5)
        path = recording.path_logq(anchors)
        for row, anchor in enumerate(anchors):
            committed = recording.committed_tokens(recording.anchor_sequence[anchor])
            inside = committed[recording.anchor_output[anchor] + 1 :][: recording.depths]
            realised = recording.realised(np.array([anchor]))[0]
            assert realised[: len(inside)].tolist() == inside.tolist()
            parent = recording.anchor_tokens(np.array([anchor]))[0]
            for depth, token in enumerate(realised):
                tokens, logq = recording.conditional(anchor, depth, np.array([parent]))
                if token in tokens:
                    at = tokens[0].tolist().index(token)
                    assert path[row, depth] == pytest.approx(logq[0, at], abs=1e-6)
                else:
                    assert recording.encoding == "pool"
                    assert path[row, depth] <= logq[0, -1]
                parent = token


def test_target_law_at_the_recorded_temperature():
    recording = make_hidden(_rng(4), temperature=0.5)
    row = int(recording.target_row(np.array([3]), 1)[0])
    logits = recording["target_hidden"][row].astype(float) @ recording["head"].T.astype(float)
    weights = np.exp(logits / 0.5)
    np.testing.assert_allclose(np.exp(recording.target_logp(row)), weights / weights.sum())
    assert recording.target_logp(np.array([row, row])).shape == (2, 50)
    pooled = make_pool(_rng(4), temperature=0.5)
    assert np.exp(pooled.target_logp(0)).sum() == pytest.approx(1)
    with pytest.raises(InputError, match="temperature 0 records no target law"):
        make_pool(_rng()).target_logp(0)


def test_greedy_text_is_the_argmax_of_the_target_rows():
    """Alignment of tokens and target rows: a cold target's law sits on the realised tokens."""
    recording = make_pool(_rng(6), temperature=0.02)
    anchors = np.arange(recording.num_anchors)
    rows = recording.target_row(anchors[:, None], np.arange(recording.depths))
    best = recording.target_logp(rows).argmax(axis=-1)
    assert (best == recording.realised(anchors)).mean() > 0.98


def test_geometric_chain_accepts_with_chance_alpha():
    recording = make_geometric(0.7, _rng(5), sequences=20, length=128)
    hit = recording["pool_token"][..., 0] == recording.realised(np.arange(recording.num_anchors))
    tolerance = 5 * np.sqrt(0.7 * 0.3 / len(hit))  # five standard errors per depth
    assert np.all(np.abs(hit.mean(axis=0) - 0.7) < tolerance)
    both = (hit[:, 0] & hit[:, 1]).mean()
    assert both == pytest.approx(0.49, abs=5 * np.sqrt(0.25 / len(hit)))


def test_tree_depths_and_path_by_hand():
    parent = np.array([[-1, -1, 0, 2, 1, -2]])
    token = np.array([[5, 6, 7, 8, 7, 0]])
    assert node_depths(parent).tolist() == [[0, 0, 1, 2, 1, -1]]
    assert path_nodes(token, parent, np.array([[6, 7]])).tolist() == [[1, 4]]
    assert path_nodes(token, parent, np.array([[6, 8]])).tolist() == [[1, -1]]
    assert path_nodes(token, parent, np.array([[9, 7]])).tolist() == [[-1, -1]]


@pytest.mark.parametrize("encoding", MAKERS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_round_trip(tmp_path: Path, encoding: str, temperature: float):
    meta = {"a_later_key": {"kept": [1, 2]}}
    recording = MAKERS[encoding](_rng(7), temperature=temperature, meta=meta)
    written = write_recording(tmp_path / "r.safetensors", recording.meta, recording.arrays)
    back = read_recording(tmp_path / "r.safetensors")
    assert back.meta == recording.meta
    assert back.meta["a_later_key"] == {"kept": [1, 2]}
    assert back.content_hash == written.content_hash == recording.content_hash
    for name, array in recording.arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)
    assert back["tokens"].dtype == np.uint16
    assert back["seq_offset"].dtype == np.int64
    assert not back["tokens"].flags.writeable
    assert [path.name for path in tmp_path.iterdir()] == ["r.safetensors"]


def test_large_vocabularies_are_stored_wide_and_hashes_follow_content(tmp_path: Path):
    meta, arrays = _by_hand()
    wide = arrays["pool_token"].copy()
    wide[0, 1, 1] = 65536
    path = tmp_path / "r.safetensors"
    write_recording(path, meta | {"vocab_size": 65537}, arrays | {"pool_token": wide})
    back = read_recording(path)
    assert back["tokens"].dtype == np.int32
    assert back["pool_token"][0, 1, 1] == 65536
    base = build_recording(meta, arrays).content_hash
    assert build_recording(meta, arrays, "elsewhere").content_hash == base
    assert build_recording(meta | {"seed": 8}, arrays).content_hash != base
    arrays["path_logq"] = arrays["path_logq"] - np.array([[0, 0], [0, 1e-3]])
    assert build_recording(meta, arrays).content_hash != base


def _set(name, index, value):
    def change(meta, arrays):
        arrays[name] = arrays[name].copy()
        arrays[name][index] = value

    return change


def _drop(name):
    return lambda meta, arrays: arrays.pop(name)


def _replace(name, make):
    return lambda meta, arrays: arrays.__setitem__(name, make(arrays.get(name)))


def _meta(**changes):
    return lambda meta, arrays: meta.update(changes)


DRAFTER = {"name": "d", "sha256": "0"}
ROWS = ("prompt_len", "output_len", "domain", "split")
OF_ANCHORS = ("anchor_pos", "pool_token", "pool_logprob", "path_logq")


def _no_sequences(meta, arrays):
    arrays.update({name: arrays[name][:0] for name in ROWS} | {"seq_offset": np.array([0])})


def _one_anchor_more(meta, arrays):
    arrays.update({name: np.concatenate([arrays[name], arrays[name][:1]]) for name in OF_ANCHORS})


# A change of the recording by hand, and what is named as refused.
REFUSALS = [
    (_drop("path_logq"), "array path_logq is missing"),
    (_replace("path_logq", lambda a: a[:, :1]), r"path_logq has shape \(2, 1\)"),
    (_replace("pool_token", lambda a: a[..., 0]), r"pool_token has shape \(2, 2\)"),
    (_replace("pool_logprob", lambda a: a[..., :1]), r"pool_logprob has shape \(2, 2, 1\)"),
    (_replace("tokens", lambda a: a.astype(float)), "array tokens has type float64"),
    (_replace("path_logq", lambda a: a.astype(int)), "array path_logq has type int64"),
    (_replace("confidence", lambda a: np.ones((2, 3))), r"confidence has shape \(2, 3\)"),
    (_replace("weights", lambda a: np.ones(2)), "array weights is unknown"),
    (_replace("anchor_entropy", lambda a: np.ones(3)), r"anchor_entropy has shape \(3,\)"),
    (_no_sequences, "array prompt_len is empty"),
    (_replace("tokens", lambda a: a[:-1]), "array tokens has 10 entries, 3 beyond"),
    (_set("prompt_len", 1, -1), r"array prompt_len\[1\] is -1"),
    (_set("output_len", 1, 0), r"array output_len\[1\] is 0"),
    (_set("seq_offset", 2, 12), r"array seq_offset\[2\] is 12"),
    (_set("seq_offset", slice(0, 2), [7, 3]), r"array seq_offset\[1\] is 3"),
    (_set("seq_offset", 1, 6), r"array seq_offset\[1\] is 6, expected 7"),
    (_set("tokens", 6, 10), r"array tokens\[6\] is 10"),
    (_set("tokens", 6, -1), r"array tokens\[6\] is -1"),
    (_set("domain", 1, 1), r"array domain\[1\] is 1"),
    (_set("split", 0, 3), r"array split\[0\] is 3"),
    (_set("anchor_pos", 1, 4), r"array anchor_pos\[1\] is 4, expected 3"),
    (_one_anchor_more, "array anchor_pos has 3 entries, expected 2"),
    (_set("tokens", 3, 9), r"array tokens\[3\] is 9, expected no end-of-sequence"),
    (_set("tokens", 8, 5), r"array output_len\[1\] is 1, expected 8 \(max_new_tokens\)"),
    (_meta(generation={"max_new_tokens": 2}), r"array output_len\[0\] is 3, expected at most"),
    (_set("pool_logprob", (1, 0, 1), np.nan), r"array pool_logprob\[1, 0, 1\] is nan"),
    (_set("path_logq", (0, 1), -np.inf), r"array path_logq\[0, 1\] is -inf"),
    (_set("pool_logprob", (1, 0, 0), 0.5), r"array pool_logprob\[1, 0, 0\] is 0.5"),
    (_set("path_logq", (1, 1), 1.0), r"array path_logq\[1, 1\] is 1.0"),
    (_set("pool_logprob", (0, 1, 1), -0.1), r"array pool_logprob\[0, 1, 1\] is -0.1"),
    (_set("pool_token", (1, 1, 0), 10), r"array pool_token\[1, 1, 0\] is 10"),
    (_set("pool_token", (0, 1, 1), 3), r"array pool_token\[0, 1, 1\] is 3"),
    (_set("path_logq", (0, 0), np.log(0.25)), r"path_logq\[0, 0\] is -1.38\d*, expected -0.6931"),
    (_set("path_logq", (0, 1), np.log(0.4)), r"path_logq\[0, 1\] is -0.91\d*, expected at most -1"),
    (_replace("target_margin", lambda a: np.array([0.5, -0.25])), r"target_margin\[1\] is -0.25"),
    (_meta(temperature=1.0), "array target_hidden is missing"),
    (_meta(format="other"), "metadata format is 'other'"),
    (_meta(splits=["report", "tuning", "calibration"]), "splits"),
    (_meta(version=2), "metadata version is 2; accepted: 1"),
    (_meta(encoding="x"), "metadata encoding is 'x'"),
    (lambda meta, arrays: meta.pop("pair"), "metadata pair is missing"),
    (_meta(temperature=-1), "metadata temperature is -1"),
    (_meta(eos_token=10), "metadata eos_token is 10"),
    (_meta(banned_tokens=[3, 99]), r"metadata banned_tokens is \[3, 99\]"),
    (_meta(drafter=DRAFTER | {"kind": "ngram"}), "metadata drafter.kind is 'ngram'"),
    (_meta(drafter=DRAFTER | {"kind": "semi_autoregressive"}), "encoding is 'pool'; accepted: hid"),
    (_meta(shared_head=True), "metadata shared_head is True; accepted: false with"),
    (_meta(domains=["a", "a"]), "metadata domains is .*accepted: a list of 1 to 256"),
    (_meta(generation={}), "metadata generation.max_new_tokens is missing"),
]


@pytest.mark.parametrize(("change", "message"), REFUSALS, ids=[text for _, text in REFUSALS])
def test_refusals_name_file_array_and_index(change, message: str, tmp_path: Path):
    """The same message whether the fault is about to be written or is read; the old file stays."""
    meta, arrays = _by_hand()
    path = tmp_path / "bad.safetensors"
    write_recording(path, meta, arrays)
    before = path.read_bytes()
    change(meta, arrays)
    with pytest.raises(InputError, match=message):
        write_recording(path, meta, arrays)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    stored = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(stored, path, metadata={"recording": json.dumps(meta)})
    with pytest.raises(InputError, match=message) as refusal:
        read_recording(path)
    assert str(refusal.value).startswith(f"{path}: ")
    assert "\n" not in str(refusal.value)


def test_tree_refusals():
    recording = make_tree(_rng(8))
    sibling = recording["tree_token"][0, 0]
    for name, index, value, message in (
        ("tree_parent", (0, 2), 4, r"tree_parent\[0, 2\] is 4"),
        ("tree_parent", (0, 0), -2, r"tree_parent\[0, 1\] is .*unused slot comes before"),
        ("tree_logq", (1, 1), 0.0, r"tree_logq\[1, 1\] is 0.0, expected at most"),
        ("tree_token", (0, 1), sibling, r"tree_token\[0, 1\] is \d+, .*no earlier sibling"),
        ("tree_token", (0, 0), 50, r"tree_token\[0, 0\] is 50"),
    ):
        arrays = dict(recording.arrays)
        _set(name, index, value)(None, arrays)
        with pytest.raises(InputError, match=message):
            build_recording(recording.meta, arrays)


def test_tree_without_its_realised_path_or_too_deep_is_refused():
    recording = make_tree(_rng(8), depths=3)
    arrays = dict(recording.arrays)
    realised = recording.realised(np.array([2]))
    path = path_nodes(arrays["tree_token"][2:3], arrays["tree_parent"][2:3], realised)[0]
    siblings = arrays["tree_token"][2][arrays["tree_parent"][2] == path[0]]
    unused = next(t for t in range(50) if t not in siblings)
    _set("tree_token", (2, path[1]), unused)(None, arrays)
    with pytest.raises(InputError, match=rf"tree_token\[2\] lacks realised token {realised[0, 1]}"):
        build_recording(recording.meta, arrays)
    arrays = dict(recording.arrays)
    used = int((arrays["tree_parent"][2] >= -1).sum())
    _set("tree_parent", (2, used), path[2])(None, arrays)  # every row ends in an unused slot
    with pytest.raises(InputError, match=rf"tree_parent\[2, {used}\] is {path[2]}, expected a par"):
        build_recording(recording.meta, arrays)


def test_files_that_are_no_recordings(tmp_path: Path):
    """The last has a type that numpy lacks, so it is written byte by byte."""
    path = tmp_path / "r.safetensors"
    meta, arrays = _by_hand()
    with pytest.raises(InputError, match="no such file"):
        read_recording(path)
    write_recording(path, meta, arrays)
    entry = {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}
    texts = {"recording": json.dumps(meta)}
    for content, message in (
        (path.read_bytes()[:-40], "not a complete safetensors file"),
        (b"hello, this is not a recording at all", "not a complete safetensors file"),
        (b"", "not a complete safetensors file"),
        (save({"x": np.zeros(2)}), "header has no 'recording' metadata"),
        (save({"x": np.zeros(2)}, {"recording": "{"}), "metadata is not JSON"),
        (joined({"__metadata__": texts, "path_logq": entry}, bytes(4)), "path_logq has type BF16"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_recording(path)


def _part(recording, first: int, last: int, **changes):
    """Sequences first..last-1 of a recording, cut out by slicing."""
    starts = {"S": range(last + 1), "T": recording["seq_offset"]}
    starts |= {"A": recording.anchor_offset, "P": recording.output_offset}
    cuts = {rows: slice(start[first], start[last]) for rows, start in starts.items()}
    arrays = {name: a[cuts.get(rows_of(name), slice(None))] for name, a in recording.arrays.items()}
    arrays["seq_offset"] = recording["seq_offset"][first : last + 1] - cuts["T"].start
    arrays["anchor_pos"] = arrays["anchor_pos"] - cuts["T"].start
    return dict(recording.meta) | changes, arrays


def _manifest(folder: Path, parts) -> Path:
    names = []
    for number, (meta, arrays) in enumerate(parts):
        names.append(f"shard-{number}.safetensors")
        write_recording(folder / names[-1], meta, arrays)
    manifest = {"format": "specdec-recording-manifest", "version": 1, "shards": names}
    path = folder / "all.json"
    path.write_text(json.dumps(manifest))
    return path


@pytest.mark.parametrize("encoding", MAKERS)
def test_manifest_of_parts_is_the_whole(tmp_path: Path, encoding: str):
    whole = MAKERS[encoding](_rng(9), temperature=0.7)
    parts = [_part(whole, 0, 2), _part(whole, 2, 3), _part(whole, 3, 6)]
    joined = read_recording(_manifest(tmp_path, parts))
    for name in whole.arrays:
        np.testing.assert_array_equal(joined[name], whole[name], err_msg=name)
    assert joined.content_hash == whole.content_hash
    assert joined.anchor_offset.tolist() == whole.anchor_offset.tolist()


def test_manifest_joins_domains_by_name(tmp_path: Path):
    whole = make_pool(_rng(9), sequences=4)  # domains code chat code chat
    meta, arrays = _part(whole, 2, 4, domains=["chat", "code"])
    arrays["domain"] = np.array([1, 0])
    joined = read_recording(_manifest(tmp_path, [_part(whole, 0, 2), (meta, arrays)]))
    assert joined.domains == ("code", "chat")
    assert joined["domain"].tolist() == [0, 1, 0, 1]


def test_manifest_refusals(tmp_path: Path):
    whole = make_pool(_rng(9))
    other = _part(whole, 3, 6, pair="another")
    with pytest.raises(InputError, match=r"shard-1.safetensors: metadata pair is 'another', but"):
        read_recording(_manifest(tmp_path, [_part(whole, 0, 3), other]))
    meta, arrays = _part(whole, 3, 6)
    arrays["confidence"] = np.ones((len(arrays["anchor_pos"]), 4))
    with pytest.raises(InputError, match="array confidence is not in every shard"):
        read_recording(_manifest(tmp_path, [_part(whole, 0, 3), (meta, arrays)]))
    good = {"format": "specdec-recording-manifest", "version": 1}
    cases = [
        ("[1]", r"m.json: it is \[1\]"),
        ("{", "manifest is not JSON"),
        (json.dumps(good | {"version": 3}), "version is 3; accepted: 1"),
        (json.dumps(good | {"shards": []}), r"shards is \[\]; accepted: a list"),
        (json.dumps(good | {"shards": ["no.safetensors"]}), "no.safetensors: no such file"),
    ]
    path = tmp_path / "m.json"
    for text, message in cases:
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_recording(path)


def test_catalogue_names_and_paths(tmp_path: Path):
    recording = make_pool(_rng())
    write_recording(tmp_path / "one.safetensors", recording.meta, recording.arrays)
    (tmp_path / "notes.json").write_text("{}")
    assert list(known_recordings(tmp_path)) == ["one"]
    shards = ["two-00.safetensors", "two-01.safetensors"]  # their manifest stands for them
    for name in shards:
        (tmp_path / name).touch()
    manifest = {"format": "specdec-recording-manifest", "version": 1, "shards": shards}
    (tmp_path / "two.json").write_text(json.dumps(manifest))
    assert list(known_recordings(tmp_path)) == ["one", "two"]
    found = find_recording(tmp_path / "one.safetensors")
    assert found.content_hash == recording.content_hash
    with pytest.raises(InputError, match="no-such-name: no such recording, expected a file or one"):
        find_recording("no-such-name")
    for name, path in known_recordings().items():
        assert find_recording(name).source == str(path)
