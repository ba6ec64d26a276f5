"""Loading a target and a drafter checkpoint as one pair; transformers is loaded only then."""

from __future__ import annotations

import torch
from torch import Tensor

from real_runner.engine.models import LivePair, LiveTarget
from real_runner.models.hub.draft_config import (
    EMBEDDING,
    HEAD,
    IGNORED,
    DraftShape,
    checkpoint_name,
    read_shape,
    rope_rates,
)
from real_runner.models.hub.drafter import CheckpointDrafter
from real_runner.models.hub.files import (
    Checkpoint,
    open_checkpoint,
    refusing,
    require_transformers,
)
from real_runner.models.hub.target import check_target, read_target

# Values of a kind that no check foresaw: configs and headers are free JSON.
ODD = (TypeError, AttributeError, LookupError, ArithmeticError, ValueError)


def load_checkpoint_pair(
    target: str, drafter: str, device: torch.device, dtype: torch.dtype
) -> LivePair:
    """The live pair of a target (Qwen3, Llama) and a drafter (DFlash, DSpark), by folder or hub id.

    Configs, tensor names and shapes are all checked before any weights are read.
    Raises InputError, one line, on anything missing, mismatched or unsupported.
    """
    require_transformers()
    said = f"target {target}, drafter {drafter}: a value of config.json or of the tensor headers"
    with refusing(f"{said} is malformed", *ODD):
        draft, base = open_checkpoint(drafter, "drafter"), open_checkpoint(target, "target")
        shape = read_shape(draft)
        _match(draft, shape, *(base.config.get(key) for key in SIZES.values()))
        _outline(draft, shape)
        check_target(base)
        coder = HubCoder(base)
        model = read_target(base, device, dtype)
        live = read_drafter(draft, model)
    return LivePair(f"{base.name} + {draft.name}", model, {live.kind: live}, coder)


def read_drafter(draft: Checkpoint, target: LiveTarget) -> CheckpointDrafter:
    """A drafter for a loaded target: its device, dtype and tables."""
    shape = read_shape(draft)
    _match(draft, shape, target.width, target.vocab_size, target.num_layers)
    drafter = _outline(draft, shape)
    state = {
        name: draft.read(checkpoint_name(name), tuple(value.shape)).to(target.device, target.dtype)
        for name, value in drafter.state_dict().items()
    }
    drafter.load_state_dict(state, assign=True)
    embedding, head = target.embedding.weight, target.head
    if shape.shifted:
        embedding, head = _table(draft, EMBEDDING, embedding), _table(draft, HEAD, head)
    drafter.place(embedding, head, *rope_rates(draft))
    return drafter.eval().requires_grad_(False)


def _outline(draft: Checkpoint, shape: DraftShape) -> CheckpointDrafter:
    """The drafter without its weights, every tensor of the checkpoint checked against it."""
    rope_rates(draft)
    with torch.device("meta"):
        drafter = CheckpointDrafter(shape, draft.name, draft.sha256())
    wanted = {
        checkpoint_name(name): tuple(value.shape) for name, value in drafter.state_dict().items()
    }
    if shape.shifted:
        wanted |= dict.fromkeys((EMBEDDING, HEAD), (shape.vocab_size, shape.hidden_size))
    left = sorted(set(draft.tensors) - set(wanted) - set(IGNORED))
    if left:
        raise draft.refuse(
            f"unknown tensor {left[0]!r}; accepted: those of a {shape.architectures[0]} with its "
            "config.json"
        )
    for stored, size in wanted.items():
        draft.check(stored, size)
    return drafter


SIZES = {  # keys of a drafter's config, and what they are called in its target's
    "hidden_size": "hidden_size",
    "vocab_size": "vocab_size",
    "num_target_layers": "num_hidden_layers",
}


def _match(draft: Checkpoint, shape: DraftShape, *sizes: int | None) -> None:
    """InputError unless the drafter was made for a target of these sizes, None where unsaid."""
    for key, wanted in zip(SIZES, sizes, strict=True):
        value = getattr(shape, key)
        if None not in (value, wanted) and value != wanted:
            raise draft.refuse(f"{key} {value}; accepted: {wanted}, as in its target")
    depth = sizes[-1]
    if depth is not None and max(shape.taps) >= depth:  # the last state: normed or not is unsaid
        raise draft.refuse(
            f"target_layer_ids {max(shape.taps) - 1}; accepted: 0 to {depth - 2}, "
            f"its target has {depth} layers and the last one's state is not tapped"
        )


def _table(draft: Checkpoint, name: str, theirs: Tensor) -> Tensor:
    """The drafter's own (V, width) table; the target's tensor where the two are equal.

    DeepSpec copies the target's tables and freezes them, so one copy in memory serves both.
    """
    own = draft.read(name, tuple(theirs.shape)).to(theirs.device, theirs.dtype)
    return theirs if torch.equal(own, theirs) else own


class HubCoder:
    """TextCoder of a checkpoint's tokenizer; InputError without one."""

    def __init__(self, checkpoint: Checkpoint):
        transformers = require_transformers()
        if not any(checkpoint.folder.glob("tokenizer*")):
            raise checkpoint.refuse(
                "no tokenizer.json; accepted: a folder with its tokenizer's files"
            )
        # tokenizers raises bare Exception on a broken file
        with refusing(f"{checkpoint}: unreadable tokenizer"):
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(
                checkpoint.folder, local_files_only=True
            )

    def encode(self, text: str) -> list[int]:
        """Tokens of a prompt with the tokenizer's own special tokens."""
        return list(self.tokenizer(text)["input_ids"])

    def decode(self, tokens: list[int]) -> str:
        """Text of output tokens, special tokens left out."""
        return self.tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
