"""A transformers language model whose attention is the engine's.

transformers runs embeddings, projections, rotary positions, norms and feed-forward layers; the
attention function registered here hands rotated queries, keys and values to `attend` instead of
using a cache or a mask. No mask function is registered for its name, and transformers then builds
no mask at all (masking_utils, from 4.57 on).
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from real_runner.engine.models import Attend
from real_runner.models.hub.draft_config import ROPE_TYPES
from real_runner.models.hub.files import Checkpoint, refusing, require_transformers

ATTENTION = "specsim"
TARGETS = {"Qwen3ForCausalLM": "qwen3", "LlamaForCausalLM": "llama"}  # architecture: model_type


def engine_attention(module, query, key, value, attention_mask, *, engine_attend, **_):
    """Attention function for transformers: (b, t, heads, head_dim), and no weights."""
    if attention_mask is not None:
        raise RuntimeError("transformers built an attention mask; the engine's attend owns masks")
    return engine_attend(module.layer_idx, query, key, value).transpose(1, 2), None


class HubTarget:
    """LiveTarget around a transformers causal language model."""

    banned_tokens: tuple[int, ...] = ()

    def __init__(self, model, name: str, sha256: str):
        config = model.config
        self.model, self.name, self.sha256 = model, name, sha256
        self.vocab_size, self.width = config.vocab_size, config.hidden_size
        self.num_layers, self.kv_heads = config.num_hidden_layers, config.num_key_value_heads
        self.head_dim = model.model.layers[0].self_attn.head_dim
        self.max_positions = config.max_position_embeddings
        eos = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        eos = config.eos_token_id if eos is None else eos  # one, several or none
        self.eos_tokens = () if eos is None else tuple(np.atleast_1d(eos).tolist())
        self.embedding = model.model.embed_tokens
        self.head = model.lm_head.weight
        self.device, self.dtype = self.head.device, self.head.dtype

    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, taps: tuple[int, ...] = ()
    ) -> tuple[Tensor, Tensor]:
        """See `LiveTarget.forward`."""
        kept: dict[int, Tensor] = {}
        layers = self.model.model.layers
        hooks = [layers[t - 1].register_forward_hook(partial(_keep, kept, t)) for t in set(taps)]
        try:
            hidden = self.model.model(
                input_ids=tokens, position_ids=positions, use_cache=False, engine_attend=attend
            ).last_hidden_state
        finally:
            for hook in hooks:
                hook.remove()
        if not taps:
            return hidden, hidden[..., :0]
        return hidden, torch.cat([kept[tap] for tap in taps], -1)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., width) to (..., V)."""
        return self.model.lm_head(hidden)


def _keep(kept: dict[int, Tensor], tap: int, _module, _inputs, output) -> None:
    """Hook of a tapped layer."""
    kept[tap] = output[0] if isinstance(output, tuple) else output


def read_target(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> HubTarget:
    """Load a target; InputError as check_target.

    In float64 transformers still takes norms and rotary angles in float32.
    """
    check_target(checkpoint)
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # and reports: what is wrong with a checkpoint is said here
    logging.set_verbosity_error()
    with refusing(f"{checkpoint}: transformers cannot load it"):
        model = AutoModelForCausalLM.from_pretrained(
            checkpoint.folder, dtype=dtype, attn_implementation=ATTENTION, local_files_only=True
        )
    model = model.to(device).eval().requires_grad_(False)
    return HubTarget(model, checkpoint.name, checkpoint.sha256())


def check_target(checkpoint: Checkpoint) -> None:
    """InputError on a config the engine's attention does not run, or a missing tensor.

    Reads no weights: shapes come from a model without memory.
    """
    transformers = require_transformers()
    names = checkpoint.config.get("architectures") or ["none"]
    if TARGETS.get(names[0], "none") != checkpoint.config.get("model_type"):
        raise checkpoint.refuse(
            f"architecture {names[0]}, model_type {checkpoint.config.get('model_type')}; "
            f"accepted: {', '.join(f'{key}, {value}' for key, value in TARGETS.items())}"
        )
    transformers.AttentionInterface.register(ATTENTION, engine_attention)
    with refusing(f"{checkpoint}: transformers cannot load it"):
        config = transformers.AutoConfig.from_pretrained(checkpoint.folder, local_files_only=True)
        config._attn_implementation = ATTENTION
        _refuse_options(checkpoint, config)
        with torch.device("meta"):
            skeleton = transformers.AutoModelForCausalLM.from_config(config)
        attention = skeleton.model.layers[0].self_attn
        plain = attention.head_dim**-0.5  # what the engine's attend multiplies scores by
        if abs(attention.scaling - plain) > 1e-9:
            raise checkpoint.refuse(f"attention scaling {attention.scaling}; accepted: {plain}")
        for name, parameter in skeleton.named_parameters():
            if name != "lm_head.weight" or not config.tie_word_embeddings:
                checkpoint.check(name, tuple(parameter.shape))


def _refuse_options(checkpoint: Checkpoint, config) -> None:
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ROPE_TYPES:
        raise checkpoint.refuse(f"rope_type {kind}; accepted: {', '.join(ROPE_TYPES)}")
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None) or ()
    if window is not None or any(each != "full_attention" for each in types):
        raise checkpoint.refuse(f"sliding_window {window}; accepted: full attention in all layers")
    for key in ("attn_logit_softcapping", "final_logit_softcapping", "quantization_config"):
        if getattr(config, key, None):
            raise checkpoint.refuse(f"{key} is {getattr(config, key)}; accepted: none")
