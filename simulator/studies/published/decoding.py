"""How far the latency profiles are from published decoding times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from simulator.cost.host import HostOverhead, fit_host
from simulator.cost.step_cost import StepCost
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


@dataclass(frozen=True, slots=True, eq=False)
class ProfileReport:
    """One setting on one profile.

    cells: a row for each measured run. As published: domain, method, nonroot_nodes, ms_per_token
        and committed_round_length (R); of it drafted and round_ms. By the cost model: device_ms,
        source, predicted (ms per token), and whether the cell was `fitted`. Signed and relative:
        error, and gain_error of predicted_gain against gain, both over the chain of the domain.
    """

    setting: str
    profile: str
    fit_domain: str
    host_ms: float  # the host constant, per round
    cells: pd.DataFrame

    @property
    def judged(self) -> pd.DataFrame:
        """Drafted cells that were not fitted."""
        return self.cells[self.cells.drafted & ~self.cells.fitted]

    @property
    def own_error(self) -> float:
        """Median |error| over the fitting domain's tree cells: what chooses between two probes.

        The other domains stay out of the choice, so they can still judge it.
        """
        judged = self.judged
        return float(judged.error[judged.domain == self.fit_domain].abs().median())

    def errors(self, *without: str) -> pd.Series:
        """Of judged cells, but for those of some domains."""
        return self.judged.error[~self.judged.domain.isin(without)]


def read_cells() -> pd.DataFrame:
    """The transcribed cells, in file order."""
    kinds = {"nonroot_nodes": int, "ms_per_token": float, "committed_round_length": float}
    return pd.DataFrame(read_csv("cast_decoding.csv")).astype(kinds)


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
    cells = read_cells()
    cells = cells[cells.setting == setting].reset_index(drop=True)
    if fit_domain not in set(cells.domain):
        domains = sorted(set(cells.domain))
        raise InputError(f"fit_domain is {fit_domain!r}; accepted for {setting}: {domains}")
    cells["drafted"] = cells.method != "autoregressive"
    used = cells.method == "chain" if host is None else cells.drafted
    cells["fitted"] = used & (cells.domain == fit_domain)
    cost, context = StepCost(find_profile(profile), host=host), np.array([CONTEXT])
    steps = [
        cost.step(
            np.array([cell.nonroot_nodes + 1]),
            context,
            drafted=cell.drafted,
            tree=cell.method == "cast",
        )
        for cell in cells.itertuples()
    ]
    cells["source"] = [step.source.name.lower() for step in steps]
    cells["device_ms"] = [(step.draft_s + step.verify_s) * 1e3 for step in steps]
    cells["round_ms"] = cells.ms_per_token * cells.committed_round_length
    left_ms = (cells.round_ms - cells.device_ms)[cells.fitted]
    constant_ms = float(left_ms.iloc[0]) if host is None else 0.0
    host_ms = np.array([step.host_s * 1e3 for step in steps]) + constant_ms * cells.drafted
    cells["predicted"] = (cells.device_ms + host_ms) / cells.committed_round_length
    cells["error"] = cells.predicted / cells.ms_per_token - 1
    chain = cells[cells.method == "chain"].set_index("domain").loc[cells.domain]
    cells["gain"] = chain.ms_per_token.to_numpy() / cells.ms_per_token
    cells["predicted_gain"] = chain.predicted.to_numpy() / cells.predicted
    cells["gain_error"] = cells.predicted_gain / cells.gain - 1
    return ProfileReport(setting, profile, fit_domain, constant_ms, cells)


def fitted_terms(report: ProfileReport) -> HostOverhead:
    """Round, node and tree terms from all drafted cells of the report's fitting domain."""
    cells = report.cells[report.cells.drafted & (report.cells.domain == report.fit_domain)]
    terms = {
        "round_s": np.ones(len(cells)),
        "node_s": cells.nonroot_nodes.to_numpy(),
        "tree_step_s": (cells.method == "cast").to_numpy(),
    }
    return fit_host(cells.round_ms.to_numpy() * 1e-3, cells.device_ms.to_numpy() * 1e-3, terms)


def evaluate_all(fit_domain: str = "gsm8k") -> dict[str, list[ProfileReport]]:
    """Reports of every setting, the profile that fits its own domain best first."""
    return {
        setting: sorted(
            (evaluate(setting, profile, fit_domain) for profile in profiles),
            key=lambda report: report.own_error,
        )
        for setting, profiles in PROFILES.items()
    }


def decoding_lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """The comparison of all settings; ``published.fit_domain`` is read.

    Raises:
        InputError: an unknown domain.
    """
    reports = evaluate_all(read(Published, cfg.get("published") or {}).fit_domain)
    yield "Published decoding times (CAST, arXiv 2610.00321) against the cost model"
    yield f"Assumed context: {CONTEXT} tokens, the probes' KV prefix. * = fitted cell, not judged."
    for candidates in reports.values():
        yield ""
        yield from _setting(candidates)
    yield ""
    yield (
        f"{AVERAGED_APART}: ms per token is averaged over prompts and R over rounds, so R x ms per "
        "token is not the time of a round and its errors say little about the cost model."
    )


def _setting(candidates: Sequence[ProfileReport]) -> Iterator[str]:
    best = candidates[0]
    yield f"== {best.setting}"
    for report in candidates:
        yield (
            f"   profile {report.profile}: host constant {report.host_ms:+.3f} ms per round, "
            f"fitted on the chain of {report.fit_domain}; median |error| on that domain's trees "
            f"{report.own_error:.1%}"
        )
    if len(candidates) > 1:
        yield f"   {best.profile} fits and is used below; {candidates[1].profile} does not."
    if best.host_ms < 0:
        yield "   The constant is negative: the probe ran slower than the decode; no overhead seen."
    yield (
        f"   {'domain':10}{'method':15}{'nodes':>5}{'R':>7}  {'ms/token':>9}{'predicted':>10}"
        f"{'error':>8}  {'gain':>6}{'predicted':>10}{'error':>8}  cost"
    )
    for cell in best.cells.itertuples():
        yield (
            f"   {cell.domain:10}{cell.method:15}{cell.nonroot_nodes:>5}"
            f"{cell.committed_round_length:>7.2f}  {cell.ms_per_token:>9.3f}"
            f"{cell.predicted:>10.3f}{cell.error:>+8.1%}  {cell.gain:>6.3f}"
            f"{cell.predicted_gain:>10.3f}{cell.gain_error:>+8.1%}  {cell.source}"
            f"{' *' if cell.fitted else ''}"
        )
    for report in candidates:
        yield from _summary(report)


def _summary(report: ProfileReport) -> Iterator[str]:
    judged, fitted = report.judged, report.cells[report.cells.fitted]
    yield f"   summary, {report.profile}"
    parts = zip(fitted.domain, fitted.method, fitted.nonroot_nodes, strict=True)
    names = ", ".join(f"{domain} {method} {nodes}" for domain, method, nodes in parts)
    yield f"     fitted and excluded: {names}; judged: {len(judged)} cells"
    trees = judged[judged.method == "cast"]
    for what, cells, errors in (
        ("ms per token", judged, judged.error),
        ("gain over chain", trees, trees.gain_error),
    ):
        apart = cells.domain == AVERAGED_APART
        yield f"     {what}: all {_spread(errors)}"
        yield (
            f"     {what}: without {AVERAGED_APART} {_spread(errors[~apart])}; {AVERAGED_APART} "
            f"{_spread(errors[apart])}"
        )
    plain = report.cells.error[~report.cells.drafted]
    yield (
        f"     plain decoding ({len(plain)} cells, no draft): {_spread(plain)}. "
        "The host constant does not apply: no draft, mask or KV gather, and the one-token probe "
        "holds the forward's own launch time."
    )
    # The constant against round + node + tree terms, both judged on unseen domains only.
    host, unseen = fitted_terms(report), (report.fit_domain, AVERAGED_APART)
    terms = evaluate(report.setting, report.profile, report.fit_domain, host=host)
    yield (
        f"     round {host.round_s * 1e3:.3f} ms + node {host.node_s * 1e6:.1f} us + tree "
        f"{host.tree_step_s * 1e3:.3f} ms, fitted on every drafted cell of {report.fit_domain}: "
        f"other domains {_spread(terms.errors(*unseen))}; the constant there "
        f"{_spread(report.errors(*unseen))}"
    )


def _spread(errors: pd.Series) -> str:
    if errors.empty:
        return "no cells"
    return f"median |error| {errors.abs().median():.2%}, worst {errors.abs().max():.2%}"
