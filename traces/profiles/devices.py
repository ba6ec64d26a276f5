"""Devices and models in numbers, by name (``gpus.yaml``, ``models.yaml``) or given one by one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from traces.common.errors import InputError, bare, refusal
from traces.common.settings import S, Section, above, read, whole
from traces.profiles.header import DTYPE_BYTES
from traces.profiles.profile import LatencyProfile

_HERE = Path(__file__).parent


Most = above(0, 1e9)
Count = whole(1, 10**9)


class Gpu(Section):
    """One device: dense TFLOP/s of the matrix units, GB/s and GB (10^9 bytes) of memory."""

    name: str = "unnamed"
    peak_tflops: Most
    bandwidth_gb_s: Most
    memory_gb: Most | None = None
    source: str = "given in the configuration"


class ModelShape(Section):
    """A decoder: layers, widths, and billions of parameters. One without experts is dense."""

    name: str = "unnamed"
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    params_b: Most
    active_params_b: Most | None = None  # None: all of them
    experts: Count | None = None
    experts_per_token: Count | None = None

    @property
    def active_b(self) -> float:
        """Billions of parameters that one token passes."""
        return self.params_b if self.active_params_b is None else self.active_params_b

    def kv_bytes(self, dtype_bytes: float, tensor_parallel: int = 1) -> float:
        """Bytes of one token's keys and values on one GPU; heads are shared out, or repeated."""
        heads = -(-self.kv_heads // tensor_parallel)
        return 2 * self.layers * heads * self.head_dim * dtype_bytes


def find_gpu(value: Any, key: str = "gpu") -> Gpu:
    """A device by name (however its letters and figures are set apart), or from its numbers.

    Raises:
        InputError: beginning with `key`, for an unknown name or a number that is none.
    """
    return _find(Gpu, "gpus.yaml", value, key)


def find_model(value: Any, key: str = "model") -> ModelShape:
    """A model by name (as of `find_gpu`), or from a mapping of its numbers.

    Raises:
        InputError: beginning with `key`, for an unknown name, a number that is none, or experts
            without their numbers.
    """
    model = _find(ModelShape, "models.yaml", value, key)
    routed = (model.active_params_b, model.experts, model.experts_per_token)
    if any(item is None for item in routed) and any(item is not None for item in routed):
        raise InputError(
            f"{key} {model.name}: accepted: active_params_b, experts and experts_per_token "
            "together, or none of them"
        )
    if model.experts is not None:
        below = model.active_b < model.params_b and model.experts_per_token < model.experts
        if not below:
            raise InputError(
                f"{key} {model.name}: accepted: fewer active parameters than parameters, and "
                "fewer experts per token than experts"
            )
    return model


@cache
def known(file: str) -> dict[str, Mapping[str, Any]]:
    """The entries of a shipped table, by name."""
    return yaml.safe_load((_HERE / file).read_text(encoding="utf-8"))


def _find(kind: type[S], file: str, value: Any, key: str) -> S:
    if isinstance(value, kind):
        return value
    if isinstance(value, Mapping):
        return read(kind, value, f"{key}.")
    table = known(file)
    name = {bare(name): name for name in table}.get(bare(str(value)))
    if name is None:
        listed = ", ".join(name for name in kind.model_fields if name != "source")
        accepted = f"{', '.join(table)}, or a mapping of {listed}"
        raise InputError(refusal(key, value, accepted, table))
    return kind(name=name, **table[name])


# ---------------- Times that no device could reach: most likely in another unit.


LEAST_SHARE = 1 / 3  # of the time to read the weights once: caches and rounded sizes leave room


def suspicious(profile: LatencyProfile) -> str | None:
    """One line about a step, a draft or a prefill that is faster than its weights can be read.

    Every one of them reads the weights at least once. None where all are slower, or where the
    header leaves parameters, dtype or bandwidth open (that of a known device is looked up).
    """
    header = profile.header
    bandwidth_gb_s, bytes_each = header.device.bandwidth_gb_s, DTYPE_BYTES.get(header.dtype)
    if bandwidth_gb_s is None:  # that of the known device whose name the header's holds
        hardware, gpus = _words(header.hardware), known("gpus.yaml").items()
        found = (gpu["bandwidth_gb_s"] for name, gpu in gpus if _words(name) <= hardware)
        bandwidth_gb_s = max(found, default=None)
    if bandwidth_gb_s is None or bytes_each is None:
        return None
    target_b, drafter_b = header.model_shape.active_params_b, header.drafter.params_b
    for what, params_b, times_ms in (
        ("step", target_b, [row.verify_ms for row in profile.verify]),
        ("draft", drafter_b, [row.draft_ms for row in profile.draft]),
        ("prefill", target_b, [row.prefill_ms for row in profile.prefill]),
    ):
        if params_b is None or not times_ms:
            continue
        read_gb = params_b * bytes_each
        floor_ms = read_gb / (bandwidth_gb_s * header.num_gpus) * 1e3
        if min(times_ms) < LEAST_SHARE * floor_ms:
            gpus = f"{header.num_gpus} x " if header.num_gpus > 1 else ""
            return (
                f"{profile.described}: a {what} of {min(times_ms):.3g} ms would read "
                f"{read_gb:.3g} GB of weights, which takes {floor_ms:.3g} ms at "
                f"{gpus}{bandwidth_gb_s:g} GB/s; are the times in ms?"
            )
    return None


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))
