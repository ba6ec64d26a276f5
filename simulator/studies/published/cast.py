"""CAST (arXiv 2610.00321): its width rule, its latency figure and its mass curves beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.cost import StepCost, find_profile
from simulator.engine.inputs import choose_sequences, load_recording
from simulator.orders import BestFirstOrder, ChainOrder, order_table, prefix_mass, replay
from simulator.orders.families.marginal import marginal_scores
from simulator.policies.shared.stop_rules import (
    DEPLOYED_WIDTHS,
    deploy_width,
    fit_line,
    measured_width,
    published_mass_curve,
    stop_width,
)
from simulator.studies.published.common import (
    ELSEWHERE,
    NONE,
    PROBES,
    PublishedSweep,
    by_domain,
    listed,
    number,
    percent,
    read_csv,
    read_sweeps,
    table,
)

CONTEXT = 1024  # KV prefix of the probes

# ---------------- Table 2: the width that the rule predicts, and the best of the measured sweeps.


@dataclass(frozen=True, slots=True)
class WidthRow:
    """A setting: what its probe predicts (None without one), its sweep, the paper's own row."""

    sweep: PublishedSweep
    printed: Mapping[str, str] | None  # of Table 2, at temperature 0; gains in percent
    slope_us: float | None = None  # c1, per packed token
    stop: int | None = None  # of the released rule, which leaves the drafter out
    rule: int | None = None  # deployed
    rule_with_draft: int | None = None
    sizes: int | None = None  # of the most tokens per ms among the deployable sizes as probed

    def host(self, nodes: int | None) -> PublishedSweep:
        """The sweep that measured a width: the setting's, else another host's of the same kind."""
        other = ELSEWHERE.get(self.sweep.setting)
        own = nodes is None or nodes in self.sweep.widths or other is None
        return self.sweep if own else read_sweeps()[other]

    @property
    def printed_gain(self) -> float | None:
        """At `n_star`."""
        return self.printed and float(self.printed["gain_at_n_star_pct"]) / 100

    def gain(self, nodes: int | None) -> float | None:
        return None if nodes is None else self.host(nodes).gain(nodes)

    def lost(self, nodes: int) -> float:
        """Points of gain behind the best width that the same host measured."""
        host = self.host(nodes)
        return 100 * (host.gain(host.oracle) - host.gain(nodes))

    @property
    def n_star(self) -> int:
        """The paper's width; for both settings at temperature 1 that of Table 1."""
        return 127 if self.printed is None else int(self.printed["n_star"])


def predict(profile: str | None) -> dict[str, Any]:
    """The widths of a profile, by the paper's own mass curve (GSM8K, Qwen3-8B)."""
    if profile is None:
        return {}
    (packed, ms), rho = _probe(profile), published_mass_curve()
    draft_ms = StepCost(find_profile(profile)).draft_s(1, CONTEXT) * 1e3
    c0_ms, c1_ms = fit_line(packed, ms)
    stop = stop_width(rho, c0_ms, c1_ms)
    deployable = np.isin(packed, np.array(DEPLOYED_WIDTHS) + 1)
    return {
        "slope_us": c1_ms * 1e3,
        "stop": stop,
        "rule": deploy_width(stop),
        "rule_with_draft": deploy_width(stop_width(rho, c0_ms, c1_ms, draft_ms)),
        "sizes": measured_width(rho, packed[deployable], ms[deployable], draft_ms)[0],
    }


def _probe(profile: str) -> tuple[np.ndarray, np.ndarray]:
    """Packed tokens of a lone request, and the ms that they take: two (n,)."""
    return StepCost(find_profile(profile)).width_probe(CONTEXT)


def rows() -> list[WidthRow]:
    """Every setting with a published width."""
    sweeps = read_sweeps()
    printed = {row["setting"]: row for row in read_csv("cast_widths.csv")}
    return [WidthRow(sweeps[s], printed.get(s), **predict(p)) for s, p in PROBES.items()]


WIDTH_COLUMNS = {
    "setting": lambda row: row.sweep.setting,
    "c1\nus/token": lambda row: number(row.slope_us, 1),
    "stop": lambda row: number(row.stop, 0),
    "rule\nN": lambda row: number(row.rule, 0),
    "paper\nN*": lambda row: str(row.n_star),
    "sizes\nN": lambda row: number(row.sizes, 0),
    "oracle\nN": lambda row: str(row.sweep.oracle),
    "gain at\nrule N": lambda row: _gain(row, row.rule),
    "gain at\npaper N*": lambda row: percent(row.gain(row.n_star)),
    "as\nprinted": lambda row: percent(row.printed_gain),
    "gain at\nsizes N": lambda row: _gain(row, row.sizes),
    "gain at\noracle N": lambda row: percent(row.sweep.gain(row.sweep.oracle)),
}


def _gain(row: WidthRow, nodes: int | None) -> str:
    return percent(row.gain(nodes)) + ("*" if row.host(nodes) is not row.sweep else "")


def cast_width_lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """The table; of the configuration nothing is read."""
    found = rows()
    yield "CAST (arXiv 2610.00321), Table 2: predicted width against the oracle of measured sweeps"
    yield "gain: ms per token of the whole-block chain over the tree's, less 1, mean over domains"
    yield ""
    yield from listed(WIDTH_COLUMNS, found)
    yield ""
    yield "rule: the released rule on the released probe and GSM8K masses; sizes: the probed size"
    yield "n = N + 1 of the most tokens per ms, drafter included (our cast_measured), no line."
    yield from _width_notes(found)


def _width_notes(found: list[WidthRow]) -> Iterator[str]:
    known = [row for row in found if row.rule is not None]
    other = [row for row in known if row.rule != row.n_star]
    yield f"The rule gives the paper's width in {len(known) - len(other)} of {len(known)} settings."
    for row in other:
        yield (
            f"  {row.sweep.setting}: {row.rule} ({row.rule_with_draft} with the drafter charged), "
            f"the paper deploys {row.n_star}."
        )
    yield "  The released rule does not give those widths on the released probe; nothing is tuned."
    agree = [r for r in found if r.printed is not None]
    worst = max(abs(100 * r.gain(r.n_star) - float(r.printed["gain_at_n_star_pct"])) for r in agree)
    oracles = sum(r.sweep.oracle == int(r.printed["oracle_width"]) for r in agree)
    yield (
        f"Gains at N* from the cells: within {worst:.2f} points of the printed ones; oracle width "
        f"as printed in {oracles} of {len(agree)}."
    )
    for name, widths in (
        ("rule", [row.rule for row in known]),
        ("paper", [row.n_star for row in known]),
        ("sizes", [row.sizes for row in known]),
    ):
        lost = [row.lost(nodes) for row, nodes in zip(known, widths, strict=True)]
        loss = f"mean {np.mean(lost):.2f}, worst {max(lost):.2f} points"
        yield f"Lost to the oracle, {name + ':':6} {loss}"
    if any(row.host(row.rule) is not row.sweep for row in known):
        yield "* The A6000's sweep ends at 95; 127 is of a second host, 3.7 times as fast: over"
        yield "  that host's own chain, and what is lost there is against its own best width."


# ---------------- Figure 2: target latency over packed tokens.


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


def cast_latency_lines(cfg: Mapping[str, Any]) -> Iterator[str]:
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
        yield from table(heads, map(_latency_cells, profiles))
    yield ""
    yield "c1/t(16): slope of CAST's line, in percent of the latency at 16 tokens per token more;"
    yield "worst miss: the measured step over the line. A jump, as of 128 tokens on the Blackwell"
    yield "with Qwen3-8B, is what no straight line can show. b300: whole engine steps at 8192"
    yield "tokens of context; small_pair_*: this project's CPU probes at their longest prefix."


def _latency_cells(profile: str) -> tuple[str, ...]:
    ratio, (packed, ms) = relative(profile), _probe(profile)
    slope = fit_line(packed, ms)[1] / ms[packed == BASE][0]
    miss, size = line_miss(profile)
    cells = (number(ratio.get(size), 3) for size in SIZES)
    return profile, *cells, f"{100 * slope:+.3f}", percent(miss), str(size)


# ---------------- Figure 4c: mean mass of the N-th largest node.


RANKS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128)
DOMAINS = ("gsm8k", "mtbench", "humaneval")
SETTING = "h100sxm_qwen3-8b"  # the same target and drafter, at temperature 0


class Ours:
    """Trees of a recording by marginals, as CAST grows them: 128 nodes, 8 ways."""

    def __init__(self, trace: Mapping[str, Any]) -> None:
        self.recording = recording = load_recording(trace)
        self.scores = marginal_scores("auto_marginal", recording)
        self.table = order_table(BestFirstOrder(scores=self.scores, nodes=RANKS[-1]), recording)
        self._chain = order_table(ChainOrder(), recording)
        self.groups = by_domain(recording, choose_sequences(trace, recording))

    def mass(self, sequences: np.ndarray) -> np.ndarray:
        """(128,) over the rounds of a whole-block chain, as the paper logged them."""
        rounds = replay(self._chain, self.recording, sequences, self._chain.max_nodes)
        return prefix_mass(self.table, rounds.anchors)

    def mass_everywhere(self, sequences: np.ndarray) -> np.ndarray:
        """(128,) over every position of the texts, as our cast policy fits."""
        offsets = self.recording.anchor_offset
        anchors = [np.arange(offsets[s], offsets[s + 1]) for s in sequences]
        return prefix_mass(self.table, np.concatenate(anchors))

    def length(self, sequences: np.ndarray, nodes: int) -> float:
        """Tokens per round of that width, along its own trajectory."""
        return replay(self.table, self.recording, sequences, nodes).acceptance_length


def cast_mass_lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """Masses of `trace`, and what their sum says of tokens per round.

    Raises:
        InputError: a recording or split that cannot be used.
    """
    ours = Ours(cfg["trace"])
    recording, whole = ours.recording, ours.groups["all"]
    theirs = {name: published_mass_curve(name) for name in DOMAINS}
    own = {name: ours.mass(sequences) for name, sequences in ours.groups.items()}
    curves = {f"theirs\n{name}": curve for name, curve in theirs.items()}
    curves |= {f"ours\n{name}": curve for name, curve in own.items()}
    curves["ours\nall, every\nposition"] = ours.mass_everywhere(whole)
    yield "CAST (arXiv 2610.00321), Figure 4c: mean mass of the N-th largest node of the tree"
    yield (
        f"theirs: Qwen3-8B, block 16, 1,500 greedy rounds; ours: {recording.meta['pair']}, "
        f"{recording.depths} depths, T = {recording.temperature:g}, {ours.scores}, rounds of the "
        "chain"
    )
    yield ""
    yield from table(("N", *curves), ([str(n), *_masses(curves, n)] for n in RANKS))
    yield ""
    yield "tokens per round: 1 + the sum of the first N masses, against what was committed"
    measured = read_sweeps()[SETTING].lengths
    names = ("by mass", "measured", "error")
    heads = ("N", *(f"theirs\n{n}" for n in names), *(f"ours\n{n}" for n in names))
    rows = (
        [
            str(nodes),
            *_length_cells(theirs["gsm8k"], nodes, measured.get(("gsm8k", nodes))),
            *_length_cells(own["all"], nodes, ours.length(whole, nodes)),
        ]
        for nodes in DEPLOYED_WIDTHS
    )
    yield from table(heads, rows)
    yield ""
    yield "theirs: gsm8k masses against gsm8k decoding on the H100 (Table 12), from 47 nodes on."
    yield "A mass is the drafter's own probability, uncalibrated, and a tree's rounds do not start"
    yield "where a chain's do. Rounds visit hard positions more often than easy ones, so masses"
    yield "over every position are higher than over rounds."


def _masses(curves: Mapping[str, np.ndarray], rank: int) -> Iterator[str]:
    for curve in curves.values():
        yield number(curve[rank - 1], 4) if rank <= len(curve) else NONE


def _length_cells(mass: np.ndarray, nodes: int, measured: float | None) -> tuple[str, str, str]:
    estimate = 1 + float(mass[:nodes].sum())
    error = None if measured is None else estimate / measured - 1
    return number(estimate, 2), number(measured, 2), percent(error)
