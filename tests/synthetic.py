"""Small synthetic recordings for tests: a random target, and a drafter that is the target in noise.

The target's law at output i of a sequence is softmax(head @ state_i), states drawn at random, so
tokens at temperature 0 are its argmax and above 0 a true sample of it. The drafter sees the same
states with noise that grows with depth, so realised tokens are often in its top ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traces.recordings.files import build_recording
from traces.recordings.recording import Recording
from traces.recordings.scores import log_softmax

HIDDEN = 16  # d
SHARPNESS = 4.0  # standard deviation of the target's logits
END_BOOST = 1.6  # of end-of-sequence's, so that lengths vary below max_new_tokens


@dataclass(frozen=True, slots=True)
class Text:
    """Sequences of a random target: common arrays, and the target's state behind every output."""

    arrays: dict[str, np.ndarray]
    states: np.ndarray  # (P, d)
    head: np.ndarray  # (V, d)
    rows: np.ndarray  # (A, D) target row that predicts the token at each depth


def make_meta(encoding: str, vocab: int, max_new_tokens: int, **changes) -> dict:
    """Metadata of a synthetic recording; the last token of the vocabulary is end-of-sequence."""
    kind = "block" if encoding == "pool" else "semi_autoregressive"
    meta = {
        "format": "specdec-recording",
        "version": 1,
        "encoding": encoding,
        "target": {"name": "synthetic-target", "sha256": "0" * 64},
        "drafter": {"name": "synthetic-drafter", "kind": kind, "sha256": "1" * 64},
        "block_semantics": "in_place",
        "vocab_size": vocab,
        "eos_token": vocab - 1,
        "temperature": 0.0,
        "dtype": "float32",
        "domains": ["code", "chat"],
        "seed": 7,
        "generation": {"max_new_tokens": max_new_tokens},
        "recorder_version": "test",
        "text_license": "CC0-1.0",
        "banned_tokens": [],
        "shared_head": False,
        "pair": "synthetic",
    }
    return meta | changes


def _join_text(prompts, outputs, depths: int) -> dict[str, np.ndarray]:
    """Common arrays from prompts and from outputs with their `depths` lookahead tokens."""
    prompt_len = np.array([len(p) for p in prompts])
    output_len = np.array([len(o) - depths for o in outputs])
    pieces = [piece for pair in zip(prompts, outputs, strict=True) for piece in pair]
    offset = np.concatenate([[0], np.cumsum(prompt_len + output_len + depths)])
    anchors = [
        offset[s] + prompt_len[s] + np.arange(output_len[s] - 1) for s in range(len(prompts))
    ]
    sequence = np.arange(len(prompts))
    return {
        "tokens": np.concatenate(pieces),
        "seq_offset": offset,
        "prompt_len": prompt_len,
        "output_len": output_len,
        "domain": sequence % 2,
        "split": sequence % 3,  # six sequences cover every (domain, split)
        "anchor_pos": np.concatenate(anchors).astype(np.int64),
    }


def make_text(
    rng: np.random.Generator,
    sequences: int,
    depths: int,
    vocab: int,
    max_new_tokens: int,
    temperature: float,
    lengths: Sequence[int] | None,
) -> Text:
    """Random prompts and the target's outputs, cut at end-of-sequence or at `lengths`."""
    head = rng.normal(size=(vocab, HIDDEN)).astype(np.float32)
    head[vocab - 1] *= END_BOOST
    prompts, outputs, states = [], [], []
    for s in range(sequences):
        count = (lengths[s] if lengths is not None else max_new_tokens) + depths
        state = rng.normal(size=(count, HIDDEN)) * SHARPNESS / np.sqrt(HIDDEN)
        state = state.astype(np.float32)
        logits = state.astype(np.float64) @ head.T.astype(np.float64)
        drawn = (logits + temperature * rng.gumbel(size=logits.shape)).argmax(axis=1)
        ends = np.flatnonzero(drawn[: count - depths] == vocab - 1)
        if lengths is None and len(ends):
            count = int(ends[0]) + 1 + depths
        prompts.append(rng.integers(0, vocab - 1, size=rng.integers(3, 9)))
        outputs.append(drawn[:count])
        states.append(state[:count])
    arrays = _join_text(prompts, outputs, depths)
    # Row of output i of a sequence predicts it; after anchor i come outputs i + 1 and on.
    first = np.concatenate([[0], np.cumsum(arrays["output_len"] + depths)])
    anchors = [first[s] + np.arange(n - 1) for s, n in enumerate(arrays["output_len"])]
    rows = np.concatenate(anchors).astype(np.int64)[:, None] + 1 + np.arange(depths)
    return Text(arrays, np.concatenate(states), head, rows)


def _noisy(rng: np.random.Generator, values: np.ndarray, noise: float) -> np.ndarray:
    """`values` (A, D, ...) with Gaussian noise that grows with the square root of the depth."""
    scale = noise * np.sqrt(1 + np.arange(values.shape[1]))
    return values + rng.normal(size=values.shape) * scale[:, None]


def _shape_meta(max_new_tokens: int, lengths: Sequence[int] | None) -> dict:
    if lengths is None:
        return {"max_new_tokens": max_new_tokens}
    return {"max_new_tokens": max(lengths), "ignore_eos": True}


def make_pool(
    rng: np.random.Generator,
    *,
    sequences: int = 6,
    depths: int = 4,
    pool: int = 8,
    vocab: int = 50,
    max_new_tokens: int = 24,
    temperature: float = 0.0,
    lengths: Sequence[int] | None = None,
    noise: float = 1.0,
    dtype: str = "float32",
    meta: dict | None = None,
) -> Recording:
    """A pool recording; `lengths` fixes output_len per sequence, `meta` overrides metadata."""
    text = make_text(rng, sequences, depths, vocab, max_new_tokens, temperature, lengths)
    logits = text.states.astype(np.float64) @ text.head.T
    logq = log_softmax(_noisy(rng, logits[text.rows], noise))  # (A, D, V)
    order = np.argsort(-logq, axis=-1, kind="stable")[..., :pool]
    following = text.arrays["anchor_pos"][:, None] + 1 + np.arange(depths)
    realised = text.arrays["tokens"][following]
    arrays = text.arrays | {
        "pool_token": order,
        "pool_logprob": np.take_along_axis(logq, order, axis=-1).astype(dtype),
        "path_logq": np.take_along_axis(logq, realised[..., None], axis=-1)[..., 0].astype(dtype),
    }
    if temperature > 0:
        arrays |= {"target_hidden": text.states, "target_head": text.head}
    changes = {"generation": _shape_meta(max_new_tokens, lengths), "temperature": temperature}
    header = make_meta("pool", vocab, max_new_tokens, **changes) | (meta or {})
    return build_recording(header, arrays, "synthetic pool")


def make_hidden(
    rng: np.random.Generator,
    *,
    sequences: int = 6,
    depths: int = 4,
    rank: int = 3,
    vocab: int = 50,
    max_new_tokens: int = 24,
    temperature: float = 0.0,
    lengths: Sequence[int] | None = None,
    noise: float = 0.25,
    markov: float = 0.5,
    dtype: str = "float32",
    meta: dict | None = None,
) -> Recording:
    """A semi-autoregressive hidden recording with a shared head; `markov` scales its factors."""
    text = make_text(rng, sequences, depths, vocab, max_new_tokens, temperature, lengths)
    arrays = text.arrays | {
        "hidden": _noisy(rng, text.states[text.rows], noise).astype(dtype),
        "head": text.head,
        "markov_w1": (rng.normal(size=(vocab, rank)) * markov).astype(dtype),
        "markov_w2": rng.normal(size=(vocab, rank)).astype(dtype),
    }
    if temperature > 0:
        arrays |= {"target_hidden": text.states}
    changes = {
        "generation": _shape_meta(max_new_tokens, lengths),
        "temperature": temperature,
        "shared_head": True,
    }
    header = make_meta("hidden", vocab, max_new_tokens, **changes) | (meta or {})
    return build_recording(header, arrays, "synthetic hidden")


def make_geometric(
    alpha: float,
    rng: np.random.Generator,
    *,
    sequences: int = 6,
    length: int = 64,
    depths: int = 8,
    pool: int = 4,
    vocab: int = 50,
    meta: dict | None = None,
) -> Recording:
    """A pool recording whose top-1 chain accepts each depth independently with chance `alpha`.

    Top-1 has probability alpha (kept within 1.5/V..0.99) and every other token an equal share of
    the rest, so the scores are calibrated. Outputs are uniform, all `length` long.
    """
    prompts = [rng.integers(0, vocab - 1, size=5) for _ in range(sequences)]
    outputs = [rng.integers(0, vocab - 1, size=length + depths) for _ in range(sequences)]
    arrays = _join_text(prompts, outputs, depths)
    realised = arrays["tokens"][arrays["anchor_pos"][:, None] + 1 + np.arange(depths)]
    other = (realised + rng.integers(1, vocab, size=realised.shape)) % vocab
    first = np.where(rng.random(realised.shape) < alpha, realised, other)  # (A, D)
    keys = rng.random((*realised.shape, vocab))
    np.put_along_axis(keys, first[..., None], np.inf, axis=-1)
    rest = np.sort(np.argsort(keys, axis=-1)[..., : pool - 1], axis=-1)
    hit = min(max(alpha, 1.5 / vocab), 0.99)
    miss = (1 - hit) / (vocab - 1)
    row = np.log([hit] + [miss] * (pool - 1)).astype(np.float32)
    arrays |= {
        "pool_token": np.concatenate([first[..., None], rest], axis=-1),
        "pool_logprob": np.broadcast_to(row, (*realised.shape, pool)),
        "path_logq": np.log(np.where(first == realised, hit, miss)).astype(np.float32),
    }
    changes = {"generation": {"max_new_tokens": length}, "pair": f"geometric-{alpha}"}
    header = make_meta("pool", vocab, length, **changes) | (meta or {})
    return build_recording(header, arrays, "synthetic geometric")


def make_tree(rng: np.random.Generator, *, children: int = 3, **options) -> Recording:
    """A tree recording of a hidden one (`make_hidden(rng, **options)`), rows padded.

    The root, the nodes of the top-1 chain and those of the realised path have their top
    `children`; the realised path also has its own tokens.
    """
    hidden = make_hidden(rng, **options)
    rows = [_tree_row(hidden, anchor, children) for anchor in range(hidden.num_anchors)]
    width = max(len(row) for row in rows) + 1
    unused = (0, -2, 0.0)
    table = np.array([row + [unused] * (width - len(row)) for row in rows])  # (A, M, 3)
    kept = {k: v for k, v in hidden.arrays.items() if k not in ("hidden", "head")}
    arrays = {k: v for k, v in kept.items() if not k.startswith("markov")} | {
        "tree_token": table[..., 0].astype(np.int64),
        "tree_parent": table[..., 1].astype(np.int64),
        "tree_logq": table[..., 2].astype(np.float32),
    }
    meta = dict(hidden.meta) | {"encoding": "tree", "shared_head": False}
    if hidden.temperature > 0:
        arrays["target_head"] = hidden["head"]
    return build_recording(meta, arrays, "synthetic tree")


def _tree_row(hidden: Recording, anchor: int, children: int) -> list[tuple[int, int, float]]:
    """(token, parent, logq) of every node of one anchor, level by level."""
    realised = hidden.realised(np.array([anchor]))[0]
    nodes: list[tuple[int, int, float]] = []
    path = chain = -1
    for depth in range(hidden.depths):
        expand = list(dict.fromkeys((path, chain)))
        path_below = chain_below = None
        for parent in expand:
            token = nodes[parent][0] if parent >= 0 else hidden.anchor_tokens(np.array([anchor]))[0]
            ranked, logq = (x[0] for x in hidden.conditional(anchor, depth, np.array([token])))
            keep = (np.arange(len(ranked)) < children) | (
                (parent == path) & (ranked == realised[depth])
            )
            first = len(nodes)
            nodes += [(int(t), parent, q) for t, q in zip(ranked[keep], logq[keep], strict=True)]
            if parent == chain:
                chain_below = first
            if parent == path:
                path_below = first + int((ranked[keep] == realised[depth]).argmax())
        path, chain = path_below, chain_below
    return nodes


def _tied_pool():
    """Log-probabilities cut to multiples of 1/2, so path sums are exact and often equal."""
    recording = make_pool(np.random.default_rng(3), depths=3, pool=5, lengths=[12] * 6)
    rounded = {name: np.floor(recording[name] * 2) / 2 for name in ("pool_logprob", "path_logq")}
    return build_recording(recording.meta, dict(recording.arrays) | rounded, "tied pool")


def _tied_hidden():
    """Integer factors (so logits are exact), and every token has a twin with the same rows."""
    recording = make_hidden(np.random.default_rng(4), depths=3, vocab=24, lengths=[12] * 6)
    arrays = dict(recording.arrays)
    arrays["hidden"] = np.round(arrays["hidden"])
    for name, scale in (("head", 1), ("markov_w1", 2), ("markov_w2", 1)):
        whole = np.round(arrays[name] * scale)
        arrays[name] = np.concatenate([whole[:12], whole[:12]])
    return build_recording(recording.meta, arrays, "tied hidden")


def order_recordings() -> dict:
    """By name: random pool and hidden recordings of 66 anchors, and those with ties."""
    return {
        "pool": make_pool(np.random.default_rng(1), lengths=[12] * 6),
        "hidden": make_hidden(np.random.default_rng(2), lengths=[12] * 6),
        "tied pool": _tied_pool(),
        "tied hidden": _tied_hidden(),
    }
