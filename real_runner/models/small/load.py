"""Saving and loading the small pair: safetensors weights, JSON shapes, tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import real_runner
from real_runner.models.small.config import DrafterConfig, TargetConfig, as_metadata
from real_runner.models.small.drafter import Drafter
from real_runner.models.small.target import Target
from traces.common.errors import InputError
from traces.common.json import loads

SHIPPED = Path(real_runner.__file__).parent / "small_pair"
DRAFTERS = {
    "block": DrafterConfig(kind="block", block=16),
    "semi_autoregressive": DrafterConfig(kind="semi_autoregressive", block=7, markov_rank=64),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, its drafters by kind, and their tokenizer, in float32 on the CPU."""

    folder: Path
    target: Target
    drafters: dict[str, Drafter]
    tokenizer: Tokenizer

    def sha256(self, part: str) -> str:
        """Hash of the weights file of `target` or of a drafter kind."""
        name = "target" if part == "target" else f"drafter_{part}"
        return hashlib.sha256((self.folder / f"{name}.safetensors").read_bytes()).hexdigest()


def save_half(model: torch.nn.Module, path: Path) -> None:
    """Write the weights as float16 and round the model itself to what was written."""
    half = {name: weight.half().contiguous() for name, weight in model.state_dict().items()}
    save_file(half, path)
    model.load_state_dict({name: weight.float() for name, weight in half.items()})


def save_shapes(target: TargetConfig, folder: Path) -> None:
    """`config.json`: the shapes of target and drafters."""
    drafters = {kind: as_metadata(config) for kind, config in DRAFTERS.items()}
    shapes = {"target": as_metadata(target), "drafters": drafters}
    (folder / "config.json").write_text(json.dumps(shapes, indent=2) + "\n")


def load_target(folder: Path) -> Target:
    """The target in `folder`, in evaluation mode; InputError if it is not there or not ours."""
    shapes = _shapes(folder)
    with _shaped(Path(folder) / "config.json", "target"):
        model = Target(TargetConfig(**shapes["target"]))
    return _filled(model, Path(folder) / "target.safetensors")


def load_pair(folder: Path = SHIPPED) -> Pair:
    """Target, drafters and tokenizer in `folder`."""
    folder = Path(folder)
    target = load_target(folder)
    drafters = {}
    for kind, shape in _shapes(folder)["drafters"].items():
        if kind not in DRAFTERS:  # it is part of a file's name
            raise InputError(
                f"{folder / 'config.json'}: drafters has the key {kind!r:.40}; accepted: "
                f"{', '.join(DRAFTERS)}"
            )
        path = folder / f"drafter_{kind}.safetensors"
        with _shaped(folder / "config.json", f"drafter {kind}"):
            config = DrafterConfig(**{**shape, "taps": tuple(shape["taps"])})
            if not all(1 <= tap <= target.config.layers for tap in config.taps):
                raise InputError(f"taps {config.taps} of {target.config.layers} layers")
            model = Drafter(config, target.config)
        drafters[kind] = _filled(model, path)
    return Pair(folder, target, drafters, _tokenizer(folder / "tokenizer.json"))


def _tokenizer(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more special
        raise InputError(f"{path}: no tokenizer ({str(error).splitlines()[0]})") from None


def _shapes(folder: Path) -> dict:
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise InputError(f"{path}: not found; expected a folder written by task=train")
    try:
        shapes = loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not JSON ({str(error).splitlines()[0]})") from None
    if not isinstance(shapes, dict) or not isinstance(shapes.get("drafters"), dict):
        raise InputError(f"{path}: accepted: an object with target and drafters")
    return shapes


@contextmanager
def _shaped(path: Path, part: str) -> Iterator[None]:
    """Name the file and the part whose shape is wrong."""
    try:
        yield
    except (KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        if str(error).startswith(str(path.parent)):
            raise  # names its file already
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path}: {part} has a bad shape ({reason}); accepted: what task=train writes"
        ) from None


def _filled(model, path: Path):
    if not path.is_file():
        raise InputError(f"{path}: not found; expected weights written by task=train")
    try:
        model.load_state_dict({name: w.float() for name, w in load_file(path).items()})
    except (RuntimeError, OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: weights do not fit config.json ({reason})") from None
    return model.eval().requires_grad_(False)
