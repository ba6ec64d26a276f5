"""Loading a target and a drafter checkpoint as one pair."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from real_runner.engine.models import LivePair, LiveTarget
from real_runner.models.hub.coder import read_coder
from real_runner.models.hub.draft_config import DraftShape, read_shape, rope
from real_runner.models.hub.drafter import CheckpointDrafter
from real_runner.models.hub.files import (
    Checkpoint,
    as_device,
    as_dtype,
    open_checkpoint,
    require_transformers,
)
from real_runner.models.hub.hub_target import HubTarget, check_target, read_target
from real_runner.models.hub.layouts import EMBEDDING, HEAD, IGNORED, checkpoint_name
from traces.common.errors import InputError


@contextmanager
def _well_formed(name: str) -> Iterator[None]:
    """One line for values of a kind that no check foresaw: configs and headers are free JSON."""
    try:
        yield
    except (TypeError, AttributeError, LookupError, ArithmeticError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{name}: a value of config.json or of the tensor headers is malformed "
            f"({type(error).__name__}: {reason}); accepted: the layouts in checkpoints/layouts.py"
        ) from error


def load_checkpoint_pair(
    target: str,
    drafter: str,
    device: torch.device | str = "auto",
    dtype: torch.dtype | str = "float32",
    chat: bool = False,
) -> LivePair:
    """The live pair of a target (Qwen3, Llama) and a drafter (DFlash, DSpark), by folder or hub id.

    Configs, tensor names and shapes are all checked before any weights are read.
    Raises InputError, one line, on anything missing, mismatched or unsupported.
    """
    require_transformers()
    device, dtype = as_device(device), as_dtype(dtype)
    with _well_formed(f"target {target}, drafter {drafter}"):
        draft, base = open_checkpoint(drafter, "drafter"), open_checkpoint(target, "target")
        _match(draft, read_shape(draft), base.config)
        _outline(draft)
        check_target(base)
        coder = read_coder(base, chat)
        model = read_target(base, device, dtype)
        live = _read_drafter(draft, model)
    return LivePair(f"{base.name} + {draft.name}", model, {live.kind: live}, coder)


def load_target(
    target: str, device: torch.device | str = "auto", dtype: torch.dtype | str = "float32"
) -> HubTarget:
    """A target alone, by folder or hub id."""
    require_transformers()
    return read_target(open_checkpoint(target, "target"), as_device(device), as_dtype(dtype))


def load_drafter(drafter: str, target: LiveTarget) -> CheckpointDrafter:
    """A drafter, by folder or hub id, for a loaded target: its device, dtype and tables."""
    require_transformers()
    return _read_drafter(open_checkpoint(drafter, "drafter"), target)


def _read_drafter(draft: Checkpoint, target: LiveTarget) -> CheckpointDrafter:
    drafter = _outline(draft)
    shape = drafter.shape
    sizes = {
        "hidden_size": target.width,
        "vocab_size": target.vocab_size,
        "num_hidden_layers": target.layers,
    }
    _match(draft, shape, sizes)
    state = {
        name: draft.read(stored, wanted).to(target.device, target.dtype)
        for name, (stored, wanted) in _wanted(drafter).items()
    }
    drafter.load_state_dict(state, assign=True)
    embedding, head = target.embedding, target.head
    if shape.layout.own_tables:
        embedding, head = _table(draft, EMBEDDING, embedding), _table(draft, HEAD, head)
    drafter.place(embedding, head, *rope(draft))
    return drafter.eval().requires_grad_(False)


def _outline(draft: Checkpoint) -> CheckpointDrafter:
    """The drafter without its weights, every tensor of the checkpoint checked against it."""
    shape = read_shape(draft)
    rope(draft)
    with torch.device("meta"):
        drafter = CheckpointDrafter(shape, draft.name, draft.sha256())
    wanted = dict(_wanted(drafter).values())
    if shape.layout.own_tables:
        wanted |= dict.fromkeys((EMBEDDING, HEAD), (shape.vocab_size, shape.width))
    left = sorted(set(draft.tensors) - set(wanted) - set(IGNORED))
    if left:
        raise draft.refuse(
            f"unknown tensor {left[0]!r}; accepted: those of a "
            f"{shape.layout.architecture} with its config.json"
        )
    for stored, size in wanted.items():
        draft.check(stored, size)
    return drafter


def _wanted(drafter: CheckpointDrafter) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Our parameter -> tensor of the checkpoint and its shape."""
    return {
        name: (checkpoint_name(name), tuple(value.shape))
        for name, value in drafter.state_dict().items()
    }


def _match(draft: Checkpoint, shape: DraftShape, target: dict) -> None:
    """InputError unless the drafter was made for a target of this config."""
    pairs = (
        ("hidden_size", shape.width, "hidden_size"),
        ("vocab_size", shape.vocab_size, "vocab_size"),
        ("num_target_layers", shape.target_layers, "num_hidden_layers"),
    )
    for key, value, theirs in pairs:
        if value is not None and theirs in target and value != target[theirs]:
            raise draft.refuse(f"{key} {value}; accepted: {target[theirs]}, as in its target")
    depth = target.get("num_hidden_layers")
    if depth is not None and max(shape.taps) >= depth:  # the last state: normed or not is unsaid
        raise draft.refuse(
            f"target_layer_ids {max(shape.taps) - 1}; accepted: 0 to {depth - 2}, "
            f"its target has {depth} layers and the last one's state is not tapped"
        )


def _table(draft: Checkpoint, name: str, theirs: torch.Tensor) -> torch.Tensor:
    """The drafter's own (V, width) table; the target's tensor where the two are equal.

    DeepSpec copies the target's tables and freezes them, so one copy in memory serves both.
    """
    own = draft.read(name, tuple(theirs.shape)).to(theirs.device, theirs.dtype)
    return theirs if torch.equal(own, theirs) else own
