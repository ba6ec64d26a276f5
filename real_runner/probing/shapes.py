"""Random weights in the sizes of published pairs: what a step takes does not depend on them.

Targets as in Qwen's config.json (Qwen3-4B, Qwen3-8B); drafters as z-lab's DFlash for them (arXiv
2602.06036): five layers of the target's own sizes, blocks of 16, five tapped layers.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

from real_runner.engine.models import LivePair
from real_runner.models.hub.draft_config import DraftShape
from real_runner.models.hub.drafter import CheckpointDrafter
from real_runner.models.hub.files import require_transformers
from real_runner.models.hub.target import ATTENTION, HubTarget, engine_attention

DEVIATION = 0.02  # of weights, as Qwen3 starts its training


@dataclass(frozen=True, slots=True)
class PairShape:
    """Sizes of a Qwen3 target, and of a DFlash drafter for it."""

    title: str
    vocab: int
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    tied: bool  # embedding and head are one table
    taps: tuple[int, ...]  # 1-based, after these layers
    mask_token: int
    positions: int = 40_960
    theta: float = 1e6
    draft_layers: int = 5
    block: int = 16
    norm_eps: float = 1e-6


_QWEN3 = {
    **{"vocab": 151_936, "layers": 36, "heads": 32, "kv_heads": 8, "head_dim": 128},
    **{"taps": (2, 10, 18, 26, 34), "mask_token": 151_669},
}
SHAPES = {
    "qwen3_4b": PairShape("Qwen3-4B", width=2560, feed_forward=9728, tied=True, **_QWEN3),
    "qwen3_8b": PairShape("Qwen3-8B", width=4096, feed_forward=12_288, tied=False, **_QWEN3),
    "tiny": PairShape(
        "tiny", vocab=320, layers=6, width=32, heads=4, kv_heads=2, head_dim=16, feed_forward=48,
        tied=True, taps=(1, 2, 3, 4, 5), mask_token=319, positions=512, block=8,
    ),
}  # fmt: skip


class ByteText:
    """TextCoder without a tokenizer: a text's bytes, as such models write no language anyway."""

    def encode(self, text: str) -> list[int]:
        """The bytes of `text`."""
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        """Text of the tokens that are bytes."""
        return bytes(token for token in tokens if token < 256).decode(errors="replace")


def random_pair(name: str, device: torch.device, dtype: torch.dtype, seed: int = 0) -> LivePair:
    """A pair in the sizes of `SHAPES[name]`, made on `device` itself.

    Raises:
        InputError: no transformers.
    """
    shape = SHAPES[name]
    fingerprint = hashlib.sha256(f"{shape} {seed} {dtype}".encode()).hexdigest()
    noise = torch.Generator(device).manual_seed(seed)
    target = HubTarget(
        _target(shape, device, dtype, noise), f"{shape.title} shapes, random weights", fingerprint
    )
    with torch.device("meta"):  # no layer has buffers, and every weight is drawn
        drafter = CheckpointDrafter(_draft_shape(shape), f"DFlash for {target.name}", fingerprint)
    drafter = _filled(drafter.to(dtype).to_empty(device=device), noise)
    half = torch.arange(0, shape.head_dim, 2, device=device, dtype=torch.float32)
    drafter.place(
        target.embedding.weight, target.head, shape.theta ** (-half / shape.head_dim), 1.0
    )
    return LivePair(target.name, target, {drafter.kind: drafter}, ByteText())


def _target(shape: PairShape, device, dtype, noise: torch.Generator) -> torch.nn.Module:
    transformers = require_transformers()
    transformers.AttentionInterface.register(ATTENTION, engine_attention)
    config = transformers.Qwen3Config(
        vocab_size=shape.vocab,
        hidden_size=shape.width,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.positions,
        rms_norm_eps=shape.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.theta},
        tie_word_embeddings=shape.tied,
    )
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=ATTENTION
        )
    return _filled(model, noise)


def _draft_shape(shape: PairShape) -> DraftShape:
    return DraftShape(
        architectures=["DFlashDraftModel"],
        block_size=shape.block,
        target_layer_ids=[tap - 1 for tap in shape.taps],
        mask_token_id=shape.mask_token,
        vocab_size=shape.vocab,
        hidden_size=shape.width,
        num_hidden_layers=shape.draft_layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.feed_forward,
        rms_norm_eps=shape.norm_eps,
    )


@torch.no_grad()
def _filled(model: torch.nn.Module, noise: torch.Generator) -> torch.nn.Module:
    """Every weight drawn from one stream, gains at one."""
    for weight in model.parameters():
        if weight.dim() > 1:
            weight.normal_(0.0, DEVIATION, generator=noise)
        else:
            weight.fill_(1.0)
    return model.eval().requires_grad_(False)
