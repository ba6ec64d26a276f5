"""The YAML header of a latency profile: what was timed, on what, how, and who says so."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from traces.common.errors import InputError
from traces.common.settings import Many, Section, key, read, whole
from traces.common.yaml import load_yaml

ANY_BATCH = "any"
MOST = 10**12  # of any size, so that no product of a few of them leaves a float
DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "float8": 1}


def _line(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text.strip()


def _day(value: Any) -> Any:
    """YAML reads an unquoted day as a date."""
    return value.isoformat() if isinstance(value, date) else value


def _rising(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if any(low >= high for low, high in pairwise(sizes)):
        raise ValueError("strictly increasing")
    return sizes


Line = Annotated[str, AfterValidator(_line)]
Unknown = Annotated[
    Annotated[int | float, Field(gt=0, lt=MOST)] | None,
    key(None, accepted="a number above 0, or null"),
]
Stated = Annotated[Line, BeforeValidator(_day), Field(default="")]


class TargetShape(Section):
    """Of the target; None: not known."""

    layers: Unknown
    hidden: Unknown
    kv_heads: Unknown
    head_dim: Unknown
    params_b: Unknown
    active_params_b: Unknown


class Device(Section):
    """Of one GPU; None: not known."""

    peak_tflops: Unknown
    bandwidth_gb_s: Unknown


class DrafterShape(Section):
    """Parameters, and tokens that a pass reads for each request; None: not known."""

    params_b: Unknown
    tokens_per_request: Unknown


class ProfileHeader(Section):
    """Everything about a profile that is not a time.

    fixed: values of the dimensions that the tables leave out. noise: spread of the timings, by any
    name.
    """

    hardware: Line
    num_gpus: whole(1, MOST)
    model: Line
    model_shape: TargetShape
    dtype: Line
    attention: Line
    engine: Literal["eager", "cuda_graph + eager tail"]
    graph_sizes: Annotated[Many[whole(1, MOST)], AfterValidator(_rising)]
    timing: Line
    source: Line
    kind: Literal["measured", "modelled"]
    license: Line
    fixed: dict[Literal["batch", "kv_prefix_tokens"], whole(1, MOST) | Literal["any"]] = key(
        accepted="a mapping of batch (from 1, or any) and kv_prefix_tokens (from 1)"
    )
    device: Device = Device()
    drafter: DrafterShape = DrafterShape()
    noise: dict[str, Annotated[int | float, Field(ge=0)]] = key(
        {}, accepted="a mapping of names to numbers from 0"
    )
    measured_on: Stated
    command: Stated
    notes: Annotated[str, BeforeValidator(lambda text: str(text or ""))] = ""

    @model_validator(mode="after")
    def _one_prefix(self) -> ProfileHeader:
        if self.fixed.get("kv_prefix_tokens") == ANY_BATCH:
            self.refuse("fixed", "a number of kv_prefix_tokens")
        return self

    @property
    def compute_ms_per_token(self) -> float | None:
        """Least milliseconds one packed token can cost: 2 x active parameters / peak FLOP/s."""
        return self._compute_ms(self.model_shape.active_params_b)

    @property
    def draft_ms_per_request(self) -> float | None:
        """Least milliseconds one more drafted block can cost, from the drafter's parameters."""
        per_token = self._compute_ms(self.drafter.params_b)
        tokens = self.drafter.tokens_per_request
        return None if per_token is None or tokens is None else per_token * tokens

    @property
    def kv_read_ms_per_token(self) -> float | None:
        """Milliseconds to read one context token's keys and values at full bandwidth."""
        shape, bandwidth = self.model_shape, self.device.bandwidth_gb_s
        parts = (shape.layers, shape.kv_heads, shape.head_dim, DTYPE_BYTES.get(self.dtype))
        if bandwidth is None or None in parts:
            return None
        layers, kv_heads, head_dim, width = parts
        return 2 * layers * kv_heads * head_dim * width / (bandwidth * 1e9 * self.num_gpus) * 1e3

    def _compute_ms(self, params_b: float | None) -> float | None:
        peak = self.device.peak_tflops
        if params_b is None or peak is None:
            return None
        return 2 * params_b * 1e9 / (peak * 1e12 * self.num_gpus) * 1e3


def read_header(path: Path) -> ProfileHeader:
    """Read and check a profile's YAML header.

    Raises:
        InputError: the file is missing or not a mapping, a field is missing, unknown or of the
            wrong kind.
    """
    try:
        raw = load_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot read the profile's header ({error.strerror})") from error
    except ValueError as error:
        raise InputError(f"{path}: not valid YAML ({error})") from error
    if isinstance(raw, dict):  # absent and null both mean unknown
        raw = {name: value for name, value in raw.items() if value is not None}
    return read(ProfileHeader, raw, where=str(path))
