"""CAST's Table 2: the width its rule predicts against the best width of the measured sweeps."""

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
    PROBES,
    Printed,
    PublishedSweep,
    by_domain,
    number,
    percent,
    read_printed,
    read_sweeps,
    table,
)
from traces.recordings.recording import Recording

PROBE_CONTEXT = 1024  # KV prefix of the probes
HEADS = (
    "setting",
    "c1\nus/token",
    "stop",
    "rule\nN",
    "paper\nN*",
    "sizes\nN",
    "oracle\nN",
    "gain at\nrule N",
    "gain at\npaper N*",
    "as\nprinted",
    "gain at\nsizes N",
    "gain at\noracle N",
)


@dataclass(frozen=True, slots=True)
class Widths:
    """What a setting's probe predicts, None without one."""

    slope_us: float | None  # c1, per packed token
    stop: int | None  # of the released rule, which leaves the drafter out
    rule: int | None  # deployed
    rule_with_draft: int | None
    sizes: int | None  # of the most tokens per ms among the deployable sizes as probed


def predict(profile: str | None) -> Widths:
    """The widths of a profile, by the paper's own mass curve (GSM8K, Qwen3-8B)."""
    if profile is None:
        return Widths(None, None, None, None, None)
    cost, rho = StepCost(find_profile(profile)), published_mass_curve()
    packed, ms = cost.width_probe(PROBE_CONTEXT)
    draft_ms = cost.draft_s(1, PROBE_CONTEXT) * 1e3
    c0_ms, c1_ms = fit_line(packed, ms)
    stop = stop_width(rho, c0_ms, c1_ms)
    deployable = np.isin(packed, np.array(DEPLOYED_WIDTHS) + 1)
    return Widths(
        slope_us=c1_ms * 1e3,
        stop=stop,
        rule=deploy_width(stop),
        rule_with_draft=deploy_width(stop_width(rho, c0_ms, c1_ms, draft_ms)),
        sizes=measured_width(rho, packed[deployable], ms[deployable], draft_ms)[0],
    )


@dataclass(frozen=True, slots=True)
class WidthRow:
    """A setting with its prediction, its sweep and, at temperature 0, the paper's own row."""

    widths: Widths
    sweep: PublishedSweep
    printed: Printed | None

    def host(self, nodes: int) -> PublishedSweep:
        """The sweep that measured a width: the setting's, else another host's of the same kind."""
        other = ELSEWHERE.get(self.sweep.setting)
        return self.sweep if nodes in self.sweep.widths or other is None else read_sweeps()[other]

    def gain(self, nodes: int | None) -> float | None:
        return None if nodes is None else self.host(nodes).gain(nodes)

    def lost(self, nodes: int) -> float:
        """Points of gain behind the best width that the same host measured."""
        host = self.host(nodes)
        return 100 * (host.gain(host.oracle) - host.gain(nodes))

    @property
    def n_star(self) -> int:
        return 127 if self.printed is None else self.printed.n_star  # both T=1 settings: Table 1


def rows() -> list[WidthRow]:
    """Every setting with a published width."""
    sweeps, printed = read_sweeps(), read_printed()
    return [WidthRow(predict(p), sweeps[s], printed.get(s)) for s, p in PROBES.items()]


def cast_width_lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """The table; of the configuration nothing is read."""
    found = rows()
    yield "CAST (arXiv 2610.00321), Table 2: predicted width against the oracle of measured sweeps"
    yield "gain: ms per token of the whole-block chain over the tree's, less 1, mean over domains"
    yield ""
    yield from table(HEADS, map(_cells, found))
    yield ""
    yield "rule: the released rule on the released probe and GSM8K masses; sizes: the probed size"
    yield "n = N + 1 of the most tokens per ms, drafter included (our cast_measured), no line."
    yield from _notes(found)


def _cells(row: WidthRow) -> tuple[str, ...]:
    widths, sweep = row.widths, row.sweep
    return (
        sweep.setting,
        number(widths.slope_us, 1),
        number(widths.stop, 0),
        number(widths.rule, 0),
        str(row.n_star),
        number(widths.sizes, 0),
        str(sweep.oracle),
        percent(row.gain(widths.rule)) + ("*" if _elsewhere(row, widths.rule) else ""),
        percent(row.gain(row.n_star)),
        "-" if row.printed is None else f"{row.printed.gain:+.1f}%",
        percent(row.gain(widths.sizes)) + ("*" if _elsewhere(row, widths.sizes) else ""),
        percent(sweep.gain(sweep.oracle)),
    )


def _elsewhere(row: WidthRow, nodes: int | None) -> bool:
    return nodes is not None and row.host(nodes) is not row.sweep


def _notes(found: list[WidthRow]) -> Iterator[str]:
    known = [row for row in found if row.widths.rule is not None]
    other = [row for row in known if row.widths.rule != row.n_star]
    yield f"The rule gives the paper's width in {len(known) - len(other)} of {len(known)} settings."
    for row in other:
        drafted = row.widths.rule_with_draft
        yield (
            f"  {row.sweep.setting}: {row.widths.rule} ({drafted} with the drafter charged), the "
            f"paper deploys {row.n_star}."
        )
    yield "  The released rule does not give those widths on the released probe; nothing is tuned."
    agree = [r for r in found if r.printed is not None]
    worst = max(abs(100 * r.gain(r.n_star) - r.printed.gain) for r in agree)
    oracles = sum(r.sweep.oracle == r.printed.oracle for r in agree)
    yield (
        f"Gains at N* from the cells: within {worst:.2f} points of the printed ones; oracle width "
        f"as printed in {oracles} of {len(agree)}."
    )
    for name, nodes in (("rule", "rule"), ("paper", None), ("sizes", "sizes")):
        lost = [r.lost(r.n_star if nodes is None else getattr(r.widths, nodes)) for r in known]
        loss = f"mean {np.mean(lost):.2f}, worst {max(lost):.2f} points"
        yield f"Lost to the oracle, {name + ':':6} {loss}"
    if any(_elsewhere(row, row.widths.rule) for row in known):
        yield "* The A6000's sweep ends at 95; 127 is of a second host, 3.7 times as fast: over"
        yield "  that host's own chain, and what is lost there is against its own best width."


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
        yield from table(heads, map(_cells_of_cast_latency, profiles))
    yield ""
    yield "c1/t(16): slope of CAST's line, in percent of the latency at 16 tokens per token more;"
    yield "worst miss: the measured step over the line. A jump, as of 128 tokens on the Blackwell"
    yield "with Qwen3-8B, is what no straight line can show. b300: whole engine steps at 8192"
    yield "tokens of context; small_pair_*: this project's CPU probes at their longest prefix."


def _cells_of_cast_latency(profile: str) -> tuple[str, ...]:
    ratio, (packed, ms) = relative(profile), _probe(profile)
    slope = fit_line(packed, ms)[1] / dict(zip(packed.tolist(), ms.tolist(), strict=True))[BASE]
    miss, size = line_miss(profile)
    cells = (number(ratio.get(size), 3) for size in SIZES)
    return profile, *cells, f"{100 * slope:+.3f}", f"{100 * miss:+.1f}%", str(size)


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
        self._chosen = choose_sequences(trace, recording)

    def groups(self) -> dict[str, np.ndarray]:
        """Sequences by domain, then of all."""
        return by_domain(self.recording, self._chosen)

    def mass(self, sequences: np.ndarray) -> np.ndarray:
        """(128,) over the rounds of a whole-block chain, as the paper logged them."""
        rounds = replay(self._chain, self.recording, sequences, self._chain.max_nodes)
        return prefix_mass(self.table, rounds.anchors)

    def mass_everywhere(self, sequences: np.ndarray) -> np.ndarray:
        """(128,) over every position of the texts, as our cast policy fits."""
        return prefix_mass(self.table, _anchors(self.recording, sequences))

    def length(self, sequences: np.ndarray, nodes: int) -> float:
        """Tokens per round of that width, along its own trajectory."""
        return replay(self.table, self.recording, sequences, nodes).acceptance_length


def _anchors(recording: Recording, sequences: np.ndarray) -> np.ndarray:
    offsets = recording.anchor_offset
    return np.concatenate([np.arange(offsets[s], offsets[s + 1]) for s in sequences])


def cast_mass_lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """Masses, and what their sum says of tokens per round.

    Args:
        cfg: `trace` is read.

    Raises:
        InputError: a recording or split that cannot be used.
    """
    ours = Ours(cfg["trace"])
    groups = ours.groups()
    theirs = {name: published_mass_curve(name) for name in DOMAINS}
    own = {name: ours.mass(sequences) for name, sequences in groups.items()}
    own["all, every\nposition"] = ours.mass_everywhere(groups["all"])
    yield "CAST (arXiv 2610.00321), Figure 4c: mean mass of the N-th largest node of the tree"
    yield f"theirs: Qwen3-8B, block 16, 1,500 greedy rounds; ours: {_whose(ours)}"
    yield ""
    curves = theirs | own
    heads = ("N", *(f"theirs\n{name}" for name in theirs), *(f"ours\n{name}" for name in own))
    yield from table(heads, ([str(n), *_at(curves, n)] for n in RANKS))
    yield ""
    yield from _lengths(ours, theirs["gsm8k"], own["all"])


def _whose(ours: Ours) -> str:
    recording = ours.recording
    what = f"{recording.meta['pair']}, {recording.depths} depths, T = {recording.temperature:g}"
    return f"{what}, {ours.scores}, rounds of the chain"


def _at(curves: Mapping[str, np.ndarray], rank: int) -> Iterator[str]:
    return (number(curve[rank - 1], 4) if rank <= len(curve) else "-" for curve in curves.values())


def _lengths(ours: Ours, theirs: np.ndarray, own: np.ndarray) -> Iterator[str]:
    """1 + sum of masses, the rule's estimate of tokens per round, against what was committed."""
    measured = read_sweeps()[SETTING].lengths
    yield "tokens per round: 1 + the sum of the first N masses, against what was committed"
    rows = []
    for nodes in DEPLOYED_WIDTHS:
        mine = ours.length(ours.groups()["all"], nodes)
        pair = [*_pair(theirs, nodes, measured.get(("gsm8k", nodes))), *_pair(own, nodes, mine)]
        rows.append([str(nodes), *pair])
    names = ("by mass", "measured", "error")
    heads = ("N", *(f"theirs\n{n}" for n in names), *(f"ours\n{n}" for n in names))
    yield from table(heads, rows)
    yield ""
    yield "theirs: gsm8k masses against gsm8k decoding on the H100 (Table 12), from 47 nodes on."
    yield "A mass is the drafter's own probability, uncalibrated, and a tree's rounds do not start"
    yield "where a chain's do. Rounds visit hard positions more often than easy ones, so masses"
    yield "over every position are higher than over rounds."


def _pair(mass: np.ndarray, nodes: int, measured: float | None) -> tuple[str, str, str]:
    estimate = 1 + float(mass[:nodes].sum())
    error = None if measured is None else estimate / measured - 1
    return number(estimate, 2), number(measured, 2), percent(error)
