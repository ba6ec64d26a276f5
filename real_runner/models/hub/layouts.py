"""The two published drafter layouts: tensor names, and what each layout decides.

DFlash (arXiv 2602.06036), as z-lab releases it: the block holds the anchor and its masked
successors in place, so slot i predicts position i and slot 0 predicts nothing; embedding and head
are the target's. DSpark (arXiv 2607.05147), as DeepSpec releases it: the same backbone, shifted by
one, so slot i predicts position i + 1 and every slot predicts; its own (frozen) copies of embedding
and head; Markov factors and a confidence head.

Both: `target_layer_ids` count decoder layers from 0 and name the state AFTER that layer, so id i is
tap i + 1 here. Context keys go through `k_norm` like those of the block; context positions are the
tokens' own, slot i stands at anchor + i; attention inside the block is bidirectional.
"""

from __future__ import annotations

from dataclasses import dataclass

# our parameter -> tensor of the checkpoint; {n} is the layer
BACKBONE = {
    "fuse.weight": "fc.weight",  # (width, taps * width)
    "norm_context.weight": "hidden_norm.weight",
    "norm.weight": "norm.weight",
}
LAYER = {
    "norm_attention.weight": "layers.{n}.input_layernorm.weight",
    "norm_feed.weight": "layers.{n}.post_attention_layernorm.weight",
    "attention.query.weight": "layers.{n}.self_attn.q_proj.weight",
    "attention.key.weight": "layers.{n}.self_attn.k_proj.weight",
    "attention.value.weight": "layers.{n}.self_attn.v_proj.weight",
    "attention.out.weight": "layers.{n}.self_attn.o_proj.weight",
    "attention.query.bias": "layers.{n}.self_attn.q_proj.bias",  # with attention_bias
    "attention.key.bias": "layers.{n}.self_attn.k_proj.bias",
    "attention.value.bias": "layers.{n}.self_attn.v_proj.bias",
    "attention.out.bias": "layers.{n}.self_attn.o_proj.bias",
    "attention.norm_query.weight": "layers.{n}.self_attn.q_norm.weight",  # (head_dim,)
    "attention.norm_key.weight": "layers.{n}.self_attn.k_norm.weight",
    "feed.gate.weight": "layers.{n}.mlp.gate_proj.weight",
    "feed.up.weight": "layers.{n}.mlp.up_proj.weight",
    "feed.down.weight": "layers.{n}.mlp.down_proj.weight",
}
HEADS = {
    "markov_in.weight": "markov_head.markov_w1.weight",  # (V, rank), row of the parent
    "markov_out.weight": "markov_head.markov_w2.weight",  # (V, rank), row of the child
    "confidence_head.weight": "confidence_head.proj.weight",  # (1, width + rank)
    "confidence_head.bias": "confidence_head.proj.bias",  # (1,)
}
EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"  # (V, width), of a layout with own tables
IGNORED = ("rotary_emb.inv_freq",)  # derived from the config


@dataclass(frozen=True, slots=True)
class Layout:
    """What the architecture's name settles."""

    architecture: str
    shifted: bool  # slot 0 predicts depth 1
    own_tables: bool  # carries embedding and head


LAYOUTS = {
    layout.architecture: layout
    for layout in (
        Layout("DFlashDraftModel", shifted=False, own_tables=False),
        Layout("Qwen3DSparkModel", shifted=True, own_tables=True),
    )
}


def checkpoint_name(parameter: str) -> str:
    """Tensor name of one of our drafter's parameters, for example `stack.0.feed.up.weight`."""
    if parameter.startswith("stack."):
        _, layer, rest = parameter.split(".", 2)
        return LAYER[rest].format(n=layer)
    return BACKBONE.get(parameter) or HEADS[parameter]
