"""A drafter's shape, read from its config.json and checked."""

from __future__ import annotations

from dataclasses import dataclass

from real_runner.models.hub.files import Checkpoint, require_transformers
from real_runner.models.hub.layouts import LAYOUTS, Layout

ROPE_TYPES = ("default", "linear", "llama3", "yarn")  # those that depend on the position alone
ROPE_KEYS = (
    "hidden_size", "num_attention_heads", "head_dim", "max_position_embeddings",
    "rope_theta", "rope_scaling", "rope_parameters",
)  # fmt: skip
# options of newer drafters, with the only value that changes nothing
PLAIN = {
    "is_causal": (None, False),
    "dflash_query_causal": (None, False),
    "hidden_act": ("silu",),
    "input_embedding_scale": (None, 1.0),
    "output_multiplier": (None, 1.0),
    "final_logit_softcapping": (None, 0.0),
    "projector_type": (None,),
    "log_snr_conditioning": (None, False),
}


@dataclass(frozen=True, slots=True)
class DraftShape:
    """Sizes and options of a one-pass drafter."""

    layout: Layout
    slots: int  # block_size
    taps: tuple[int, ...]  # 1-based: state after that target layer
    target_layers: int | None  # num_target_layers, where the config says it
    mask_token: int
    vocab_size: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    norm_eps: float
    attention_bias: bool
    markov_rank: int  # 0: none
    confidence_width: int  # input of the confidence head; 0: none

    @property
    def depths(self) -> int:
        """Future tokens one pass predicts."""
        return self.slots if self.layout.shifted else self.slots - 1

    @property
    def kind(self) -> str:
        """`semi_autoregressive` with a Markov head, `block` (marginals alone) without."""
        return "semi_autoregressive" if self.markov_rank else "block"


def read_shape(checkpoint: Checkpoint) -> DraftShape:
    """The drafter's shape; InputError on an unknown architecture, option or missing key."""
    names = checkpoint.config.get("architectures") or ["none"]
    if names[0] not in LAYOUTS:
        raise checkpoint.refuse(f"architecture {names[0]}; accepted: {', '.join(LAYOUTS)}")
    layout = LAYOUTS[names[0]]
    _refuse_options(checkpoint)
    heads = _whole(checkpoint, "num_attention_heads")
    width = _whole(checkpoint, "hidden_size")
    rank, confidence = _heads(checkpoint, width) if layout.own_tables else (0, 0)
    shape = DraftShape(
        layout=layout,
        slots=_whole(checkpoint, "block_size", at_least=1 if layout.shifted else 2),
        taps=_taps(checkpoint),
        target_layers=_optional(checkpoint, "num_target_layers"),
        mask_token=_whole(checkpoint, "mask_token_id", at_least=0),
        vocab_size=_whole(checkpoint, "vocab_size"),
        width=width,
        layers=_whole(checkpoint, "num_hidden_layers"),
        heads=heads,
        kv_heads=_optional(checkpoint, "num_key_value_heads") or heads,
        head_dim=_optional(checkpoint, "head_dim") or width // heads,
        feed_forward=_whole(checkpoint, "intermediate_size"),
        norm_eps=float(_value(checkpoint, "rms_norm_eps", 1e-6)),
        attention_bias=bool(_value(checkpoint, "attention_bias", False)),
        markov_rank=rank,
        confidence_width=confidence,
    )
    if shape.heads % shape.kv_heads:
        raise checkpoint.refuse(
            f"num_key_value_heads {shape.kv_heads}; accepted: a divisor of {shape.heads} heads"
        )
    if shape.mask_token >= shape.vocab_size:
        raise checkpoint.refuse(
            f"mask_token_id {shape.mask_token}; accepted: below vocab_size {shape.vocab_size}"
        )
    return shape


def rope(checkpoint: Checkpoint):
    """Inverse frequencies (head_dim / 2,) and the factor on cosines and sines.

    transformers resolves the old (`rope_theta`, `rope_scaling`) and new (`rope_parameters`) keys.
    """
    require_transformers()
    from transformers.models.qwen3.modeling_qwen3 import Qwen3Config, Qwen3RotaryEmbedding

    raw = checkpoint.config
    given = {**(raw.get("rope_scaling") or {}), **(raw.get("rope_parameters") or {})}
    if "rope_theta" not in raw and "rope_theta" not in given:
        raise checkpoint.refuse("no rope_theta in config.json; accepted: a positive number")
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in ROPE_TYPES:
        raise checkpoint.refuse(f"rope_type {kind}; accepted: {', '.join(ROPE_TYPES)}")
    table = Qwen3RotaryEmbedding(Qwen3Config(**{key: raw[key] for key in ROPE_KEYS if key in raw}))
    return table.inv_freq, float(table.attention_scaling)


def _value(checkpoint: Checkpoint, key: str, default=None):
    """`key` of dflash_config, else of the config itself: releases keep it in either."""
    inner = checkpoint.config.get("dflash_config") or {}
    return inner.get(key, checkpoint.config.get(key, default))


def _whole(checkpoint: Checkpoint, key: str, at_least: int = 1) -> int:
    value = _value(checkpoint, key)
    if value is None:
        raise checkpoint.refuse(f"no {key} in config.json; accepted: a whole number")
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise checkpoint.refuse(f"{key} {value}; accepted: a whole number from {at_least}")
    return value


def _optional(checkpoint: Checkpoint, key: str) -> int | None:
    return None if _value(checkpoint, key) is None else _whole(checkpoint, key)


def _taps(checkpoint: Checkpoint) -> tuple[int, ...]:
    ids = _value(checkpoint, "target_layer_ids")
    whole = isinstance(ids, list) and all(isinstance(each, int) and each >= 0 for each in ids)
    if not whole or not ids:
        raise checkpoint.refuse(
            f"target_layer_ids {ids}; accepted: a list of layer numbers counted from 0"
        )
    return tuple(each + 1 for each in ids)


def _heads(checkpoint: Checkpoint, width: int) -> tuple[int, int]:
    """Markov rank and input width of the confidence head, 0 where there is none."""
    rank = _whole(checkpoint, "markov_rank", at_least=0)
    kind = _value(checkpoint, "markov_head_type", "vanilla")
    if rank and kind != "vanilla":
        raise checkpoint.refuse(f"markov_head_type {kind}; accepted: vanilla")
    if not _value(checkpoint, "enable_confidence_head", False):
        return rank, 0
    with_markov = bool(_value(checkpoint, "confidence_head_with_markov", False))
    return rank, width + rank * with_markov


def _refuse_options(checkpoint: Checkpoint) -> None:
    for key, plain in PLAIN.items():
        value = _value(checkpoint, key, plain[0])
        if value not in plain:
            raise checkpoint.refuse(f"{key} {value}; accepted: {plain[-1]}")
    types = _value(checkpoint, "layer_types")
    if types is None and _value(checkpoint, "use_sliding_window", False):
        types = ["sliding_attention"]
    for kind in types or ():
        if kind != "full_attention":
            raise checkpoint.refuse(f"layer_types {kind}; accepted: full_attention")
    narrow, vocab = _value(checkpoint, "draft_vocab_size"), _value(checkpoint, "vocab_size")
    if narrow not in (None, vocab):
        raise checkpoint.refuse(f"draft_vocab_size {narrow}; accepted: vocab_size {vocab}")
