"""How far the latency profiles are from published decoding times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.cost.host import HostOverhead, fit_host
from simulator.cost.step_cost import StepCost
from simulator.cost.step_time import Source, StepTime
from simulator.studies.published.common import read_csv
from simulator.studies.settings import Published
from traces.common.errors import InputError
from traces.common.settings import read
from traces.profiles.profile import find_profile

CONTEXT = 1024  # the probes' KV prefix; the published decodes do not state their mean context
# The H100 SXM was probed twice with the Qwen3 targets: both tables are tried.
PROFILES = {
    "h100sxm_qwen3-8b": ("h100_sxm_qwen3_8b_table5", "h100_sxm_qwen3_8b_table6"),
    "h100sxm_qwen3-4b": ("h100_sxm_qwen3_4b_table5", "h100_sxm_qwen3_4b_table6"),
    "h100sxm_llama3.1-8b": ("h100_sxm_llama31_8b",),
}
# ms per token is averaged over prompts and R over rounds: their product is not a round's time.
AVERAGED_APART = "mtbench"


@dataclass(frozen=True, slots=True)
class DecodingCell:
    """One measured decoding run."""

    setting: str
    domain: str
    method: str
    nonroot_nodes: int
    ms_per_token: float
    committed_round_length: float

    @property
    def drafted(self) -> bool:
        return self.method != "autoregressive"

    @property
    def round_ms(self) -> float:
        return self.ms_per_token * self.committed_round_length


@dataclass(frozen=True, slots=True)
class Prediction:
    """A cell beside the cost model's answer."""

    cell: DecodingCell
    device_ms: float
    host_ms: float
    source: Source
    fitted: bool

    @property
    def ms_per_token(self) -> float:
        return (self.device_ms + self.host_ms) / self.cell.committed_round_length

    @property
    def error(self) -> float:
        """Relative error of ms per token, signed."""
        return self.ms_per_token / self.cell.ms_per_token - 1


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """One setting on one profile."""

    setting: str
    profile: str
    fit_domain: str
    host_ms: float
    predictions: tuple[Prediction, ...]

    def judged(self) -> list[Prediction]:
        """Drafted cells that were not fitted."""
        return [p for p in self.predictions if p.cell.drafted and not p.fitted]

    def plain(self) -> list[Prediction]:
        """Plain decoding cells."""
        return [p for p in self.predictions if not p.cell.drafted]

    def gains(self, prediction: Prediction) -> tuple[float, float]:
        """Measured and predicted speed-up over the chain of the same domain."""
        chain = _chain(self.predictions, prediction.cell.domain)
        measured = chain.cell.ms_per_token / prediction.cell.ms_per_token
        return measured, chain.ms_per_token / prediction.ms_per_token

    def gain_error(self, prediction: Prediction) -> float:
        """Relative error of the gain, signed."""
        measured, predicted = self.gains(prediction)
        return predicted / measured - 1


def read_cells() -> list[DecodingCell]:
    """The transcribed cells, in file order."""
    return [
        DecodingCell(
            setting=row["setting"],
            domain=row["domain"],
            method=row["method"],
            nonroot_nodes=int(row["nonroot_nodes"]),
            ms_per_token=float(row["ms_per_token"]),
            committed_round_length=float(row["committed_round_length"]),
        )
        for row in read_csv("cast_decoding.csv")
    ]


def evaluate(
    setting: str, profile: str, fit_domain: str = "gsm8k", host: HostOverhead | None = None
) -> ProfileReport:
    """Predict every cell of ``setting`` from ``profile``.

    Args:
        setting: a key of `PROFILES`.
        profile: a shipped profile's name.
        fit_domain: the domain whose chain cell gives the host constant.
        host: fitted host terms to use instead of the constant.

    Raises:
        InputError: the setting has no such domain.
    """
    cells = [cell for cell in read_cells() if cell.setting == setting]
    domains = sorted({cell.domain for cell in cells})
    if fit_domain not in domains:
        raise InputError(f"fit_domain is {fit_domain!r}; accepted for {setting}: {domains}")
    cost = StepCost(find_profile(profile), host=host)
    steps = [_step(cost, cell) for cell in cells]
    drafted = [cell.drafted for cell in cells]
    fitted = [
        cell.domain == fit_domain and (cell.method == "chain" if host is None else cell.drafted)
        for cell in cells
    ]
    constant_ms = 0.0
    if host is None:
        fit = fitted.index(True)
        constant_ms = cells[fit].round_ms - _device_ms(steps[fit])
    predictions = tuple(
        Prediction(
            cell=cells[i],
            device_ms=_device_ms(steps[i]),
            host_ms=steps[i].host_s * 1e3 + (constant_ms if drafted[i] else 0.0),
            source=steps[i].source,
            fitted=fitted[i],
        )
        for i in range(len(cells))
    )
    return ProfileReport(setting, profile, fit_domain, constant_ms, predictions)


def fitted_terms(report: ProfileReport) -> HostOverhead:
    """Round, node and tree terms from all drafted cells of the report's fitting domain."""
    cells = [p for p in report.predictions if p.cell.drafted and p.cell.domain == report.fit_domain]
    terms = {
        "round_s": np.ones(len(cells)),
        "node_s": np.array([p.cell.nonroot_nodes for p in cells]),
        "tree_step_s": np.array([p.cell.method == "cast" for p in cells]),
    }
    round_s = np.array([p.cell.round_ms for p in cells]) * 1e-3
    return fit_host(round_s, np.array([p.device_ms for p in cells]) * 1e-3, terms)


def own_domain_error(report: ProfileReport) -> float:
    """Median |error| over the fitting domain's tree cells: what chooses between two probes.

    The other domains stay out of the choice, so they can still judge it.
    """
    errors = [abs(p.error) for p in report.judged() if p.cell.domain == report.fit_domain]
    return float(np.median(errors))


def evaluate_all(fit_domain: str = "gsm8k") -> dict[str, list[ProfileReport]]:
    """Reports of every setting, the profile that fits its own domain best first."""
    return {
        setting: sorted(
            (evaluate(setting, profile, fit_domain) for profile in profiles), key=own_domain_error
        )
        for setting, profiles in PROFILES.items()
    }


def _step(cost: StepCost, cell: DecodingCell) -> StepTime:
    return cost.step(
        np.array([cell.nonroot_nodes + 1]),
        np.array([CONTEXT]),
        drafted=cell.drafted,
        tree=cell.method == "cast",
    )


def _device_ms(step: StepTime) -> float:
    return (step.draft_s + step.verify_s) * 1e3


def _chain(predictions: tuple[Prediction, ...], domain: str) -> Prediction:
    return next(p for p in predictions if (p.cell.domain, p.cell.method) == (domain, "chain"))


def decoding_lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """The comparison of all settings; ``published.fit_domain`` is read.

    Raises:
        InputError: an unknown domain.
    """
    asked = read(Published, cfg.get("published") or {})
    return lines(evaluate_all(asked.fit_domain))


def lines(reports: dict[str, list[ProfileReport]]) -> Iterator[str]:
    """Lines of the whole comparison; ``reports`` holds each setting's profiles, best first."""
    yield "Published decoding times (CAST, arXiv 2610.00321) against the cost model"
    yield f"Assumed context: {CONTEXT} tokens, the probes' KV prefix. * = fitted cell, not judged."
    for setting, candidates in reports.items():
        yield ""
        yield from _setting(setting, candidates)
    yield ""
    yield (
        f"{AVERAGED_APART}: ms per token is averaged over prompts and R over rounds, so R x ms per "
        "token is not the time of a round and its errors say little about the cost model."
    )


def _setting(setting: str, candidates: list[ProfileReport]) -> Iterator[str]:
    best = candidates[0]
    yield f"== {setting}"
    for report in candidates:
        yield (
            f"   profile {report.profile}: host constant {report.host_ms:+.3f} ms per round, "
            f"fitted on the chain of {report.fit_domain}; median |error| on that domain's trees "
            f"{own_domain_error(report):.1%}"
        )
    if len(candidates) > 1:
        yield f"   {best.profile} fits and is used below; {candidates[1].profile} does not."
    if best.host_ms < 0:
        yield "   The constant is negative: the probe ran slower than the decode; no overhead seen."
    yield from _cells(best)
    for report in candidates:
        yield from _summary(report)


def _cells(report: ProfileReport) -> Iterator[str]:
    yield (
        f"   {'domain':10}{'method':15}{'nodes':>5}{'R':>7}  {'ms/token':>9}{'predicted':>10}"
        f"{'error':>8}  {'gain':>6}{'predicted':>10}{'error':>8}  cost"
    )
    for item in report.predictions:
        cell = item.cell
        text = (
            f"   {cell.domain:10}{cell.method:15}{cell.nonroot_nodes:>5}"
            f"{cell.committed_round_length:>7.2f}  {cell.ms_per_token:>9.3f}"
            f"{item.ms_per_token:>10.3f}{item.error:>+8.1%}"
        )
        measured, predicted = report.gains(item)
        gain = f"  {measured:>6.3f}{predicted:>10.3f}{report.gain_error(item):>+8.1%}"
        source = item.source.name.lower()
        yield f"{text}{gain}  {source}{' *' if item.fitted else ''}"


def _summary(report: ProfileReport) -> Iterator[str]:
    judged = report.judged()
    trees = [item for item in judged if item.cell.method == "cast"]
    fitted = [item.cell for item in report.predictions if item.fitted]
    yield f"   summary, {report.profile}"
    names = ", ".join(f"{cell.domain} {cell.method} {cell.nonroot_nodes}" for cell in fitted)
    yield f"     fitted and excluded: {names}; judged: {len(judged)} cells"
    yield from _three(" ms per token", judged, lambda item: item.error)
    yield from _three(" gain over chain", trees, report.gain_error)
    plain = report.plain()
    yield (
        f"     plain decoding ({len(plain)} cells, no draft): {_spread([p.error for p in plain])}. "
        "The host constant does not apply: no draft, mask or KV gather, and the one-token probe "
        "holds the forward's own launch time."
    )
    yield from _terms(report)


def _three(
    what: str, items: list[Prediction], error: Callable[[Prediction], float]
) -> Iterator[str]:
    """All judged cells, then with and without the domain whose averages do not match."""
    apart = [error(item) for item in items if item.cell.domain == AVERAGED_APART]
    rest = [error(item) for item in items if item.cell.domain != AVERAGED_APART]
    yield f"    {what}: all {_spread(apart + rest)}"
    yield f"    {what}: without {AVERAGED_APART} {_spread(rest)}; {AVERAGED_APART} {_spread(apart)}"


def _terms(report: ProfileReport) -> Iterator[str]:
    """The constant against round + node + tree terms, both judged on unseen domains only."""
    host = fitted_terms(report)
    terms = evaluate(report.setting, report.profile, report.fit_domain, host=host)
    unseen = (report.fit_domain, AVERAGED_APART)
    constant = [p.error for p in report.judged() if p.cell.domain not in unseen]
    three = [p.error for p in terms.judged() if p.cell.domain not in unseen]
    yield (
        f"     round {host.round_s * 1e3:.3f} ms + node {host.node_s * 1e6:.1f} us + tree "
        f"{host.tree_step_s * 1e3:.3f} ms, fitted on every drafted cell of {report.fit_domain}: "
        f"other domains {_spread(three)}; the constant there {_spread(constant)}"
    )


def _spread(errors: list[float]) -> str:
    if not errors:
        return "no cells"
    sizes = np.abs(errors)
    return f"median |error| {np.median(sizes):.2%}, worst {sizes.max():.2%}"
