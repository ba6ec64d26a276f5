"""Saving and loading the small pair: safetensors weights, JSON shapes, tokenizer."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn

import real_runner
from real_runner.engine.models import LivePair
from real_runner.models.small.config import DRAFTERS, PairConfig, TargetConfig
from real_runner.models.small.pair import NAME, Drafter, SmallText, Target
from traces.common.errors import InputError
from traces.common.json import loads
from traces.common.settings import read

SHIPPED = Path(real_runner.__file__).parent / "small_pair"
CPU = torch.device("cpu")


def save_half(model: nn.Module, path: Path) -> None:
    """Write the weights as float16 and round the model itself to what was written."""
    half = {name: weight.half().contiguous() for name, weight in model.state_dict().items()}
    save_file(half, path)
    model.load_state_dict({name: weight.float() for name, weight in half.items()})


def save_shapes(target: TargetConfig, folder: Path) -> None:
    """`config.json`: the shapes of target and drafters."""
    shapes = PairConfig(target=target, drafters=DRAFTERS).model_dump(mode="json")
    (folder / "config.json").write_text(json.dumps(shapes, indent=2) + "\n")


def load_target(
    folder: Path, device: torch.device = CPU, dtype: torch.dtype = torch.float32
) -> Target:
    """The target in `folder`, in evaluation mode; InputError if it is not there or not ours."""
    with torch.device("meta"):
        target = Target(_shapes(folder).target)
    return _filled(target, Path(folder) / "target.safetensors", device, dtype)


def load_pair(
    folder: Path = SHIPPED, device: torch.device = CPU, dtype: torch.dtype = torch.float32
) -> LivePair:
    """Target, drafters and tokenizer in `folder`."""
    folder, drafters = Path(folder), {}
    target = load_target(folder, device, dtype)
    for kind, config in _shapes(folder).drafters:
        if config is not None:
            with torch.device("meta"):
                drafter = Drafter(config, target)
            path = folder / f"drafter_{kind}.safetensors"
            drafters[kind] = _filled(drafter, path, device, dtype)
    return LivePair(NAME, target, drafters, load_coder(folder))


def load_coder(folder: Path) -> SmallText:
    """The tokenizer saved beside the weights."""
    path = folder / "tokenizer.json"
    try:
        return SmallText(Tokenizer.from_file(str(path)))
    except Exception as error:  # the library raises nothing more special
        raise InputError(f"{path}: no tokenizer ({str(error).splitlines()[0]})") from None


def _shapes(folder: Path) -> PairConfig:
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise InputError(f"{path}: not found; expected a folder written by task=train")
    try:
        shapes = loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not JSON ({str(error).splitlines()[0]})") from None
    return read(PairConfig, shapes, where=str(path))


def _filled(model: nn.Module, path: Path, device: torch.device, dtype: torch.dtype):
    """A model without memory, given the weights of a file."""
    if not path.is_file():
        raise InputError(f"{path}: not found; expected weights written by task=train")
    try:
        weights = {name: weight.float() for name, weight in load_file(path).items()}
        model.load_state_dict(weights, assign=True)
    except (RuntimeError, OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: weights do not fit config.json ({reason})") from None
    model.sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return model.to(device, dtype).eval().requires_grad_(False)
