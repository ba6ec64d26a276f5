"""The small pair: a decoder-only target, and one-pass block drafters on its hidden states."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from real_runner.engine.models import Attend, LiveDrafter, Turn
from real_runner.models.layers import Layer, rope, rotate
from real_runner.models.small.config import BANNED, BOS, EOS, DrafterConfig, TargetConfig

NAME = "specsim-small"
LONGEST = 1024  # positions; trained on rows of 320 tokens
SHORT = {"block": "block", "semi_autoregressive": "semi"}  # kinds in names of models and files


class SwiGLU(nn.Module):
    """Gated feed-forward layer."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class TargetAttention(nn.Module):
    """Projections of the target's layers."""

    def __init__(self, config: TargetConfig):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def project(self, x: Tensor, turn: Turn) -> tuple[Tensor, Tensor, Tensor]:
        """See `Layer`."""
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        return rotate(query, turn), rotate(key, turn), value.transpose(1, 2)


class BlockAttention(nn.Module):
    """Projections of a drafter's layers, which take context too."""

    def __init__(self, config: DrafterConfig):
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key_value = nn.Linear(config.width, 2 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def project(self, x: Tensor, turn: Turn) -> tuple[Tensor, Tensor, Tensor]:
        """See `Layer`."""
        query = self.query(x).unflatten(-1, (self.heads, -1))
        return rotate(query, turn), *self.keys_values(x, turn)

    def keys_values(self, x: Tensor, turn: Turn) -> tuple[Tensor, Tensor]:
        """Rotated keys, and values, (b, heads, t, head_dim) of x (b, t, width)."""
        key, value = self.key_value(x).unflatten(-1, (2, self.heads, -1)).unbind(2)
        return rotate(key, turn), value.transpose(1, 2)


class Target(nn.Module):
    """Decoder-only language model, embedding and head tied: `LiveTarget`."""

    name, max_positions = f"{NAME}-target", LONGEST
    eos_tokens, banned_tokens = (EOS,), BANNED

    def __init__(self, config: TargetConfig, sha256: str = ""):
        super().__init__()
        self.config, self.sha256 = config, sha256
        self.vocab_size, self.width = config.vocab_size, config.width
        self.num_layers, self.kv_heads = config.layers, config.heads
        self.head_dim = config.width // config.heads
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList(
            Layer(TargetAttention(config), SwiGLU(config.width, config.feed_forward), config.width)
            for _ in range(config.layers)
        )
        self.norm = nn.RMSNorm(config.width, 1e-6)
        _scaled_init(self, config.layers)

    @property
    def head(self) -> Tensor:
        return self.embedding.weight

    @property
    def device(self) -> torch.device:
        return self.head.device

    @property
    def dtype(self) -> torch.dtype:
        return self.head.dtype

    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, taps: tuple[int, ...] = ()
    ) -> tuple[Tensor, Tensor]:
        """See `LiveTarget.forward`."""
        turn = _turn(positions, self.config, self.dtype)
        x, tapped = self.embedding(tokens), []
        for index, block in enumerate(self.blocks):
            x = block(x, turn, index, attend)
            if index + 1 in taps:
                tapped.append(x)
        return self.norm(x), torch.cat(tapped, -1) if tapped else x[..., :0]

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., width) to (..., V)."""
        return F.linear(hidden, self.head)


class Drafter(LiveDrafter):
    """Either small drafter; embedding and head are the target's, shared and never stored here."""

    def __init__(self, config: DrafterConfig, target: Target, sha256: str = ""):
        super().__init__()
        self.config, self.sha256 = config, sha256
        self.kind, self.name = config.kind, f"{NAME}-{SHORT[config.kind]}"
        self.depths, self.slots, self.taps = config.depths, config.block, config.taps
        self.num_layers, self.kv_heads = config.layers, config.heads
        self.width, self.head_dim = config.width, config.width // config.heads
        self.embedding = self.head = target.head.detach()
        self.fuse = nn.Linear(len(config.taps) * target.width, config.width, bias=False)
        self.norm_context = nn.RMSNorm(config.width, 1e-6)
        self.mask = nn.Parameter(torch.randn(config.width) * 0.02)
        self.layers = nn.ModuleList(
            Layer(BlockAttention(config), SwiGLU(config.width, config.feed_forward), config.width)
            for _ in range(config.layers)
        )
        self.norm = nn.RMSNorm(config.width, 1e-6)
        self.markov_in = self.markov_out = self.confidence = None
        if config.markov_rank:
            self.markov_in = nn.Embedding(target.vocab_size, config.markov_rank)
            self.markov_out = nn.Embedding(target.vocab_size, config.markov_rank)
            self.confidence = nn.Linear(config.width + config.markov_rank, 1)
        _scaled_init(self, config.layers)

    def turn(self, positions: Tensor) -> Turn:
        """See `LiveDrafter.turn`."""
        return _turn(positions, self.config, self.dtype)

    def block(self, anchor_token: Tensor) -> Tensor:
        """See `LiveDrafter.block`."""
        seed = F.embedding(anchor_token, self.embedding)[:, None]  # (b, 1, width)
        return torch.cat([seed, self.mask.expand(len(seed), self.slots - 1, -1)], 1)


def _turn(positions: Tensor, config: TargetConfig | DrafterConfig, dtype: torch.dtype) -> Turn:
    size = config.width // config.heads
    half = torch.arange(0, size, 2, device=positions.device, dtype=torch.float32)
    return rope(positions, config.rope_base ** (-half / size), dtype)


def _scaled_init(module: nn.Module, layers: int) -> None:
    """GPT-2 style initialisation: 0.02, residual projections divided by sqrt(2 layers)."""
    for name, weight in module.named_parameters():
        if weight.dim() < 2:
            continue
        residual = name.endswith(("out.weight", "down.weight"))
        nn.init.normal_(weight, 0.0, 0.02 / (2 * layers) ** 0.5 if residual else 0.02)


class SmallText:
    """`TextCoder` of the small pair."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """BOS and the prompt's tokens."""
        return [BOS, *self.tokenizer.encode(text).ids]

    def decode(self, tokens: list[int]) -> str:
        """Text of output tokens."""
        return self.tokenizer.decode(list(tokens))
