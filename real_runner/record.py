"""task=record: recordings of the small pair in the project's format."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from real_runner.corpus import generate
from real_runner.generate import BANNED, decode
from real_runner.pair.load import Pair
from real_runner.recorder import (
    Text,
    chain_confidence,
    draft_hidden,
    markov_factors,
    pool_scores,
    trace_target,
)
from real_runner.train.text import EOS, encode_prompt
from traces.errors import InputError
from traces.io import write_recording
from traces.schema import FORMAT, MANIFEST_FORMAT, SPLITS, VERSION

SHORT = {"block": "block", "semi_autoregressive": "semi"}
# Every fourth prompt of a domain calibrates, every fourth tunes, the other half reports.
SPLIT_PATTERN = (0, 1, 2, 2)
LICENSE = "Python Software Foundation License (standard library text); generated text: MIT"


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """How much to record; small is what ships."""

    domains: tuple[str, ...]
    sequences_per_domain: int  # at temperature 0
    sampled_sequences_per_domain: int  # above it
    max_new_tokens: int
    temperatures: tuple[float, ...]
    shard_mb: int
    pool: int = 16
    seed: int = 20_261
    name: str = "small"


def make_texts(pair: Pair, plan: RecordPlan, temperature: float) -> list[list[Text]]:
    """The recorded requests of every domain; the same prompts at every temperature."""
    count = plan.sampled_sequences_per_domain if temperature else plan.sequences_per_domain
    return [
        _domain_texts(pair, plan, temperature, domain, count) for domain in range(len(plan.domains))
    ]


def _domain_texts(
    pair: Pair, plan: RecordPlan, temperature: float, domain: int, count: int
) -> list[Text]:
    """Held-out prompts of one domain and what the target answers; like lengths decode together."""
    name = plan.domains[domain]
    rng = np.random.default_rng([plan.seed, *name.encode()])
    prompts = [
        encode_prompt(pair.tokenizer, generate(name, rng, "heldout").prompt) for _ in range(count)
    ]
    seeds = [plan.seed * 10_000 + domain * 1_000 + i for i in range(count)]
    depths = max(drafter.config.depths for drafter in pair.drafters.values())
    by_length = sorted(range(count), key=lambda i: len(prompts[i]))
    texts: dict[int, Text] = {}
    for start in range(0, count, 64):
        rows = by_length[start : start + 64]
        outputs, ahead = decode(
            pair.target,
            [prompts[i] for i in rows],
            plan.max_new_tokens,
            temperature,
            [seeds[i] for i in rows],
            lookahead=depths,
        )
        for i, output, more in zip(rows, outputs, ahead, strict=True):
            texts[i] = Text(domain, SPLIT_PATTERN[i % 4], seeds[i], prompts[i], output, more)
    return [texts[i] for i in range(count)]


def record(
    pair: Pair, plan: RecordPlan, folder: Path, log: Callable[[str], None] = print
) -> list[Path]:
    """Write every recording of `plan` into `folder`; shards that exist already are kept."""
    written = []
    for temperature in plan.temperatures:
        texts = make_texts(pair, plan, temperature)
        log(f"temperature {temperature:g}: {sum(map(len, texts))} texts decoded")
        for kind in pair.drafters:
            stem = folder / f"{plan.name}_{SHORT[kind]}_t{temperature:g}"
            groups = _shards(pair, plan, kind, texts)
            paths = [stem.with_name(f"{stem.name}-{i:02d}.safetensors") for i in range(len(groups))]
            if len(groups) == 1:
                paths = [stem.with_suffix(".safetensors")]
            for path, group in zip(paths, groups, strict=True):
                if not path.exists():
                    write_shard(pair, plan, kind, temperature, group, path)
                log(f"{path.name}: {len(group)} sequences")
            written.append(paths[0] if len(paths) == 1 else _manifest(stem, paths))
    return written


def _shards(pair: Pair, plan: RecordPlan, kind: str, texts: list[list[Text]]) -> list[list[Text]]:
    """Whole domains together, in as few even files as stay near `shard_mb`."""
    config = pair.drafters[kind].config
    per_depth = plan.pool * 4 + 2 if kind == "block" else config.width * 2 + 2
    sizes = [
        sum(len(text.anchors) for text in domain) * config.depths * per_depth for domain in texts
    ]
    room = plan.shard_mb * 1e6 - 3e6  # heads and text
    even = sum(sizes) / max(1, math.ceil(sum(sizes) / room))
    groups: list[list[Text]] = [[]]
    used = 0.0
    for domain, size in zip(texts, sizes, strict=True):
        if groups[-1] and used + size / 2 > even:
            groups.append([])
            used = 0.0
        groups[-1].extend(domain)
        used += size
    return groups


def write_shard(
    pair: Pair, plan: RecordPlan, kind: str, temperature: float, texts: list[Text], path: Path
) -> None:
    """Trace `texts` with one drafter and write one file."""
    drafter, depths = pair.drafters[kind], pair.drafters[kind].config.depths
    parts: dict[str, list[np.ndarray]] = {}

    def keep(name: str, array: np.ndarray) -> None:
        parts.setdefault(name, []).append(array)

    for text in texts:
        hidden, taps, margin, wrong = trace_target(
            pair.target, text, temperature, drafter.config.taps
        )
        if wrong:
            raise InputError(
                f"{path.name}: {wrong} of {len(margin)} tokens differ between batched decoding "
                "and one forward pass; accepted: none (is the model in float32?)"
            )
        outputs, first = len(text.output), len(text.prompt)
        states = draft_hidden(drafter, pair.target, text, taps)
        tokens = np.array(text.tokens)
        realised = tokens[text.anchors[:, None] + 1 + np.arange(depths)]
        if kind == "block":
            for name, array in pool_scores(pair.target, states, realised, plan.pool).items():
                keep(name, array)
        else:
            keep("hidden", states.numpy().astype(np.float16))
            anchor = tokens[text.anchors]
            keep("confidence", chain_confidence(drafter, pair.target, states, anchor))
        keep("tokens", tokens[: first + outputs + depths])
        keep("target_margin", margin[1:outputs].astype(np.float32))
        if temperature:
            keep("target_hidden", hidden[: outputs + depths].astype(np.float16))
    arrays = {name: np.concatenate(pieces) for name, pieces in parts.items()}
    arrays |= _layout(texts, depths)
    if kind != "block":
        arrays |= markov_factors(pair, kind)
    elif temperature:
        arrays["target_head"] = pair.target.embedding.weight.numpy().astype(np.float16)
    write_recording(path, _metadata(pair, plan, kind, temperature), arrays)


def _layout(texts: list[Text], depths: int) -> dict[str, np.ndarray]:
    """Offsets, lengths, domains, splits, seeds and anchors of a shard."""
    prompt = np.array([len(t.prompt) for t in texts], np.int32)
    output = np.array([len(t.output) for t in texts], np.int32)
    offset = np.concatenate([[0], np.cumsum(prompt + output + depths)]).astype(np.int64)
    anchors = [start + text.anchors for start, text in zip(offset[:-1], texts, strict=True)]
    return {
        "prompt_len": prompt,
        "output_len": output,
        "seq_offset": offset,
        "anchor_pos": np.concatenate(anchors).astype(np.int64),
        "domain": np.array([t.domain for t in texts], np.uint8),
        "split": np.array([t.split for t in texts], np.uint8),
        "seq_request_seed": np.array([t.seed for t in texts], np.int64),
    }


def _metadata(pair: Pair, plan: RecordPlan, kind: str, temperature: float) -> dict:
    block = kind == "block"
    return {
        "format": FORMAT,
        "version": VERSION,
        "encoding": "pool" if block else "hidden",
        "target": {"name": "specsim-small-target", "sha256": pair.sha256("target")},
        "drafter": {
            "name": f"specsim-small-{SHORT[kind]}",
            "kind": kind,
            "sha256": pair.sha256(kind),
        },
        "block_semantics": "in_place" if block else "shifted",
        "vocab_size": pair.target.config.vocab_size,
        "eos_token": EOS,
        "temperature": temperature,
        "dtype": "float16",
        "domains": list(plan.domains),
        "seed": plan.seed,
        "generation": {"max_new_tokens": plan.max_new_tokens, "compute_dtype": "float32"},
        "recorder_version": "1",
        "text_license": LICENSE,
        "banned_tokens": sorted(BANNED),
        "shared_head": not block,
        "pair": "specsim-small",
        "splits": list(SPLITS),
    }


def _manifest(stem: Path, shards: list[Path]) -> Path:
    """The file that names the shards of one recording."""
    manifest = {
        "format": MANIFEST_FORMAT,
        "version": VERSION,
        "shards": [shard.name for shard in shards],
    }
    path = stem.with_suffix(".json")
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(json.dumps(manifest, indent=2) + "\n")
    return temporary.rename(path)
