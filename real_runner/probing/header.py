"""What a measured profile says of itself: hardware, models, how it was timed."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import torch

from real_runner.probing.assemble import Rows, assemble
from real_runner.probing.grid import Cell
from real_runner.probing.measure import FRESH, Probe
from real_runner.probing.samples import Samples
from simulator.cost import LatencyProfile
from traces.profiles.header import ProfileHeader


@dataclass(frozen=True, slots=True)
class Story:
    """What samples do not tell about their making."""

    command: str = "real_runner.probing"
    repeats: str = "median of every cell's samples"  # how often, in how many passes
    notes: tuple[str, ...] = ()


def profile_of(
    probe: Probe,
    samples: Mapping[Cell, Samples],
    name: str = "probe",
    isotonic: bool = True,
    story: Story | None = None,
) -> LatencyProfile:
    """The profile of everything measured, in memory."""
    rows = assemble(samples, isotonic, probe.graph_sizes)
    header = _header(probe, rows, isotonic, story or Story())
    return LatencyProfile(name, header, rows.verify, rows.draft, rows.prefill)


def hardware(device: torch.device) -> str:
    """The device's own name; of a CPU also its cores and the threads at work."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{_cpu_name()} CPU, {_cores()} cores, {threads} thread{'s' if threads > 1 else ''}"


def short_name(device: torch.device) -> str:
    """For file names: h200 of NVIDIA H200, a100_sxm4_80gb of NVIDIA A100-SXM4-80GB, or cpu."""
    if device.type != "cuda":
        return device.type
    return file_name(torch.cuda.get_device_name(device))


def file_name(gpu: str) -> str:
    """A GPU's name in small letters, digits and underscores, its maker left out."""
    words = re.findall("[a-z0-9]+", gpu.lower())
    return "_".join(word for word in words if word not in ("nvidia", "amd", "geforce"))


def _cores() -> int:
    known = getattr(os, "sched_getaffinity", None)
    return len(known(0)) if known else os.cpu_count() or 1


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def type_name(dtype: torch.dtype) -> str:
    """float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")


def _header(probe: Probe, rows: Rows, isotonic: bool, story: Story) -> ProfileHeader:
    target, drafter = probe.target, probe.drafter
    graphs = tuple(sorted({row.packed_tokens_total for row in rows.verify if row.captured}))
    params_b = _params_b(target)
    return ProfileHeader(
        hardware=hardware(target.device),
        num_gpus=1,
        model=probe.pair.name,
        model_shape={
            "layers": target.layers,
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
        timing=_timing(probe, isotonic, story),
        source=f"measured by this project's probe: {story.command}",
        kind="measured",
        license="MIT",
        fixed={},
        device={"peak_tflops": None, "bandwidth_gb_s": None},
        drafter={"params_b": _params_b(drafter), "tokens_per_request": drafter.slots},
        noise=rows.noise,
        measured_on=date.today().isoformat(),
        command=story.command,
        notes="\n".join((*_models(probe), *story.notes)),
    )


def _timing(probe: Probe, isotonic: bool, story: Story) -> str:
    clock = "CUDA events" if probe.target.device.type == "cuda" else "the host's clock"
    text = (
        f"{story.repeats}; live steps without commit on random caches: the draft takes in {FRESH} "
        f"new states per request, then the trees are packed, verified and walked, by {clock}; "
        "plain decoding verifies alone; prefill until the first token is on the host"
    )
    if probe.graph_sizes and probe.target.device.type != "cuda":
        text += "; passes padded to graph sizes, but run uncaptured: no CUDA here"
    return text + (
        "; verify medians pooled so that they never fall with tokens" if isotonic else ""
    )


def _models(probe: Probe) -> tuple[str, str]:
    target, drafter = probe.target, probe.drafter
    return (
        f"Target {target.name}, sha256 {target.sha256}.",
        f"Drafter {drafter.name} ({drafter.kind}), sha256 {drafter.sha256}.",
    )


def _params_b(model) -> float | None:
    """Billions of parameters of the module behind a live model; None where there is none."""
    module = model if isinstance(model, torch.nn.Module) else getattr(model, "model", None)
    if not isinstance(module, torch.nn.Module):
        return None
    return round(sum(weight.numel() for weight in module.parameters()) * 1e-9, 6)
