"""CAST's Figure 2 in numbers: latency of the target over packed tokens, relative to 16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from simulator.cost import StepCost, find_profile
from simulator.paper.text import number, table
from simulator.width_rule import fit_line

SIZES = (16, 24, 32, 48, 64, 96, 128)
BASE = SIZES[0]
FIGURE = (  # the lines of the figure
    "blackwell_qwen3_8b",
    "blackwell_qwen3_4b",
    "a6000_qwen3_8b",
    "h100_sxm_qwen3_8b_table5",
    "h100_sxm_qwen3_4b_table5",
)
OTHERS = (  # the paper's other probes
    "h100_sxm_qwen3_8b_table6",
    "h100_sxm_qwen3_4b_table6",
    "h100_sxm_llama31_8b",
    "h100_sxm_qwen3_coder_30b_a3b",
    "h100_nvl_qwen3_8b",
    "a100_qwen3_8b",
)
ELSE = ("b300", "mi355x", "small_pair_semi_cpu", "small_pair_block_cpu")  # not the paper's
CONTEXT = 1024


def relative(profile: str) -> dict[int, float]:
    """Verify latency over that of 16 packed tokens, at the sizes that the profile measured."""
    packed, ms = _probe(profile)
    at = dict(zip(packed.tolist(), ms.tolist(), strict=True))
    return {size: at[size] / at[BASE] for size in SIZES if size in at}


def line_miss(profile: str) -> tuple[float, int]:
    """Largest relative miss of CAST's line between 16 and 128 tokens, signed, and its size.

    Positive where the measured step is slower than the line says.
    """
    packed, ms = _probe(profile)
    inside = (packed >= BASE) & (packed <= SIZES[-1])
    c0_ms, c1_ms = fit_line(packed, ms)
    miss = ms[inside] / (c0_ms + c1_ms * packed[inside]) - 1
    worst = int(np.abs(miss).argmax())
    return float(miss[worst]), int(packed[inside][worst])


def _probe(profile: str) -> tuple[np.ndarray, np.ndarray]:
    return StepCost(find_profile(profile)).width_probe(CONTEXT)


def lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """The figure's numbers; of the configuration nothing is read."""
    yield "CAST (arXiv 2610.00321), Figure 2: target latency over packed tokens, relative to 16"
    groups = {
        "the figure's lines (paper, Table 5)": FIGURE,
        "the paper's other probes": OTHERS,
        "profiles from elsewhere, batch one": ELSE,
    }
    heads = ("profile", *map(str, SIZES), "c1/t(16)\n%/token", "line's\nworst miss", "at")
    for title, profiles in groups.items():
        yield ""
        yield title
        yield from table(heads, map(_cells, profiles))
    yield ""
    yield "c1/t(16): slope of CAST's line, in percent of the latency at 16 tokens per token more;"
    yield "worst miss: the measured step over the line. A jump, as of 128 tokens on the Blackwell"
    yield "with Qwen3-8B, is what no straight line can show. b300: whole engine steps at 8192"
    yield "tokens of context; small_pair_*: this project's CPU probes at their longest prefix."


def _cells(profile: str) -> tuple[str, ...]:
    ratio, (packed, ms) = relative(profile), _probe(profile)
    slope = fit_line(packed, ms)[1] / dict(zip(packed.tolist(), ms.tolist(), strict=True))[BASE]
    miss, size = line_miss(profile)
    cells = (number(ratio.get(size), 3) for size in SIZES)
    return profile, *cells, f"{100 * slope:+.3f}", f"{100 * miss:+.1f}%", str(size)
