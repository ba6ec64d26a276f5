"""Reading a round log of CAST's: a torch file with a list of dicts, one a round."""

from __future__ import annotations

import io
import warnings
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from traces.common.errors import InputError
from traces.importers.files import InputFile
from traces.importers.node import Node, shown

KEYS = {
    "top_idx": "token ids, [depths, candidates]",
    "top_val": "logits, [depths, candidates]",
    "realized": "token ids, at most one for every depth",
    "accepted": "a whole number",
}
MOST_TOKEN = 2**31 - 4  # one more id stands for unknown tokens, and ids are int32
MOST_LOGIT = 1e9
MOST_ENTRIES = 2**27  # of a file's top_idx; nor more than it has bytes, as rounds can share theirs


@dataclass(frozen=True, slots=True, eq=False)
class Rounds:
    """N rounds of one file; L depths, K candidates in the order of the file."""

    source: InputFile
    top_idx: np.ndarray  # (N, L, K) int64
    top_val: np.ndarray  # (N, L, K) float64 logits
    realized: np.ndarray  # (N, L) int64, -1 where the log has none
    accepted: np.ndarray  # (N,) int64
    unused: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.accepted)

    @property
    def depths(self) -> int:
        return self.top_idx.shape[1]

    @property
    def candidates(self) -> int:
        return self.top_idx.shape[2]


def read_rounds(source: InputFile) -> Rounds:
    """The rounds of one file, checked one by one.

    Raises:
        InputError: a file that torch refuses to read as plain values, or a malformed round.
    """
    content, rounds, unused = _loaded(source), [], set()
    if not isinstance(content, list) or not content:
        Node(str(source.path), "", content).refuse("a list of at least one round")
    most = min(MOST_ENTRIES, len(source.data))
    for number, item in enumerate(content):
        node = Node(str(source.path), f"round {number}:", item)
        if not isinstance(item, dict):
            node.refuse(f"a dict with {', '.join(KEYS)}")
        rounds.append(_round(node, item))
        first, shape = rounds[0][0], rounds[-1][0].shape
        idx = Node(node.source, node.below("top_idx"), None)
        if shape != first.shape:
            idx.refuse(f"{first.shape}, as in round 0", f"of shape {shape}")
        if len(content) * first.size > most:  # before all of them are in memory
            idx.refuse(f"at most {most} entries in this file", f"{shape} in {len(content)} rounds")
        unused.update(shown(key).strip("'") for key in item if key not in KEYS)
    arrays = (np.stack(part) for part in zip(*rounds, strict=True))
    return Rounds(source, *arrays, unused=tuple(sorted(unused)))


def _loaded(source: InputFile) -> Any:
    """What the file holds; `weights_only` builds tensors and plain values and runs no code."""
    try:
        import torch
    except ImportError:
        raise InputError(
            f"{source.path}: reading a torch file needs torch, which is not installed; accepted: "
            "an installation with the extra `live` (pip install 'specsim[live]')"
        ) from None
    try:
        with zipfile.ZipFile(io.BytesIO(source.data)) as archive:
            packed = any(one.compress_type for one in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, EOFError):
        packed = False  # of the older format, or damaged: torch says what is wrong with it
    if packed:  # it may hold more than memory does; torch packs nothing
        Node(str(source.path), "", None).refuse("a file as torch.save writes it", "compressed")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old pickles; what it cannot read, it refuses
            return torch.load(io.BytesIO(source.data), map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file raises whatever torch's reader runs into
        raise InputError(
            f"{source.path}: torch reads no plain values from it ({type(error).__name__}); "
            "accepted: a torch file of tensors, numbers, texts, lists and dicts alone"
        ) from None


def _round(node: Node, item: dict[Any, Any]) -> tuple[np.ndarray, ...]:
    """top_idx, top_val, realized (-1 behind the last known token) and accepted of one round."""
    parts = {}
    for key, accepted in KEYS.items():
        if key not in item:
            raise InputError(f"{node.source}: {node.at} {key} is missing; accepted: {accepted}")
        parts[key] = Node(node.source, node.below(key), item[key])
    idx, val, text, count = parts.values()
    tokens = _as_array(idx, "iu", 2, KEYS["top_idx"])
    logits = _as_array(val, "iuf", 2, KEYS["top_val"])
    _check_scores(idx, tokens, val, logits)
    known, depths = _as_array(text, "iu", 1, KEYS["realized"]), len(tokens)
    if len(known) > depths:
        text.refuse(f"at most {depths} tokens, one for every depth", f"{len(known)} tokens")
    _check_tokens(text, known)
    accepted = _as_array(count, "iu", 0, KEYS["accepted"])
    if not 0 <= accepted <= len(known):
        count.refuse(f"from 0 to {len(known)}, the number of realized tokens", str(accepted))
    realized = np.full(depths, -1, dtype=np.int64)
    realized[: len(known)] = known
    return tokens, logits, realized, accepted


def _check_scores(idx: Node, tokens: np.ndarray, val: Node, logits: np.ndarray) -> None:
    if not tokens.size:
        idx.refuse("at least one depth and one candidate", f"of shape {tokens.shape}")
    if logits.shape != tokens.shape:
        val.refuse(f"that of top_idx, {tokens.shape}", f"of shape {logits.shape}")
    _check_tokens(idx, tokens)
    bad = ~(np.abs(logits) <= MOST_LOGIT)  # NaN too
    _refuse_where(bad, val, logits, f"a finite logit, at most {MOST_LOGIT:g} in size")
    ordered = np.sort(tokens, axis=1)
    twice = ordered[:, 1:] == ordered[:, :-1]
    if twice.any():
        depth, column = (int(i) for i in np.argwhere(twice)[0])
        place = Node(idx.source, f"{idx.at}[{depth}]", None)
        place.refuse("every candidate once", f"a row with token {ordered[depth, column]} twice")


def _check_tokens(node: Node, values: np.ndarray) -> None:
    bad = (values < 0) | (values > MOST_TOKEN)
    _refuse_where(bad, node, values, f"a token id from 0 to {MOST_TOKEN}")


def _refuse_where(bad: np.ndarray, node: Node, values: np.ndarray, accepted: str) -> None:
    if bad.any():
        index = np.unravel_index(int(bad.argmax()), bad.shape)
        place = node.at + "".join(f"[{i}]" for i in index)
        Node(node.source, place, None).refuse(accepted, str(values[index]))


# ---------------- Arrays from tensors of a torch file, or from lists of numbers.


MOST_OF_ONE = 2**24  # entries of one array: a tensor's strides may claim more than its file holds
_HELD = {"i": "whole numbers", "u": "whole numbers", "f": "floating-point numbers"}


def _as_array(node: Node, kind: str, rank: int, accepted: str) -> np.ndarray:
    """The value as int64 (kind "iu") or float64 ("iuf") of that many dimensions.

    Raises:
        InputError: another type or rank, or more than `MOST_OF_ONE` entries.
    """
    is_torch = type(node.value).__module__.partition(".")[0] == "torch"
    array = _of_tensor(node.value) if is_torch else _of_list(node.value)
    if array is None or array.size > MOST_OF_ONE:
        node.refuse(accepted, shown(node.value))
    if array.ndim != rank or (array.size and array.dtype.kind not in kind):
        held = _HELD.get(array.dtype.kind, "no numbers")
        node.refuse(accepted, f"{held}, of shape {array.shape}")
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        node.refuse(accepted, "a number beyond 64 bits")
    return array.astype(np.int64 if kind == "iu" else np.float64)


def _of_tensor(value: Any) -> np.ndarray | None:
    """None for what is no dense tensor of plain numbers on the CPU, or too large to be true."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    if value.device.type != "cpu" or value.is_quantized or value.numel() > MOST_OF_ONE:
        return None
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        return None  # its strides repeat what the file holds once
    if value.is_complex() or value.dtype == torch.bool:
        return None
    try:
        wide = torch.float64 if value.is_floating_point() else torch.int64
        return value.detach().to(wide).resolve_neg().numpy()
    except RuntimeError:  # a type that torch cannot convert
        return None


def _of_list(value: Any) -> np.ndarray | None:
    if isinstance(value, bool) or not isinstance(value, list | tuple | int | float):
        return None
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError, RecursionError, RuntimeError):
        return None  # ragged, of mixed things, or with too large a number
    return None
