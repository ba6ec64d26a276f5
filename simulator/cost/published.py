"""Published decoding times against the cost model: how far off are the profiles?

Lee and Eo (CAST, arXiv 2610.00321, Tables 1, 4, 12, 16) measured decode-only time per token of
plain decoding, the full-block chain and the tree at several widths. Here each drafted cell is
predicted as (draft + verify + host) / R, with draft and verify from the profile of the same GPU
and target, R the cell's measured committed round length, and ONE host constant per setting, fitted
on the chain cell of one domain. Every other cell judges it.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import traces
from simulator.cost.host import HostOverhead
from simulator.cost.host_fit import fit_host
from simulator.cost.profile import find_profile
from simulator.cost.source import Source
from simulator.cost.step_cost import StepCost
from simulator.cost.step_time import StepTime
from traces.errors import InputError

CELLS = Path(traces.__file__).parent / "published" / "cast_decoding.csv"
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
class Cell:
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

    cell: Cell
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
class Report:
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


def read_cells() -> list[Cell]:
    """The transcribed cells, in file order."""
    with CELLS.open(newline="", encoding="utf-8") as file:
        return [
            Cell(
                setting=row["setting"],
                domain=row["domain"],
                method=row["method"],
                nonroot_nodes=int(row["nonroot_nodes"]),
                ms_per_token=float(row["ms_per_token"]),
                committed_round_length=float(row["committed_round_length"]),
            )
            for row in csv.DictReader(file)
        ]


def evaluate(
    setting: str, profile: str, fit_domain: str = "gsm8k", host: HostOverhead | None = None
) -> Report:
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
    return Report(setting, profile, fit_domain, constant_ms, predictions)


def fitted_terms(report: Report) -> HostOverhead:
    """Round, node and tree terms from all drafted cells of the report's fitting domain."""
    cells = [p for p in report.predictions if p.cell.drafted and p.cell.domain == report.fit_domain]
    terms = {
        "round_s": np.ones(len(cells)),
        "node_s": np.array([p.cell.nonroot_nodes for p in cells]),
        "tree_step_s": np.array([p.cell.method == "cast" for p in cells]),
    }
    round_s = np.array([p.cell.round_ms for p in cells]) * 1e-3
    return fit_host(round_s, np.array([p.device_ms for p in cells]) * 1e-3, terms)


def own_domain_error(report: Report) -> float:
    """Median |error| over the fitting domain's tree cells: what chooses between two probes.

    The other domains stay out of the choice, so they can still judge it.
    """
    errors = [abs(p.error) for p in report.judged() if p.cell.domain == report.fit_domain]
    return float(np.median(errors))


def evaluate_all(fit_domain: str = "gsm8k") -> dict[str, list[Report]]:
    """Reports of every setting, the profile that fits its own domain best first."""
    return {
        setting: sorted(
            (evaluate(setting, profile, fit_domain) for profile in profiles), key=own_domain_error
        )
        for setting, profiles in PROFILES.items()
    }


def _step(cost: StepCost, cell: Cell) -> StepTime:
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
