"""Priced survival: one budget over all requests, as large as it pays on the measured staircase.

The best nodes of the whole batch are verified, as many as make the step worth most for its time.
Survivals are calibrated for the recording's temperature.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np

from simulator.calibration.file import calibration_for
from simulator.calibration.lab import fitting_sequences, samples
from simulator.calibration.maps import IsotonicMap
from simulator.orders.families.sampled import SampledOrder
from simulator.orders.specs import BestFirstOrder, Order
from simulator.orders.table import OrderTable
from simulator.policies.checks import choice, node_count, positive
from simulator.policies.priced_survival import accounts
from simulator.policies.priced_survival.accounts import BUDGET, PLACES, Pricing, new_accounts
from simulator.policies.priced_survival.token_worth import TpotWeights, expected, fit_worth
from simulator.policies.shared.rules import Priced, View, fixed, top_widths
from simulator.policy import FITTING, Lab, Load, Outcome, Policy, Step

ROWS = 1 << 12  # of a table, taken at once
PRICES = ("local", "ratio", "lambda")
ARRAYS = ("accounts", "limits", "log_widths", "exponents")  # of `Pricing`


class PricedSurvival(Policy):
    """Verify the most valuable nodes of the batch, up to where more would not pay.

    Args:
        price: local: most worth per second of this step, a token's worth being the time it saves
            where its request stands (`token_worth`). ratio: every token is worth the same.
            lambda: so, and a second costs what the run has earned per second so far.
        nodes: most nodes per request; nodes_alone: of a request that runs alone.
        draws: above temperature 0. fixed: candidate sets. sampled: drawn siblings; their number is
            then settled one step earlier, as no draw may decide whether it is verified.
        skip: plain decoding while drafting does not pay, tried again after 5 to 80 steps, or later
            where the drafter must read what it missed.
        context_aware: charge nodes for attention over their own request's cache.
        max_step_ms: no longer step (an inter-token limit). tpot_ms: favour requests that run
            slower than this mean time per output token.
        calibration: a file of `task=calibrate`; null: fitted now. force_calibration: take one of
            another recording.
    """

    def __init__(
        self,
        price: str = "local",
        nodes: int = 63,
        nodes_alone: int = 127,
        branch: int = 8,
        draws: str = "fixed",
        skip: bool = True,
        context_aware: bool = False,
        max_step_ms: float | None = None,
        tpot_ms: float | None = None,
        calibration: str | None = None,
        force_calibration: bool = False,
    ) -> None:
        self.price = choice("price", price, PRICES)
        self._nodes = node_count("nodes", nodes), node_count("nodes_alone", nodes_alone)
        self._branch = node_count("branch", branch)
        self._draws = choice("draws", draws, ("fixed", "sampled"))
        self._skip = choice("skip", skip, (False, True))
        self._context_aware = choice("context_aware", context_aware, (False, True))
        limit_ms = positive("max_step_ms", max_step_ms)
        self._limit_s = math.inf if limit_ms is None else limit_ms / 1e3
        self._late = TpotWeights(positive("tpot_ms", tpot_ms))
        self._file = calibration, choice("force_calibration", force_calibration, (False, True))

    def prepare(self, lab: Lab) -> None:
        self._calibration = calibration_for(lab, *self._file)
        self._sampled = samples(lab, self._draws)
        self.order, self._alone = (self._order(lab, nodes) for nodes in self._nodes)
        texts = fitting_sequences(lab, "calibration")
        self._survivals = partial(survivals, self._calibration.path)
        self._worth = fit_worth(lab, lab.table(self.order), texts, self._survivals)
        self._longest_rest = partial(longest_rest, lab)
        self._pricing = Pricing(
            accounts=np.zeros((0, PLACES)),
            limits=np.array([0.0, 0.0, np.inf]),
            limit_s=self._limit_s,
            skip=self._skip,
            local=self.price == "local" and not self._sampled,  # draws must not weigh themselves
            earned=self.price == "lambda",
            log_widths=np.array([math.log(width) for width in self._worth]),
            exponents=np.array(list(self._worth.values())),
        )
        self._open_accounts(lab.max_batch)

    def _open_accounts(self, batch: int) -> Pricing:
        """Settings and state, with accounts for batches up to this one at least."""
        missing = range(len(self._pricing.accounts), accounts.account_at(batch) + 1)
        if missing:
            more = new_accounts([self._longest_rest(1 << place) for place in missing])
            both = np.concatenate([self._pricing.accounts, more])
            self._pricing = self._pricing._replace(accounts=both)
        return self._pricing

    def _order(self, lab: Lab, nodes: int) -> Order:
        platt = self._calibration.platt
        shape = {"nodes": nodes, "branch": self._branch, "platt": (platt.a, platt.b)}
        if self._sampled:
            return SampledOrder(temperature=lab.recording.temperature, **shape)
        return BestFirstOrder(**shape)

    def plan(self, load: Load) -> Order | None:
        known = self._open_accounts(load.batch).accounts
        if self._skip and accounts.rests(known, accounts.account_at(load.batch)):
            return None
        return self._alone if load.batch == 1 else self.order

    def allocate(self, step: Step) -> np.ndarray:
        draft, batch, pricing = step.draft, step.batch, self._open_accounts(step.batch)
        survival = self._survivals(draft.score, draft.size)  # (B, M)
        view = View(step, accounts, survival, "size_step")
        flat, at = view.flat, accounts.account_at(batch)
        view.weight[:] = self._late.of(step.load.request)
        if self._context_aware:
            earned = accounts.price_of(pricing.accounts, at)
            view.offset[:] = earned * attention_s(step) if earned else 0.0
        each = pricing.accounts[at, BUDGET]
        here = batch, step.context, int(draft.size.sum()), True
        rows = view.row, view.score, flat(fixed(expected(survival), float)), view.size, view.depth
        arrays = {name: flat(value) for name, value in pricing._asdict().items() if name in ARRAYS}
        own = pricing._replace(**arrays)
        view.code.size_step(*view.prices, own, here, *rows, view.work)
        self._weight, self._weighed = view.weight, step.load.request
        if not self._sampled:
            return view.width
        # As many of the best bounds as the step before would have taken: no draw may decide.
        budget = round((1.0 if np.isnan(each) else float(each)) * batch)
        return top_widths(draft.score, draft.size, budget, draft.depth)

    def observe(self, outcome: Outcome) -> None:
        self._late.observe(outcome)
        if outcome.drafted:
            same = np.array_equal(self._weighed, outcome.request)  # not where outcomes come late
            weight = self._weight if same else np.ones(len(outcome.request))
            worth = 0.0
            for one, tokens in zip(weight.tolist(), outcome.committed.tolist(), strict=True):
                worth += one * tokens
            at = accounts.account_at(len(outcome.request))
            accounts.earn(self._pricing.accounts, at, worth, outcome.step_s)

    def rule(self, batch: int) -> Priced | None:
        if self._sampled or self._context_aware or self._late.active:
            return None
        pricing = self._open_accounts(batch)
        tables = partial(_every_survival, self._calibration.path)
        return Priced(self._alone if batch == 1 else self.order, pricing, tables)

    def describe(self) -> dict:
        return self._calibration.describe() | {"worth_exponent_by_width": self._worth}

    def notes(self) -> list[str]:
        steps, over, shortest_s = self._pricing.limits.tolist()
        if not over:
            return []
        return [
            f"policy.max_step_ms is {self._limit_s * 1e3:g}: {over:.0f} of {steps:.0f} steps "
            "that drafted take longer without any draft node (the shortest "
            f"{shortest_s * 1e3:.3g} ms), and so verified none"
        ]


def survivals(path: IsotonicMap, score: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Calibrated survivals of log survivals (n, M), 0 beyond the (n,) ends of the rows: (n, M)."""
    exists = np.arange(score.shape[1]) < np.asarray(size)[:, None]
    return np.where(exists, path(np.exp(score)), 0.0)


@lru_cache(maxsize=2)  # a lone request's, and a batch's: the runs of a sweep share them
def _every_survival(path: IsotonicMap, table: OrderTable) -> tuple[np.ndarray, np.ndarray]:
    """Survivals (A, M) and tokens of the stretch (A,) of every anchor."""
    survival = np.zeros(table.score.shape)
    for first in range(0, len(survival), ROWS):
        some = slice(first, first + ROWS)
        survival[some] = survivals(path, table.score[some], table.size[some])
    return survival, expected(survival)


def longest_rest(lab: Lab, batch: int) -> float:
    """Resting steps of a batch, at most: longer where the drafter must read what it missed.

    That is half of every request's text, in plain steps.
    """
    most = min(accounts.REST * batch, accounts.LONGEST)
    texts = np.concatenate([lab.sequences(split) for split in FITTING])
    each_s = lab.cost.host.catch_up_token_s
    if not len(texts) or not each_s:
        return most
    tokens = batch * float(lab.recording["output_len"][texts].mean()) / 2
    plain_s = accounts.plain_step_s(lab.cost.prices, batch, float(lab.context))
    return max(most, round(tokens * each_s / plain_s / accounts.READING))


def attention_s(step: Step) -> np.ndarray:
    """Seconds that one packed token of each request costs beyond one at the mean context: (B,).

    From the cost model: what a longer context adds to more tokens, beyond what it adds to few.
    """
    cost, batch, context = step.cost, step.batch, step.load.context
    mean = max(float(context.mean()), 1.0)
    few, many = batch, 8 * batch
    added_s = [
        cost.verify_s(batch, total, 2 * mean) - cost.verify_s(batch, total, mean)
        for total in (few, many)
    ]
    per_token_s = max(0.0, added_s[1] - added_s[0]) / ((many - few) * mean)
    return per_token_s * (context - mean)
