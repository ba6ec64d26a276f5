"""Logistic regression by Newton's method, some coefficients ridged: how calibration is fitted."""

from __future__ import annotations

import numpy as np

from traces.errors import InputError

TOLERANCE = 1e-10
MAX_STEPS = 200


def sigmoid(z: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-z)), without overflow."""
    return np.exp(-np.logaddexp(0.0, -z))


def log_loss(z: np.ndarray, y: np.ndarray) -> float:
    """Mean of -log P(y) where P(1) = sigmoid(z)."""
    return float((np.logaddexp(0.0, z) - y * z).mean())


def check_fit(x: np.ndarray, y: np.ndarray, who: str) -> None:
    """Raise InputError where no finite fit of labels y (n,) on x (n,) exists.

    That is one class only, one value of x, or a threshold on x that separates the classes.
    """
    if x.shape != y.shape:
        raise InputError(f"{who}: {len(x)} probabilities and {len(y)} labels, need as many")
    if not np.isin(y, (0, 1)).all() or np.isnan(x).any():
        raise InputError(f"{who}: accepted: labels 0 or 1 and probabilities in [0, 1]")
    hits = int(y.sum())
    if hits in (0, len(y)):
        raise InputError(f"{who}: {hits} accepted of {len(y)} edges, needs both outcomes")
    yes, no = x[y == 1], x[y == 0]
    if yes.min() >= no.max() or yes.max() <= no.min():
        raise InputError(
            f"{who}: a threshold on q separates the {hits} accepted of {len(y)} edges,"
            " so no finite fit exists; use more anchors"
        )


def fit_logistic(
    design: np.ndarray,
    y: np.ndarray,
    who: str,
    ridge: np.ndarray | float = 0.0,
    offset: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Minimiser beta (k,) of sum log-loss(y, beta design + offset) + sum ridge beta^2.

    design (k, n), y (n,) of 0 and 1, ridge (k,), offset (n,). Steps are halved until the loss does
    not rise. Raises InputError, naming `who`, where the steps do not come to rest.
    """
    share = ridge / len(y) * np.ones(len(design))  # of the mean loss
    beta = np.zeros(len(design))

    def loss(at: np.ndarray) -> float:
        return log_loss(at @ design + offset, y) + float(share @ (at * at))

    for _ in range(MAX_STEPS):
        p = sigmoid(beta @ design + offset)
        gradient = design @ (p - y) / len(y) + 2 * share * beta
        hessian = (design * (p * (1 - p))) @ design.T / len(y) + np.diag(2 * share)
        step = np.linalg.solve(hessian, gradient)
        if np.abs(step).max() <= TOLERANCE * (1 + np.abs(beta).max()):
            return beta - step
        before = loss(beta)
        while loss(beta - step) > before + 1e-15 and np.abs(step).max() > 1e-14:
            step = step / 2
        beta = beta - step
    raise InputError(f"{who}: not converged after {MAX_STEPS} steps, the classes barely overlap")
