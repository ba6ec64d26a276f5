"""Training text for a small language model: four templated and two real domains.

``arithmetic``, ``report``, ``dialogue`` and ``extract`` are generated from
templates; ``docs`` and ``code`` are edited text of the Python standard library.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from real_runner.training.corpus import arithmetic, code, dialogue, docs, extract, report
from real_runner.training.corpus.stdlib_text import stdlib_provenance
from real_runner.training.corpus.types import Example

DOMAINS: dict[str, Callable[[np.random.Generator, str], Example]] = {
    "arithmetic": arithmetic.generate,
    "report": report.generate,
    "dialogue": dialogue.generate,
    "extract": extract.generate,
    "docs": docs.generate,
    "code": code.generate,
}


def generate(domain: str, rng: np.random.Generator, split: str) -> Example:
    """Draw one example of ``domain`` from ``split`` ("train" or "heldout")."""
    return DOMAINS[domain](rng, split)


__all__ = ["DOMAINS", "Example", "generate", "stdlib_provenance"]
