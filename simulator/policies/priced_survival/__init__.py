"""Priced survival: one budget over all requests, as large as it pays on the measured staircase.

The best nodes of the whole batch are verified, as many as make the step worth most for its time.
Survivals are calibrated for the recording's temperature.
"""

from __future__ import annotations

import numpy as np

from simulator.calibration.file import calibration_for
from simulator.orders.families.sampled import SampledOrder
from simulator.orders.specs import BestFirstOrder, Order
from simulator.policies.checks import choice, fitting_sequences, node_count, positive, samples
from simulator.policies.priced_survival.accounts import Account, Accounts
from simulator.policies.priced_survival.limits import StepLimit, TpotWeights
from simulator.policies.priced_survival.offer import (
    Offer,
    attention_s,
    offer_of,
    plain_s,
    reading_steps,
)
from simulator.policies.priced_survival.token_worth import fit_worth
from simulator.policies.shared.selection import top_widths
from simulator.policy import Lab, Load, Outcome, Policy, Step

PRICES = ("local", "ratio", "lambda")


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
        self._limit = StepLimit(limit_ms)
        self._late = TpotWeights(positive("tpot_ms", tpot_ms))
        self._file = calibration, choice("force_calibration", force_calibration, (False, True))

    def prepare(self, lab: Lab) -> None:
        self._calibration = calibration_for(lab, *self._file)
        self._accounts = Accounts(lambda batch: reading_steps(lab, batch))
        self._sampled = samples(lab, self._draws)
        self.order, self._alone = (self._order(lab, nodes) for nodes in self._nodes)
        texts = fitting_sequences(lab, "calibration")
        self._worth = fit_worth(lab, lab.table(self.order), texts, self._survival)

    def _order(self, lab: Lab, nodes: int) -> Order:
        platt = self._calibration.platt
        shape = {"nodes": nodes, "branch": self._branch, "platt": (platt.a, platt.b)}
        if self._sampled:
            return SampledOrder(temperature=lab.recording.temperature, **shape)
        return BestFirstOrder(**shape)

    def _survival(self, score: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Calibrated survivals (n, M), 0 beyond a row's end."""
        exists = np.arange(score.shape[1]) < np.asarray(size)[:, None]
        return np.where(exists, self._calibration.path(np.exp(score)), 0.0)

    def plan(self, load: Load) -> Order | None:
        if self._skip and self._accounts.at(load.batch).rests():
            return None
        return self._alone if load.batch == 1 else self.order

    def allocate(self, step: Step) -> np.ndarray:
        account = self._accounts.at(step.batch)
        survival = self._survival(step.draft.score, step.draft.size)  # (B, M)
        self._weight, self._weighed = self._weights(step, survival, account), step.load.request
        key = survival * self._weight[:, None]
        if self._context_aware and account.price:
            key -= account.price * attention_s(step)[:, None]
        offer = offer_of(step, key, float(self._weight.sum()), self._limit.seconds)
        self._limit.note(offer.step_s[0])
        size = offer.best_at(account.price) if self.price == "lambda" else offer.best_by_rate()
        width = self._staked(step, account) if self._sampled else offer.widths(size)
        account.budget = size / step.batch
        self._settle(step, account, offer, size)
        return width

    def _weights(self, step: Step, survival: np.ndarray, account: Account) -> np.ndarray:
        weight = self._late.of(step.load.request)
        if self.price == "local" and not self._sampled:  # draws must not weigh themselves
            typical = account.nodes_per_request
            weight = weight * self._worth.weights(survival, 1.0 if typical is None else typical)
        return weight

    def _staked(self, step: Step, account: Account) -> np.ndarray:
        """Sampled drafts: as many of the best bounds as the step before would have taken."""
        draft, each = step.draft, 1.0 if account.budget is None else account.budget
        return top_widths(draft.score, draft.size, round(each * step.batch), draft.depth)

    def _settle(self, step: Step, account: Account, offer: Offer, size: int) -> None:
        alone_s = plain_s(step.cost, step.batch, float(step.load.context.mean()))
        surplus = offer.rate(size) * alone_s / offer.base - 1  # over plain decoding's worth
        account.settle(size / step.batch, surplus)

    def observe(self, outcome: Outcome) -> None:
        self._late.observe(outcome)
        if outcome.drafted:
            account = self._accounts.at(len(outcome.request))
            same = np.array_equal(self._weighed, outcome.request)  # not where outcomes come late
            weight = self._weight if same else np.ones(len(outcome.request))
            account.earn(float(weight @ outcome.committed), outcome.step_s)

    def describe(self) -> dict:
        exponents = dict(zip(self._worth.widths, self._worth.exponents, strict=True))
        return {**self._calibration.describe(), "worth_exponent_by_width": exponents}

    def notes(self) -> list[str]:
        return self._limit.notes()
