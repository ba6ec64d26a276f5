"""What the tables share: a closed loop of a policy, what papers print, and text in columns."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import traces
from simulator.engine.inputs import choose_sequences, load_cost, load_recording
from simulator.engine.run import prepare, simulate
from simulator.engine.settings import read_settings
from simulator.results.summary import summarise
from simulator.studies.runs import check_closed_loop, fair_requests, load_shared
from traces.common.table import Table, render
from traces.recordings.recording import Recording

NONE = "-"  # where there is no value
FOLDER = Path(traces.__file__).parent / "published"
# The probe of the same GPU and target; none was published for the A6000 with Qwen3-4B.
PROBES = {
    "h100sxm_qwen3-8b": "h100_sxm_qwen3_8b_table5",
    "h100sxm_qwen3-4b": "h100_sxm_qwen3_4b_table5",
    "blackwell_qwen3-8b": "blackwell_qwen3_8b",
    "blackwell_qwen3-4b": "blackwell_qwen3_4b",
    "a6000_qwen3-8b": "a6000_qwen3_8b",
    "a6000_qwen3-4b": None,
    "h100sxm_llama3.1-8b": "h100_sxm_llama31_8b",
    "h100sxm_qwen3-coder-30b-a3b": "h100_sxm_qwen3_coder_30b_a3b",
    "h100sxm_qwen3-8b_t1": "h100_sxm_qwen3_8b_table5",
    "h100sxm_qwen3-4b_t1": "h100_sxm_qwen3_4b_table5",
}
# Widths that only another host of the same kind measured.
ELSEWHERE = {
    "a6000_qwen3-8b": "a6000_second_host_qwen3-8b",
    "a6000_qwen3-4b": "a6000_second_host_qwen3-4b",
}


def by_domain(recording: Recording, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """(n,) chosen sequences by domain, those that have any, then all of them."""
    domain = recording["domain"][chosen]
    found = {name: chosen[domain == i] for i, name in enumerate(recording.domains)}
    return {name: own for name, own in found.items() if len(own)} | {"all": chosen}


def played(cfg: Mapping[str, Any], node: Mapping[str, Any], concurrency: int) -> dict[str, Any]:
    """The summary of a closed loop that serves every prompt of the trace's split.

    Args:
        cfg: its trace, latency profile, server, seed and num_prompts are taken.
        node: the policy's.

    Raises:
        InputError: what the run refuses; no closed loop.
    """
    settings = read_settings(cfg)
    check_closed_loop(settings, "published")
    prompts = len(choose_sequences(cfg["trace"], load_recording(cfg["trace"])))
    load = {
        "max_concurrency": concurrency,
        "num_prompts": settings.num_prompts or fair_requests(concurrency, prompts),
    }
    job = load_shared({**cfg, "task": "run", "policy": dict(node), "goodput": None, **load})
    return summarise(job, simulate(prepare(job)))


def setting(cfg: Mapping[str, Any]) -> str:
    """Which recording and profile, for a title."""
    recording, profile = load_recording(cfg["trace"]), load_cost(cfg["latency"]).profile.name
    heat = f"T = {recording.temperature:g}"
    return f"{recording.meta['pair']}, {recording.depths} depths, {heat}, profile {profile}"


# ---------------- Text in columns.


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table; a line break in a title gives two lines of titles."""
    text = render([Table(heads, [list(row) for row in rows])], "table")
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def listed(columns: Mapping[str, Callable[[Any], str]], found: Iterable[Any]) -> list[str]:
    """The table with a row for each found: by title, what a column says of it."""
    return table(list(columns), ([cell(one) for cell in columns.values()] for one in found))


def number(value: float | None, digits: int) -> str:
    """A dash where there is no value."""
    return NONE if value is None else f"{value:.{digits}f}"


def percent(share: float | None) -> str:
    """A signed percentage."""
    return NONE if share is None else f"{100 * share:+.1f}%"


def span(values: Iterable[float], digits: int = 3) -> str:
    """ "low to high", or the value where all are the same as shown."""
    values = list(values)
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


# ---------------- What the papers print.


@dataclass(frozen=True, slots=True)
class PublishedSweep:
    """The trees of one setting: gains over the whole-block chain, and tokens per round."""

    setting: str
    gains: dict[tuple[str, int], list[float]]  # (domain, nodes): one a repeat
    lengths: dict[tuple[str, int], float]  # (domain, nodes): committed round length, 0 repeats

    @property
    def domains(self) -> list[str]:
        return list(dict.fromkeys(domain for domain, _ in self.gains))

    @property
    def widths(self) -> list[int]:
        """Measured in every domain, ascending."""
        every = {nodes for _, nodes in self.gains}
        return sorted(n for n in every if all((d, n) in self.gains for d in self.domains))

    def gain(self, nodes: int) -> float | None:
        """ms per token of the chain over the tree's, less 1: median of repeats, mean of domains."""
        if nodes not in self.widths:
            return None
        return float(np.mean([np.median(self.gains[domain, nodes]) for domain in self.domains]))

    @property
    def oracle(self) -> int:
        """The width of the largest gain."""
        return max(self.widths, key=self.gain)


@cache
def read_sweeps() -> dict[str, PublishedSweep]:
    """Every transcribed setting by name."""
    rows = [*read_csv("cast_decoding.csv"), *read_csv("cast_sweeps.csv")]
    chains = {
        (row["setting"], row.get("repeat"), row["domain"]): float(row["ms_per_token"])
        for row in rows
        if row["method"] == "chain"
    }
    found = {row["setting"]: PublishedSweep(row["setting"], defaultdict(list), {}) for row in rows}
    for row in rows:
        if row["method"] == "cast":
            own, key = found[row["setting"]], (row["domain"], int(row["nonroot_nodes"]))
            chain_ms = chains[row["setting"], row.get("repeat"), row["domain"]]
            own.gains[key].append(chain_ms / float(row["ms_per_token"]) - 1)
            own.lengths.setdefault(key, float(row["committed_round_length"]))
    return found


def read_csv(name: str) -> list[dict[str, str]]:
    """Rows of a transcribed file."""
    with (FOLDER / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def stated(name: str) -> dict[str, Any]:
    """What a paper states in its text, with its source (`stated.yaml`)."""
    return yaml.safe_load((FOLDER / "stated.yaml").read_text(encoding="utf-8"))[name]
