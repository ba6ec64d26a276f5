"""The YAML header of a latency profile: what was timed, on what, how, and who says so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

from traces.common.errors import InputError, near_note
from traces.common.yaml import load_yaml

KINDS = ("measured", "modelled")
ENGINES = ("eager", "cuda_graph + eager tail")
ANY_BATCH = "any"
MOST = 10**12  # of any size, so that no product of a few of them leaves a float

_TEXT = ("hardware", "model", "dtype", "attention", "engine", "timing", "source", "kind", "license")
_REQUIRED = (*_TEXT, "num_gpus", "model_shape", "graph_sizes", "fixed")
_PROVENANCE = ("measured_on", "command")
_OPTIONAL = ("device", "drafter", "noise", *_PROVENANCE, "notes")
_SHAPE = ("layers", "hidden", "kv_heads", "head_dim", "params_b", "active_params_b")
_DEVICE = ("peak_tflops", "bandwidth_gb_s")
_DRAFTER = ("params_b", "tokens_per_request")
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "float8": 1}


@dataclass(frozen=True, slots=True)
class ProfileHeader:
    """Everything about a profile that is not a time; unknown numbers are None."""

    hardware: str
    num_gpus: int
    model: str
    model_shape: Mapping[str, float | None]
    dtype: str
    attention: str
    engine: str
    graph_sizes: tuple[int, ...]
    timing: str
    source: str
    kind: str
    license: str
    fixed: Mapping[str, int | str]
    device: Mapping[str, float | None]
    drafter: Mapping[str, float | None]
    noise: Mapping[str, float] = field(default_factory=dict)  # spread of the timings, by any name
    measured_on: str = ""
    command: str = ""
    notes: str = ""

    @property
    def compute_ms_per_token(self) -> float | None:
        """Least milliseconds one packed token can cost: 2 x active parameters / peak FLOP/s."""
        return self._compute_ms(self.model_shape["active_params_b"])

    @property
    def draft_ms_per_request(self) -> float | None:
        """Least milliseconds one more drafted block can cost, from the drafter's parameters."""
        per_token = self._compute_ms(self.drafter["params_b"])
        tokens = self.drafter["tokens_per_request"]
        return None if per_token is None or tokens is None else per_token * tokens

    @property
    def kv_read_ms_per_token(self) -> float | None:
        """Milliseconds to read one context token's keys and values at full bandwidth."""
        shape, bandwidth = self.model_shape, self.device["bandwidth_gb_s"]
        parts = (shape["layers"], shape["kv_heads"], shape["head_dim"], DTYPE_BYTES.get(self.dtype))
        if bandwidth is None or None in parts:
            return None
        layers, kv_heads, head_dim, width = parts
        return 2 * layers * kv_heads * head_dim * width / (bandwidth * 1e9 * self.num_gpus) * 1e3

    def _compute_ms(self, params_b: float | None) -> float | None:
        peak = self.device["peak_tflops"]
        if params_b is None or peak is None:
            return None
        return 2 * params_b * 1e9 / (peak * 1e12 * self.num_gpus) * 1e3


def read_header(path: Path) -> ProfileHeader:
    """Read and check a profile's YAML header.

    Raises:
        InputError: the file is missing or not a mapping, a field is missing, unknown or of the
            wrong kind.
    """
    raw = _load(path)
    _refuse_others(path, "header field", raw, (*_REQUIRED, *_OPTIONAL))
    for key in _REQUIRED:
        if key not in raw:
            raise InputError(f"{path}: header field {key!r} is missing; accepted: {_fields()}")
    _choice(path, "kind", raw["kind"], KINDS)
    _choice(path, "engine", raw["engine"], ENGINES)
    return ProfileHeader(
        **{key: _text(path, key, raw[key]) for key in _TEXT},
        num_gpus=_count(path, "num_gpus", raw["num_gpus"]),
        model_shape=_numbers(path, "model_shape", raw["model_shape"], _SHAPE),
        graph_sizes=_graph_sizes(path, raw["graph_sizes"]),
        fixed=_fixed(path, raw["fixed"]),
        device=_numbers(path, "device", raw.get("device") or {}, _DEVICE),
        drafter=_numbers(path, "drafter", raw.get("drafter") or {}, _DRAFTER),
        noise=_noise(path, raw.get("noise") or {}),
        **{key: _provenance(path, key, raw[key]) for key in _PROVENANCE if key in raw},
        notes=str(raw.get("notes") or ""),
    )


def _fields() -> str:
    return ", ".join((*_REQUIRED, *_OPTIONAL))


def _load(path: Path) -> dict[str, Any]:
    try:
        raw = load_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot read the profile's header ({error.strerror})") from error
    except ValueError as error:
        raise InputError(f"{path}: not valid YAML ({error})") from error
    if not isinstance(raw, dict):
        raise InputError(f"{path}: value {raw!r:.60}; accepted: a mapping of {_fields()}")
    return raw


def _refuse_others(path: Path, what: str, raw: Mapping[Any, Any], names: tuple[str, ...]) -> None:
    """Raise InputError about the keys that are none of `names`."""
    others = sorted(set(raw) - set(names), key=str)
    if others:
        listed = ", ".join(f"{key!r:.60}" for key in others[:5])
        raise InputError(
            f"{path}: unknown {what} {listed}; accepted: {', '.join(names)}"
            f"{near_note(str(others[0]), names)}"
        )


def _choice(path: Path, key: str, value: Any, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        raise InputError(f"{path}: {key} is {value!r}; accepted: {', '.join(accepted)}")


def _text(path: Path, key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{path}: {key} is {value!r}; accepted: a line of text")
    return value.strip()


def _provenance(path: Path, key: str, value: Any) -> str:
    """A line of text; YAML reads an unquoted day as a date."""
    return _text(path, key, value.isoformat() if isinstance(value, date) else value)


def _noise(path: Path, raw: Any) -> dict[str, float]:
    if not isinstance(raw, dict):
        raise InputError(f"{path}: noise is {raw!r}; accepted: a mapping of names to numbers")
    for name, value in raw.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (isinstance(name, str) and number and 0 <= value < math.inf):
            raise InputError(f"{path}: noise {name!r} is {value!r}; accepted: a number from 0")
    return dict(raw)


def _count(path: Path, key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise InputError(
            f"{path}: {key} is {value!r}; accepted: a whole number of at least 1, at most {MOST}"
        )
    return value


def _numbers(path: Path, key: str, raw: Any, names: tuple[str, ...]) -> dict[str, float | None]:
    """A mapping of positive numbers; absent and null both mean unknown."""
    if not isinstance(raw, dict):
        raise InputError(f"{path}: {key} is {raw!r:.60}; accepted: a mapping of {', '.join(names)}")
    _refuse_others(path, f"key of {key}", raw, names)
    for name, value in raw.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 < value < MOST):
            raise InputError(
                f"{path}: {key}.{name} is {value!r}; accepted: above 0, or null; below {MOST}"
            )
    return {name: raw.get(name) for name in names}


def _graph_sizes(path: Path, raw: Any) -> tuple[int, ...]:
    if not isinstance(raw, list):
        raise InputError(f"{path}: graph_sizes is {raw!r}; accepted: a list of sizes, or []")
    sizes = tuple(_count(path, "graph_sizes", size) for size in raw)
    if any(low >= high for low, high in pairwise(sizes)):
        raise InputError(f"{path}: graph_sizes is {raw!r}; accepted: strictly increasing sizes")
    return sizes


def _fixed(path: Path, raw: Any) -> dict[str, int | str]:
    """Values of the dimensions the tables leave out (batch may be ``any``)."""
    names = ("batch", "kv_prefix_tokens")
    if not isinstance(raw, dict):
        raise InputError(f"{path}: fixed is {raw!r:.60}; accepted: a mapping of {', '.join(names)}")
    _refuse_others(path, "key of fixed", raw, names)
    for name, value in raw.items():
        if (name, value) != ("batch", ANY_BATCH):
            _count(path, f"fixed.{name}", value)
    return dict(raw)
