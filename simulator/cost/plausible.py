"""Times that no device could reach: most likely in another unit."""

from __future__ import annotations

import re

from simulator.cost.header import DTYPE_BYTES, ProfileHeader
from simulator.cost.profile import LatencyProfile
from simulator.cost.shapes import known

LEAST_SHARE = 1 / 3  # of the time to read the weights once: caches and rounded sizes leave room


def suspicious(profile: LatencyProfile) -> str | None:
    """One line about a step, a draft or a prefill that is faster than its weights can be read.

    Every one of them reads the weights at least once. None where all are slower, or where the
    header leaves parameters, dtype or bandwidth open (that of a known device is looked up).
    """
    header = profile.header
    bandwidth_gb_s, bytes_each = _bandwidth_gb_s(header), DTYPE_BYTES.get(header.dtype)
    if bandwidth_gb_s is None or bytes_each is None:
        return None
    target_b, drafter_b = header.model_shape["active_params_b"], header.drafter["params_b"]
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


def _bandwidth_gb_s(header: ProfileHeader) -> float | None:
    """Of one device: the header's, else that of the known device whose name it holds."""
    stated = header.device["bandwidth_gb_s"]
    if stated is not None:
        return stated
    hardware = _words(header.hardware)
    found = [gpu["bandwidth_gb_s"] for name, gpu in known("gpus.yaml").items()
             if _words(name) <= hardware]  # fmt: skip
    return max(found, default=None)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))
