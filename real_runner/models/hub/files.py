"""Files of a checkpoint folder: where it is, its config, its tensors, its fingerprint."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from traces.common.errors import InputError
from traces.common.json import loads

WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]  # of a hub repository
ACCEPTED = "a folder with config.json and *.safetensors, or a hub id owner/name"
SAMPLED_BYTES = 4096  # of each tensor, in the fingerprint


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


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened checkpoint folder: `what` and `name` are for messages."""

    what: str  # target or drafter
    name: str  # as the user gave it
    folder: Path
    config: dict
    tensors: dict[str, tuple[Path, tuple[int, ...]]]  # name -> file, shape

    def refuse(self, reason: str) -> InputError:
        """The error to raise about this checkpoint."""
        return InputError(f"{self.what} {self.name}: {reason}")

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
    folder = _folder(name, what)
    config = _read_json(folder / "config.json", what, name)
    tensors = {}
    for path in _weight_files(folder, what, name):
        try:
            raw, entries = read_header(path)
            held = path.stat().st_size - 8 - len(raw)
            found = {key: (path, _shape(key, entry, held)) for key, entry in entries.items()}
        except (OSError, ValueError, struct.error, LookupError, TypeError, AttributeError) as error:
            raise InputError(
                f"{what} {name}: {path.name} is not a readable safetensors file ({one_line(error)})"
            ) from error
        tensors |= found
    return Checkpoint(what, name, folder, config, tensors)


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
    if folder.exists() or not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise InputError(f"{what} {name}: no such folder; accepted: {ACCEPTED}")
    require_transformers()
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=WANTED))
    except Exception as error:  # the hub client raises errors of several libraries
        raise InputError(
            f"{what} {name}: no such folder, and the hub gave no such checkpoint "
            f"({type(error).__name__}: {one_line(error)}); accepted: {ACCEPTED}"
        ) from error


def _weight_files(folder: Path, what: str, name: str) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = _parts(_read_json(index, what, name).get("weight_map"), what, name)
    else:
        names = ["model.safetensors"]
    missing = [part for part in names if not _is_file(folder / part)]
    if missing or not names:
        absent = missing[0] if missing else "weight_map of model.safetensors.index.json"
        raise InputError(
            f"{what} {name}: no {absent:.80}; accepted: model.safetensors, or "
            "model.safetensors.index.json with all its parts"
        )
    return [folder / part for part in names]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def _parts(weight_map: object, what: str, name: str) -> list[str]:
    """Files that an index names: beside it, and nowhere else."""
    names = list(weight_map.values()) if isinstance(weight_map, dict) else []
    for part in names:
        if not (isinstance(part, str) and re.fullmatch(r"[\w][\w.-]*\.safetensors", part)):
            raise InputError(
                f"{what} {name}: weight_map of model.safetensors.index.json names "
                f"{part!a:.80}; accepted: .safetensors files beside it"
            )
    return sorted(set(names))


def _read_json(path: Path, what: str, name: str) -> dict:
    if not path.is_file():
        raise InputError(f"{what} {name}: no {path.name}; accepted: {ACCEPTED}")
    try:
        content = loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{what} {name}: {path.name} is not JSON ({one_line(error)})") from error
    if not isinstance(content, dict):
        raise InputError(f"{what} {name}: {path.name} is not a JSON object")
    return content


def as_device(device: torch.device | str) -> torch.device:
    """`auto` (cuda where there is one), `cpu`, `cuda` or a torch device."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"device {device}: accepted: auto, cpu, cuda") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {device}: no CUDA device here; accepted: auto, cpu")
    return found


def as_dtype(dtype: torch.dtype | str) -> torch.dtype:
    """One of float32, float64 and bfloat16."""
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if found not in (torch.float32, torch.float64, torch.bfloat16):
        raise InputError(f"dtype {dtype}: accepted: float32, float64, bfloat16")
    return found
