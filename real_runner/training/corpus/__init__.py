"""Training text for a small language model: four templated and two real domains.

``arithmetic``, ``report``, ``dialogue`` and ``extract`` are generated from
templates; ``docs`` and ``code`` are edited text of the Python standard library.
"""

from __future__ import annotations

import numpy as np

from real_runner.training.corpus import arithmetic, dialogue, extract, library, report
from real_runner.training.corpus.types import Example, is_heldout

TEMPLATED = {
    "arithmetic": arithmetic.make,
    "report": report.make,
    "dialogue": dialogue.make,
    "extract": extract.make,
}
REAL = {"docs": library.proofread, "code": library.rename}
DOMAINS = (*TEMPLATED, *REAL)


def generate(domain: str, rng: np.random.Generator, split: str) -> Example:
    """Draw one example of ``domain`` from ``split`` ("train" or "heldout")."""
    heldout = split == "heldout"
    if domain in REAL:
        return REAL[domain](rng, heldout)
    while True:
        example = TEMPLATED[domain](rng)
        if is_heldout(example.prompt) == heldout:
            return example
