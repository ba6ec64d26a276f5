"""task=evaluate: the figures of the model card, from the weights and their recordings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from real_runner.engine.attend import read_whole
from real_runner.engine.models import LivePair
from real_runner.models.small.config import EOS
from real_runner.training.corpus import generate
from simulator.studies.rtable import RtableRequest, rows_of
from traces.recordings.files import read_recording
from traces.recordings.recording import Recording


@torch.no_grad()
def completion_loss(pair: LivePair, domain: str, count: int, seed: int) -> float:
    """Mean cross-entropy in nats per completion token of `count` held-out examples."""
    rng = np.random.default_rng([seed, *domain.encode(), 1])
    total, tokens = 0.0, 0
    for _ in range(count):
        example = generate(domain, rng, "heldout")
        prompt = pair.tokenizer.encode(example.prompt)
        text = torch.tensor([[*prompt, *pair.tokenizer.encode(example.completion)[1:], EOS]])
        hidden, _ = read_whole(pair.target, text[:, :-1])
        logits = pair.target.logits(hidden[0, len(prompt) - 1 :])
        total += float(F.cross_entropy(logits, text[0, len(prompt) :], reduction="sum"))
        tokens += len(logits)
    return total / tokens


def repeated_share(recording: Recording, domain: str, gram: int = 4) -> float:
    """Share of output 4-grams that occurred before in the same output, pooled over sequences."""
    repeated = total = 0
    for sequence in recording.sequences_of(domain=domain):
        output, seen = recording.committed_tokens(int(sequence)).tolist(), set()
        for end in range(gram, len(output) + 1):
            window = tuple(output[end - gram : end])
            repeated += window in seen
            seen.add(window)
            total += 1
    return repeated / max(total, 1)


def evaluate(pair: LivePair, folder: Path, size: str, log: Callable[[str], None] = print) -> None:
    """Print loss and repetition per domain, then R of every rule per drafter, as markdown."""
    semi = _open(folder, f"{size}_semi_t0")
    log("| domain | target loss, nats per token | repeated 4-grams, greedy | sequences | anchors |")
    log("|---|---|---|---|---|")
    for domain in semi.domains:
        loss = completion_loss(pair, domain, 100, 11)
        share, anchors = repeated_share(semi, domain), len(semi.anchors_of(domain=domain))
        sequences = len(semi.sequences_of(domain=domain))
        log(f"| {domain} | {loss:.2f} | {share:.3f} | {sequences} | {anchors} |")
    for name in ("semi", "block"):
        log(f"\nR, {name} drafter, temperature 0\n")
        recording = _open(folder, f"{size}_{name}_t0")
        request = RtableRequest(recording, np.arange(recording.num_sequences), (15, 31, 63, 127))
        lengths: dict[tuple[str, int], dict[str, float]] = {}
        for domain, order, nodes, value in rows_of(request):
            lengths.setdefault((order, nodes), {})[domain] = value
        domains = [*recording.domains, "all"]
        log(f"| order | nodes | {' | '.join(domains)} |")
        log("|---" * (len(domains) + 2) + "|")
        for (order, nodes), row in lengths.items():
            log(f"| {order} | {nodes} | {' | '.join(f'{row[d]:.2f}' for d in domains)} |")


def _open(folder: Path, name: str) -> Recording:
    manifest = folder / f"{name}.json"
    one = folder / f"{name}.safetensors"
    return read_recording(manifest if manifest.exists() and not one.exists() else one)
