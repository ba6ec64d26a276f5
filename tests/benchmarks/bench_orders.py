"""Speed of building orders: the compiled kernel against the slow reference, in one run.

    python tests/benchmarks/bench_orders.py [anchors]

The recording has the shape of the shipped semi-autoregressive one (2,048 tokens, 7 depths, hidden
size 256, Markov rank 64) and random content; the reference is timed on a few anchors.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from simulator.orders import BestFirstOrder, ChainOrder, StaticOrder, build_order
from tests.reference import RawScores
from tests.reference_orders import drafted
from tests.synthetic import make_hidden
from traces.recordings.files import build_recording

VOCAB, DEPTHS, WIDTH, RANK = 2048, 7, 256, 64
LENGTH = 131  # outputs per sequence, 130 anchors
REFERENCE_ANCHORS = 3
LOGIT_STD = 3.0
ORDERS = {
    "best first, parent": BestFirstOrder(scores="parent"),
    "best first, biased marginal": BestFirstOrder(scores="marginal_biased"),
    "best first, marginal": BestFirstOrder(scores="marginal"),
    "chain": ChainOrder(),
    "static 8-4-2-2 and tail": StaticOrder(widths=(8, 4, 2, 2)),
}


def make_recording(anchors: int):
    """Random hidden states and factors on the text of a small synthetic recording."""
    rng = np.random.default_rng(0)
    sequences = max(anchors // (LENGTH - 1), 1)
    text = make_hidden(
        rng, sequences=sequences, depths=DEPTHS, vocab=VOCAB, lengths=[LENGTH] * sequences
    )
    factor = np.sqrt(LOGIT_STD / 3 / np.sqrt(RANK))
    arrays = dict(text.arrays) | {
        "hidden": rng.normal(size=(text.num_anchors, DEPTHS, WIDTH)).astype(np.float16),
        "head": (rng.normal(size=(VOCAB, WIDTH)) * LOGIT_STD / np.sqrt(WIDTH)).astype(np.float16),
        "markov_w1": (rng.normal(size=(VOCAB, RANK)) * factor).astype(np.float16),
        "markov_w2": (rng.normal(size=(VOCAB, RANK)) * factor).astype(np.float16),
    }
    return build_recording(text.meta, arrays, "benchmark")


def seconds(work) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def reference_s(recording, spec) -> float:
    """Seconds per anchor of the explicit tree."""
    raw = RawScores(recording.arrays, recording.meta)
    step = recording.num_anchors // REFERENCE_ANCHORS
    chosen = range(0, recording.num_anchors, step)[:REFERENCE_ANCHORS]
    return seconds(lambda: [drafted(spec, raw, anchor) for anchor in chosen]) / len(chosen)


def main() -> None:
    """Print anchors per second of every order, and how many times the reference that is."""
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else 6500
    recording = make_recording(asked)
    first = seconds(lambda: build_order(ChainOrder(1), make_recording(1)))
    print(f"first call, with compilation unless it is cached: {first:.1f} s")
    count = recording.num_anchors
    print(f"{count} anchors, V {VOCAB}, D {DEPTHS}, d {WIDTH}, rank {RANK}; 63 nodes best first")
    print(f"{'order':30s} {'s':>7s} {'anchors/s':>10s} {'reference/s':>12s} {'ratio':>8s}")
    for name, spec in ORDERS.items():
        spent = seconds(lambda spec=spec: build_order(spec, recording))
        slow = reference_s(recording, spec)
        row = f"{name:30s} {spent:7.2f} {count / spent:10.0f}"
        print(row + f" {1 / slow:12.2f} {slow * count / spent:8.0f}", flush=True)


if __name__ == "__main__":
    main()
