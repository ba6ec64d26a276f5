"""The tables of a report: one per load, the configurations, and the list of runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from analysis.cells import block_cells, block_notes, headings
from analysis.compare import Block, Comparison
from analysis.configs import read_configs
from analysis.html import Html, details, join, table, tag
from analysis.look import look_of, policy_name
from analysis.metrics import Metric


def block_section(block: Block, metrics: Sequence[Metric]) -> Html:
    """One load."""
    rows = [
        [_name(row[0].text), *(tag("b", cell.text) if cell.best else cell.text for cell in row[1:])]
        for row in block_cells(block, metrics)
    ]
    head = headings(metrics)
    made = table(head, rows, left=(0, len(head) - 1))
    said = [tag("p", note, class_="note") for note in block_notes(block, metrics)]
    return join([tag("h4", block.load.title), made, said])


def _name(label: str) -> Html:
    colour = look_of(policy_name(label)).colour
    swatch = tag("span", "", class_="swatch", style=f"background:{colour}")
    return tag("td", swatch, label, class_="name")


def configurations(comparison: Comparison) -> Html:
    """What every run shares, then what each policy has of its own, folded."""
    found = read_configs(comparison)
    parts = [details("Shared by every run", _block({k: [v] for k, v in found.shared.items()}))]
    parts += [details(label, _block(values)) for label, values in found.by_label.items()]
    if found.without_file:
        parts.append(
            tag(
                "p",
                f"{found.without_file} of {len(comparison.runs)} runs have no .hydra/config.yaml "
                "beside their results: what their summaries say of it is shown.",
                class_="note",
            )
        )
    return join(parts)


def _block(values: Mapping[str, Sequence[str]]) -> Html:
    lines = [
        f"{key}: {one[0] if len(one) == 1 else ' | '.join(one)}"
        for key, one in sorted(values.items())
    ]
    return tag("pre", "\n".join(lines) or "nothing")


def run_list(comparison: Comparison) -> Html:
    """Every run with its folder, below the one that holds them all."""
    paths = [str(run.path.parent) for run in comparison.runs]
    root = os.path.commonpath(paths) if len(paths) > 1 else os.path.dirname(paths[0])
    rows = [
        (
            os.path.relpath(run.path.parent, root),
            row.label,
            block.load.title,
            run.seed,
            run.data["num_prompts"],
            run.data["output_throughput"],
            str(run.data.get("config_hash") or "")[:16],
        )
        for block in comparison.blocks
        for row in block.rows
        for run in row.runs
    ]
    head = ("folder", "policy", "load", "seed", "requests", "output tokens/s", "config hash")
    shown = [[*row[:5], f"{row[5]:.1f}", row[6]] for row in rows]
    return table(head, shown, left=(0, 1, 2, 6))
