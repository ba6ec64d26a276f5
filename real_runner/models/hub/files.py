"""Files of a checkpoint folder: where it is, its config, its tensors, its fingerprint."""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from traces.common.errors import InputError
from traces.common.json import loads

WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]  # of a hub repository
ACCEPTED = "a folder with config.json and *.safetensors, or a hub id owner/name"
SAMPLED_BYTES = 4096  # of each tensor, in the fingerprint
INDEX = "model.safetensors.index.json"


def require_transformers():
    """The transformers module; InputError when it is not installed or too old.

    Before 5 it ignores the `rope_parameters` of newer config files, without a word.
    """
    try:
        import transformers
    except ImportError as error:
        raise InputError(
            f"real checkpoints need transformers ({one_line(error)}): "
            "install the extra with pip install 'specsim[live]'"
        ) from error
    if int(transformers.__version__.split(".")[0]) < 5:
        raise InputError(f"transformers {transformers.__version__}; accepted: 5 or newer")
    return transformers


def one_line(error: Exception) -> str:
    """An error's text on one line of at most 200 characters, for messages that must be one."""
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextmanager
def refusing(said: str, *kinds: type[Exception], end: str = "") -> Iterator[None]:
    """Turn errors of `kinds` (any, without them) into one line that begins with `said`."""
    try:
        yield
    except Exception as error:
        if isinstance(error, InputError) or not isinstance(error, kinds or Exception):
            raise
        raise InputError(f"{said} ({type(error).__name__}: {one_line(error)}){end}") from error


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened checkpoint folder: `what` and `name` are for messages."""

    what: str  # target or drafter
    name: str  # as the user gave it
    folder: Path
    config: dict
    tensors: dict[str, tuple[Path, tuple[int, ...]]]  # name -> file, shape

    def __str__(self) -> str:
        return f"{self.what} {self.name}"

    def refuse(self, reason: str) -> InputError:
        """The error to raise about this checkpoint."""
        return InputError(f"{self}: {reason}")

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """InputError unless tensor `name` is there in that shape."""
        if name not in self.tensors:
            raise self.refuse(f"no tensor {name!r} in its safetensors; accepted: shape {shape}")
        if self.tensors[name][1] != shape:
            raise self.refuse(
                f"tensor {name!r} has shape {self.tensors[name][1]}; accepted: {shape}"
            )

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Tensor `name`, checked to have that shape, as stored, on the CPU."""
        self.check(name, shape)
        with safe_open(self.tensors[name][0], framework="pt") as opened:
            return opened.get_tensor(name)

    def sha256(self) -> str:
        """Fingerprint: config.json, and of each weights file name, size, header and samples.

        Hashing every byte of a large model takes minutes, so of each tensor only the first
        SAMPLED_BYTES count. Equal prints mean the same shapes, files and samples, not equal bytes.
        """
        total = hashlib.sha256((self.folder / "config.json").read_bytes())
        for path in sorted({path for path, _ in self.tensors.values()}):
            header, entries = read_header(path)
            total.update(f"{path.name}:{path.stat().st_size}:".encode() + header)
            with path.open("rb") as file:
                for start, end in sorted(entry["data_offsets"] for entry in entries.values()):
                    file.seek(8 + len(header) + start)
                    total.update(file.read(min(SAMPLED_BYTES, end - start)))
        return total.hexdigest()


def open_checkpoint(name: str, what: str) -> Checkpoint:
    """Open a checkpoint by folder or hub id; `what` is target or drafter, for messages."""
    folder, tensors = _folder(name, what), {}
    checkpoint = Checkpoint(what, name, folder, _read_json(folder, "config.json", what, name), {})
    parts = ["model.safetensors"]
    if (folder / INDEX).exists():
        parts = _parts(_read_json(folder, INDEX, what, name), checkpoint)
    for part in parts:
        path = folder / part
        if not os.path.isfile(path):  # a name may be too long to ask pathlib
            raise checkpoint.refuse(
                f"no {part:.80}; accepted: model.safetensors, or {INDEX} with all its parts"
            )
        with refusing(f"{checkpoint}: {part} is not a readable safetensors file"):
            raw, entries = read_header(path)
            held = path.stat().st_size - 8 - len(raw)
            tensors |= {key: (path, _shape(key, entry, held)) for key, entry in entries.items()}
    checkpoint.tensors.update(tensors)
    return checkpoint


def _parts(index: dict, checkpoint: Checkpoint) -> list[str]:
    """Files that an index names: beside it, and nowhere else."""
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise checkpoint.refuse(f"no weight_map of {INDEX}; accepted: tensor names and files")
    for part in weight_map.values():
        if not (isinstance(part, str) and re.fullmatch(r"[\w][\w.-]*\.safetensors", part)):
            raise checkpoint.refuse(
                f"weight_map of {INDEX} names {part!a:.80}; accepted: .safetensors files beside it"
            )
    return sorted(set(weight_map.values()))


def read_header(path: Path) -> tuple[bytes, dict]:
    """Raw header of a safetensors file, and its tensors: name -> dtype, shape, data_offsets."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > path.stat().st_size:
            raise ValueError("header longer than the file")
        raw = file.read(length)
    entries = loads(raw.decode("utf-8"))
    return raw, {name: entry for name, entry in entries.items() if name != "__metadata__"}


def _shape(name: str, entry: dict, held: int) -> tuple[int, ...]:
    """Shape of a header's tensor; ValueError unless it is one whose bytes the file holds."""
    shape, (start, end) = entry["shape"], entry["data_offsets"]
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"{name!a:.40} has the shape {shape!a:.40}")
    if not (type(start) is type(end) is int and 0 <= start <= end <= held):
        raise ValueError(f"{name!a:.40} lies at {start!a:.20} to {end!a:.20} of {held} bytes")
    return tuple(shape)


def _folder(name: str, what: str) -> Path:
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    missing = f"{what} {name}: no such folder"
    if folder.exists() or not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise InputError(f"{missing}; accepted: {ACCEPTED}")
    require_transformers()
    from huggingface_hub import snapshot_download

    # The hub client raises errors of several libraries.
    with refusing(f"{missing}, and the hub gave no such checkpoint", end=f"; accepted: {ACCEPTED}"):
        return Path(snapshot_download(name, allow_patterns=WANTED))


def _read_json(folder: Path, file: str, what: str, name: str) -> dict:
    if not (folder / file).is_file():
        raise InputError(f"{what} {name}: no {file}; accepted: {ACCEPTED}")
    with refusing(f"{what} {name}: {file} is not JSON", ValueError):
        content = loads((folder / file).read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise InputError(f"{what} {name}: {file} is not a JSON object")
    return content
