"""Published drafters: what their config.json says, checked, and how their tensors are called.

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

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from torch import Tensor

from real_runner.models.hub.files import Checkpoint, require_transformers
from traces.common.settings import Many, Section, above, number, read, whole

ROPE_TYPES = ("default", "linear", "llama3", "yarn")  # those that depend on the position alone
ROPE_KEYS = (
    "hidden_size", "num_attention_heads", "head_dim", "max_position_embeddings",
    "rope_theta", "rope_scaling", "rope_parameters",
)  # fmt: skip
# our parameter -> tensor of the checkpoint, behind layers.N. for those of a layer
NAMES = {
    "fuse": "fc",  # (width, taps * width)
    "norm_context": "hidden_norm",
    "norm": "norm",
    "markov_in": "markov_head.markov_w1",  # (V, rank), row of the parent
    "markov_out": "markov_head.markov_w2",  # (V, rank), row of the child
    "confidence": "confidence_head.proj",  # (1, width + rank) and (1,)
    "norm_attention": "input_layernorm",
    "norm_feed": "post_attention_layernorm",
    "attention.query": "self_attn.q_proj",  # with biases under attention_bias
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "attention.norm_query": "self_attn.q_norm",  # (head_dim,)
    "attention.norm_key": "self_attn.k_norm",
    "feed.gate": "mlp.gate_proj",
    "feed.up": "mlp.up_proj",
    "feed.down": "mlp.down_proj",
}
EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"  # (V, width), of a layout with own tables
IGNORED = ("rotary_emb.inv_freq",)  # derived from the config
Size, NOT_EMPTY = whole(1, 2**30), Field(min_length=1)


def checkpoint_name(parameter: str) -> str:
    """Tensor name of one of our drafter's parameters, for example `layers.0.feed.up.weight`."""
    path, kind = parameter.rsplit(".", 1)
    if not path.startswith("layers."):
        return f"{NAMES[path]}.{kind}"
    _, layer, rest = path.split(".", 2)
    return f"layers.{layer}.{NAMES[rest]}.{kind}"


class DraftShape(Section):
    """Sizes and options of a one-pass drafter, as config.json or its dflash_config has them.

    Of options of newer drafters only the value that changes nothing is accepted.
    """

    model_config = ConfigDict(extra="ignore")

    architectures: Annotated[Many[Literal["DFlashDraftModel", "Qwen3DSparkModel"]], NOT_EMPTY]
    block_size: Size
    target_layer_ids: Annotated[Many[whole(0, 2**20)], NOT_EMPTY]
    num_target_layers: Size | None = None
    mask_token_id: whole(0, 2**30)
    vocab_size: Size
    draft_vocab_size: Size | None = None
    hidden_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    intermediate_size: Size
    rms_norm_eps: above(0, 1) = 1e-6
    attention_bias: bool = False
    markov_rank: whole(0, 2**30) | None = None
    markov_head_type: str = "vanilla"
    enable_confidence_head: bool = False
    confidence_head_with_markov: bool = False
    layer_types: Many[Literal["full_attention"]] | None = None
    use_sliding_window: bool | None = None
    is_causal: Literal[False] | None = None
    dflash_query_causal: Literal[False] | None = None
    hidden_act: Literal["silu"] = "silu"
    input_embedding_scale: number(1, 1) | None = None
    output_multiplier: number(1, 1) | None = None
    final_logit_softcapping: number(0, 0) | None = None
    projector_type: None = None
    log_snr_conditioning: Literal[False] | None = None

    @model_validator(mode="after")
    def _together(self) -> DraftShape:
        if self.num_attention_heads % self.kv_heads:
            self.refuse("num_key_value_heads", f"a divisor of {self.num_attention_heads} heads")
        if self.mask_token_id >= self.vocab_size:
            self.refuse("mask_token_id", f"below vocab_size {self.vocab_size}")
        if self.draft_vocab_size not in (None, self.vocab_size):
            self.refuse("draft_vocab_size", f"vocab_size {self.vocab_size}")
        if self.depths < 1:
            self.refuse("block_size", "a whole number from 2")
        if self.use_sliding_window and self.layer_types is None:
            self.refuse("use_sliding_window", "false, or full_attention in all layer_types")
        if self.shifted and self.markov_rank is None:
            self.refuse("markov_rank", "a whole number")
        if self.rank and self.markov_head_type != "vanilla":
            self.refuse("markov_head_type", "vanilla")
        return self

    @property
    def shifted(self) -> bool:
        """DSpark: slot 0 predicts depth 1; the checkpoint carries embedding, head and heads."""
        return self.architectures[0] == "Qwen3DSparkModel"

    @property
    def depths(self) -> int:
        """Future tokens one pass predicts."""
        return self.block_size if self.shifted else self.block_size - 1

    @property
    def rank(self) -> int:
        """Of the Markov head, 0 for none."""
        return self.markov_rank or 0 if self.shifted else 0

    @property
    def confidence_width(self) -> int:
        """Input of the confidence head, 0 for none."""
        if not (self.shifted and self.enable_confidence_head):
            return 0
        return self.hidden_size + self.rank * self.confidence_head_with_markov

    @property
    def taps(self) -> tuple[int, ...]:
        """Target layers, 1-based, after which states are tapped."""
        return tuple(each + 1 for each in self.target_layer_ids)

    @property
    def kv_heads(self) -> int:
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_size(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads


def read_shape(checkpoint: Checkpoint) -> DraftShape:
    """The drafter's shape; InputError on an unknown architecture, option or missing key."""
    inner = checkpoint.config.get("dflash_config") or {}  # releases keep keys in either
    return read(DraftShape, {**checkpoint.config, **inner}, where=str(checkpoint))


def rope_rates(checkpoint: Checkpoint) -> tuple[Tensor, float]:
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
