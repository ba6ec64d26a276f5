"""From samples to a latency profile: its rows, and what it says of hardware, models and timing."""

from __future__ import annotations

import os
import platform
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import isotonic_regression

from real_runner.probing.grid import Cell, PrefillCell, Samples, StepCell
from real_runner.probing.measure import FRESH, Probe
from simulator.cost import DraftRow, LatencyProfile, PrefillRow, VerifyRow
from traces.profiles.header import ProfileHeader


@dataclass(frozen=True, slots=True)
class Rows:
    """The three tables, and how far samples were from their medians."""

    verify: tuple[VerifyRow, ...]
    draft: tuple[DraftRow, ...]
    prefill: tuple[PrefillRow, ...]
    noise: dict[str, float]  # relative deviations over a table's rows, the middle and the worst


def assemble(
    samples: Mapping[Cell, Samples], isotonic: bool = True, graph_sizes: Sequence[int] = ()
) -> Rows:
    """Medians in milliseconds, with their median absolute deviations.

    Args:
        isotonic: pool neighbours where a step of more tokens came out cheaper.
        graph_sizes: totals of captured graphs; up to the last, a row stands at its graph's size.
    """
    verify, draft, spread = [], [], []
    steps = sorted(cell for cell in samples if isinstance(cell, StepCell))
    for (batch, prefix), group in groupby(steps, lambda cell: (cell.batch, cell.prefix)):
        cells = list(group)
        rows, noise = _verify_rows(cells, samples, isotonic, graph_sizes)
        verify, spread = verify + rows, spread + noise
        # Drafts do not know how much will be verified: all steps of a batch and prefix together.
        seconds = [one for cell in cells for one in samples[cell].draft_s]
        if seconds:
            draft.append(DraftRow(batch, prefix, *middle(seconds)))
    prefill = [
        PrefillRow(cell.tokens, *middle(samples[cell].prefill_s))
        for cell in sorted(cell for cell in samples if isinstance(cell, PrefillCell))
    ]
    spreads = {
        "verify": spread,
        "draft": [row.noise_ms / row.draft_ms for row in draft],
        "prefill": [row.noise_ms / row.prefill_ms for row in prefill],
    }
    noise = {
        f"{table}_{name}_relative_mad": round(float(of(relative)), 5)
        for table, relative in spreads.items()
        if relative
        for name, of in (("median", np.median), ("worst", np.max))
    }
    return Rows(tuple(verify), tuple(draft), tuple(prefill), noise)


def _verify_rows(
    cells: list[StepCell],
    samples: Mapping[Cell, Samples],
    isotonic: bool,
    graph_sizes: Sequence[int],
) -> tuple[list[VerifyRow], list[float]]:
    """The rows of one batch and prefix, and the relative deviation of each."""
    by_size = {}
    for cell in cells:  # inside the graphs a step runs the next: the largest that does is its row
        graph = bisect_left(graph_sizes, cell.total)
        by_size[graph_sizes[graph] if graph < len(graph_sizes) else cell.total] = cell
    seconds = [samples[cell].verify_s for cell in by_size.values()]
    medians, noise = zip(*map(middle, seconds))
    spread = [one / ms for ms, one in zip(medians, noise)]
    if isotonic:
        medians = isotonic_regression(medians, weights=list(map(len, seconds))).x
    last = graph_sizes[-1] if graph_sizes else 0
    rows = [
        VerifyRow(cells[0].batch, cells[0].prefix, size, rounded(ms), size <= last, one)
        for size, ms, one in zip(by_size, medians, noise)
    ]
    return rows, spread


def middle(seconds: Sequence[float]) -> tuple[float, float]:
    """Median and median absolute deviation, in milliseconds."""
    ms = np.asarray(seconds) * 1e3
    median = np.median(ms)
    return rounded(median), rounded(np.median(np.abs(ms - median)))


def rounded(ms: float) -> float:
    """To the nanosecond, which no clock here resolves."""
    return round(float(ms), 6)


# ---------------- The header.


def profile_of(
    probe: Probe,
    samples: Mapping[Cell, Samples],
    name: str = "probe",
    isotonic: bool = True,
    command: str = "real_runner.probing",
    repeats: str = "median of every cell's samples",
    notes: Sequence[str] = (),
) -> LatencyProfile:
    """The profile of everything measured, in memory.

    command, repeats (how often, in how many passes), notes: what samples do not tell.
    """
    target, drafter = probe.target, probe.drafter
    rows = assemble(samples, isotonic, probe.graph_sizes)
    graphs = tuple(sorted({row.packed_tokens_total for row in rows.verify if row.captured}))
    params_b = _params_b(target)
    header = ProfileHeader(
        hardware=hardware(target.device),
        num_gpus=1,
        model=probe.pair.name,
        model_shape={
            "layers": target.num_layers,
            "hidden": target.width,
            "kv_heads": target.kv_heads,
            "head_dim": target.head_dim,
            "params_b": params_b,
            "active_params_b": params_b,
        },
        dtype=type_name(target.dtype),
        attention=(
            f"PyTorch {torch.__version__}, scaled_dot_product_attention, "
            f"{probe.settings.packing} packing"
        ),
        engine="cuda_graph + eager tail" if graphs else "eager",
        graph_sizes=graphs,
        timing=_timing(probe, isotonic, repeats),
        source=f"measured by this project's probe: {command}",
        kind="measured",
        license="MIT",
        fixed={},
        device={"peak_tflops": None, "bandwidth_gb_s": None},
        drafter={"params_b": _params_b(drafter), "tokens_per_request": drafter.slots},
        noise=rows.noise,
        measured_on=date.today().isoformat(),
        command=command,
        notes="\n".join(
            (
                f"Target {target.name}, sha256 {target.sha256}.",
                f"Drafter {drafter.name} ({drafter.kind}), sha256 {drafter.sha256}.",
                *notes,
            )
        ),
    )
    return LatencyProfile(name, header, rows.verify, rows.draft, rows.prefill)


def _timing(probe: Probe, isotonic: bool, repeats: str) -> str:
    cuda = probe.target.device.type == "cuda"
    clock = "CUDA events" if cuda else "the host's clock"
    text = (
        f"{repeats}; live steps without commit on random caches: the draft takes in {FRESH} "
        f"new states per request, then the trees are packed, verified and walked, by {clock}; "
        "plain decoding verifies alone; prefill until the first token is on the host"
    )
    if probe.graph_sizes and not cuda:
        text += "; passes padded to graph sizes, but run uncaptured: no CUDA here"
    return text + (
        "; verify medians pooled so that they never fall with tokens" if isotonic else ""
    )


def _params_b(model) -> float | None:
    """Billions of parameters of the module behind a live model; None where there is none."""
    module = model if isinstance(model, torch.nn.Module) else getattr(model, "model", None)
    if not isinstance(module, torch.nn.Module):
        return None
    return round(sum(weight.numel() for weight in module.parameters()) * 1e-9, 6)


def hardware(device: torch.device) -> str:
    """The device's own name; of a CPU also its cores and the threads at work."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:(.*)", info.read_text() if info.exists() else "")
    name = found[1].strip() if found else platform.processor() or platform.machine()
    known = getattr(os, "sched_getaffinity", None)
    cores, threads = len(known(0)) if known else os.cpu_count() or 1, torch.get_num_threads()
    return f"{name} CPU, {cores} cores, {threads} thread{'s' if threads > 1 else ''}"


def short_name(device: torch.device) -> str:
    """For file names: h200 of NVIDIA H200, a100_sxm4_80gb of NVIDIA A100-SXM4-80GB, or cpu."""
    if device.type != "cuda":
        return device.type
    return file_name(torch.cuda.get_device_name(device))


def file_name(gpu: str) -> str:
    """A GPU's name in small letters, digits and underscores, its maker left out."""
    words = re.findall("[a-z0-9]+", gpu.lower())
    return "_".join(word for word in words if word not in ("nvidia", "amd", "geforce"))


def type_name(dtype: torch.dtype) -> str:
    """float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")
