"""task=record: recordings of a live pair in the project's format."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from real_runner.engine.models import LiveDrafter, LivePair
from real_runner.recording.texts import Prompt, Text, write_texts
from real_runner.recording.trace import (
    Trace,
    chain_confidence,
    draft_hidden,
    pool_scores,
    trace_target,
)
from simulator.progress import Progress
from traces.common.errors import InputError
from traces.common.files import replacing
from traces.recordings.files import build_recording, read_recording, write_recording
from traces.recordings.recording import Recording
from traces.recordings.schema import FORMAT, MANIFEST_FORMAT, SPLITS, VERSION

SHORT = {"block": "block", "semi_autoregressive": "semi"}
# Every fourth prompt of a domain calibrates, every fourth tunes, the other half reports.
SPLIT_PATTERN = (0, 1, 2, 2)
MOST_PROMPTS = 1000  # of a domain: the keys of the draws are numbered by it
EXACT = (torch.float32, torch.float64)  # decoding and one forward pass must agree in these


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """How to record, whatever the prompts."""

    domains: tuple[str, ...]
    max_new_tokens: int
    temperatures: tuple[float, ...]
    shard_mb: int
    text_license: str
    pool: int = 16
    seed: int = 20_261
    name: str = "small"
    stored: str = "float16"  # of scores and states; replays of live runs want the live dtype


def corpus_prompts(pair: LivePair, domains: tuple[str, ...], count: int, seed: int) -> list[Prompt]:
    """`count` held-out prompts of every domain of the small pair's corpus."""
    from real_runner.training.corpus import generate

    if count > MOST_PROMPTS:
        raise InputError(f"{count} prompts of a domain; accepted: at most {MOST_PROMPTS}")
    prompts = []
    for domain, name in enumerate(domains):
        rng = np.random.default_rng([seed, *name.encode()])
        for i in range(count):
            tokens = pair.tokenizer.encode(generate(name, rng, "heldout").prompt)
            key = seed * 10_000 + domain * 1_000 + i
            prompts.append(Prompt(domain, SPLIT_PATTERN[i % 4], key, tokens))
    return prompts


def record(
    pair: LivePair,
    plan: RecordPlan,
    prompts_at: Callable[[float], list[Prompt]],
    folder: Path,
    log: Callable[[str], None] = print,
) -> list[Path]:
    """Write a recording per temperature and drafter into `folder`; files that exist are kept.

    prompts_at: the prompts to record at a temperature, those of a domain together.
    """
    written = []
    depths = max(drafter.depths for drafter in pair.drafters.values())
    for temperature in plan.temperatures:
        texts = texts_of(pair, plan, prompts_at(temperature), temperature, depths)
        log(f"temperature {temperature:g}: {sum(map(len, texts))} tokens in {len(texts)} texts")
        for line in split_lines(plan.domains, texts):
            log(line)
        for drafter in pair.drafters.values():
            stem = folder / f"{plan.name}_{SHORT[drafter.kind]}_t{temperature:g}"
            groups = _shards(plan, drafter, texts)
            numbers = [f"-{i:02d}" for i in range(len(groups))] if len(groups) > 1 else [""]
            paths = [stem.with_name(f"{stem.name}{number}.safetensors") for number in numbers]
            for path, group in zip(paths, groups, strict=True):
                kept = path.exists()
                if kept:
                    _check_same(path, _metadata(pair, drafter, plan, temperature, 0), plan, group)
                else:
                    contents = traced(pair, drafter, plan, temperature, group, path.name)
                    write_recording(path, *contents)
                log(f"{path.name}: {len(group)} sequences{', kept' if kept else ''}")
            written.append(paths[0] if len(paths) == 1 else _manifest(stem, paths))
    return written


def split_lines(domains: tuple[str, ...], texts: list[Text]) -> list[str]:
    """How many texts of every domain a policy may fit on, and how many results come from."""
    lines = []
    for index, name in enumerate(domains):
        own = [text.split for text in texts if text.domain == index]
        counts = ", ".join(f"{own.count(i)} {split}" for i, split in enumerate(SPLITS))
        few = "" if own.count(2) else "; too few prompts to report on, at least 4 are wanted"
        lines.append(f"  {name}: {counts}{few}")
    return lines


def _check_same(path: Path, wanted: dict, plan: RecordPlan, texts: list[Text]) -> None:
    """Refuse a file that an earlier run made with other settings or of other texts.

    Raises:
        InputError: naming the file and the first difference.
    """
    found = read_recording(path)
    for key, value in wanted.items():
        have = found.meta.get(key)
        if key == "generation":  # mismatches are counted while tracing
            have, value = ({**one, "mismatches": 0} for one in (have, value))
        if have != value:
            raise InputError(
                f"{path}: {key} is {have!r}; accepted: {value!r}, or another output folder"
            )
    if "pool_token" in found and found["pool_token"].shape[2] != plan.pool:
        raise InputError(
            f"{path}: pools of {found['pool_token'].shape[2]}; accepted: record.pool "
            f"{plan.pool}, or another output folder"
        )
    theirs = [found.committed_tokens(i).tolist() for i in range(found.num_sequences)]
    if theirs != [text.output for text in texts]:
        raise InputError(f"{path}: holds other texts; accepted: another output folder")


def record_in_memory(
    pair: LivePair,
    drafter: LiveDrafter,
    plan: RecordPlan,
    prompts: list[Prompt],
    temperature: float,
) -> Recording:
    """The recording of `prompts` with one drafter, checked as if it had been read."""
    texts = texts_of(pair, plan, prompts, temperature, drafter.depths)
    meta, arrays = traced(pair, drafter, plan, temperature, texts, plan.name)
    return build_recording(meta, arrays, plan.name)


def texts_of(
    pair: LivePair, plan: RecordPlan, prompts: list[Prompt], temperature: float, depths: int
) -> list[Text]:
    """What the target answers, with `depths` tokens of lookahead.

    Raises:
        InputError: a prompt that does not fit the target's context with its outputs.
    """
    room = pair.target.max_positions - plan.max_new_tokens - depths
    if room < 1:
        raise InputError(
            f"max_new_tokens is {plan.max_new_tokens}; accepted: less than the context of "
            f"{pair.target.name}, {pair.target.max_positions}"
        )
    for prompt in prompts:
        if not 0 < len(prompt.tokens) <= room:
            raise InputError(
                f"{plan.name}: a prompt of domain {plan.domains[prompt.domain]} has "
                f"{len(prompt.tokens)} tokens; accepted: 1 to {room}, the context of "
                f"{pair.target.name} less {plan.max_new_tokens} outputs and {depths} of lookahead"
            )
    with Progress(len(prompts), "texts") as progress:
        return write_texts(
            pair.target, prompts, plan.max_new_tokens, temperature, depths, progress.update
        )


def _shards(plan: RecordPlan, drafter: LiveDrafter, texts: list[Text]) -> list[list[Text]]:
    """Whole domains together, in as few even files as stay near `shard_mb`."""
    per_depth = plan.pool * 4 + 2 if drafter.markov is None else drafter.width * 2 + 2
    domains = sorted({text.domain for text in texts})
    by_domain = [[text for text in texts if text.domain == domain] for domain in domains]
    sizes = [sum(len(one.anchors) for one in own) * drafter.depths * per_depth for own in by_domain]
    room = max(plan.shard_mb * 1e6 - 3e6, 1e6)  # heads and text
    even = sum(sizes) / max(1, math.ceil(sum(sizes) / room))
    groups: list[list[Text]] = [[]]
    used = 0.0
    for own, size in zip(by_domain, sizes, strict=True):
        if groups[-1] and used + size / 2 > even:
            groups.append([])
            used = 0.0
        groups[-1].extend(own)
        used += size
    return groups


def traced(
    pair: LivePair,
    drafter: LiveDrafter,
    plan: RecordPlan,
    temperature: float,
    texts: list[Text],
    name: str,
) -> tuple[dict, dict[str, np.ndarray]]:
    """Metadata and arrays of one file: every text traced with one drafter."""
    parts: dict[str, list[np.ndarray]] = {}
    wrong = 0
    with Progress(len(texts), f"tracing {name}") as progress:
        for done, text in enumerate(texts):
            trace = trace_target(pair.target, text, temperature, drafter.taps)
            wrong += trace.mismatches
            if trace.mismatches and pair.target.dtype in EXACT:
                raise InputError(
                    f"{name}: {trace.mismatches} of {len(trace.margin)} tokens differ between "
                    "batched decoding and one forward pass; accepted: none in float32 and float64"
                )
            rows = _rows(pair, drafter, plan, temperature, text, trace)
            for key, array in rows.items():
                parts.setdefault(key, []).append(array)
            progress.update(done + 1)
    arrays = {key: np.concatenate(pieces) for key, pieces in parts.items()}
    arrays |= _layout(texts, drafter.depths) | _heads(pair, drafter, plan, temperature)
    return _metadata(pair, drafter, plan, temperature, wrong), arrays


def _rows(pair, drafter, plan, temperature: float, text: Text, trace: Trace) -> dict:
    """Arrays of one text."""
    outputs, first, depths = len(text.output), len(text.prompt), drafter.depths
    states = draft_hidden(drafter, text, trace.taps)
    tokens, rows = np.array(text.tokens), {}
    realised = tokens[text.anchors[:, None] + 1 + np.arange(depths)]
    if drafter.markov is None:
        for key, array in pool_scores(pair.target, drafter, states, realised, plan.pool).items():
            rows[key] = array if key == "pool_token" else array.astype(plan.stored)
    else:
        rows["hidden"] = _numbers(states, plan)
        confidence = chain_confidence(pair.target, drafter, states, tokens[text.anchors])
        if confidence is not None:
            rows["confidence"] = confidence.astype(plan.stored)
    rows["tokens"] = tokens[: first + outputs + depths]
    rows["target_margin"] = trace.margin[1:outputs].astype(np.float32)
    if temperature:
        rows["target_hidden"] = _numbers(trace.hidden[: outputs + depths], plan)
    return rows


def _numbers(values: torch.Tensor, plan: RecordPlan) -> np.ndarray:
    return values.to(getattr(torch, plan.stored)).cpu().numpy()


def _layout(texts: list[Text], depths: int) -> dict[str, np.ndarray]:
    """Offsets, lengths, domains, splits, seeds and anchors of a shard."""
    prompt = np.array([len(t.prompt) for t in texts], np.int32)
    output = np.array([len(t.output) for t in texts], np.int32)
    offset = np.concatenate([[0], np.cumsum(prompt + output + depths)]).astype(np.int64)
    anchors = [start + text.anchors for start, text in zip(offset[:-1], texts, strict=True)]
    kept = {"prompt_len": prompt, "output_len": output, "seq_offset": offset}
    kept["anchor_pos"] = np.concatenate(anchors).astype(np.int64)
    for name, kind in (("domain", np.uint8), ("split", np.uint8), ("seed", np.int64)):
        kept[name] = np.array([getattr(t, name) for t in texts], kind)
    return kept | {"seq_request_seed": kept.pop("seed")}


def _heads(pair, drafter, plan: RecordPlan, temperature: float) -> dict[str, np.ndarray]:
    """What is stored once per file: heads and Markov factors."""
    if drafter.markov is None:
        return {"target_head": _numbers(pair.target.head, plan)} if temperature else {}
    w1, w2 = drafter.markov
    parts = {"head": pair.target.head, "markov_w1": w1, "markov_w2": w2}
    names = ("confidence_hidden", "confidence_parent", "confidence_bias")
    weights = drafter.confidence_weights() or ()
    parts |= {name: part.reshape(-1) for name, part in zip(names, weights, strict=False)}
    return {name: _numbers(part.detach(), plan) for name, part in parts.items()}


def _metadata(pair, drafter, plan: RecordPlan, temperature: float, wrong: int) -> dict:
    block, target = drafter.markov is None, pair.target
    eos, dtype = list(target.eos_tokens), str(target.dtype).removeprefix("torch.")
    generation = {"max_new_tokens": plan.max_new_tokens, "compute_dtype": dtype}
    if target.dtype not in EXACT:
        generation["mismatches"] = wrong
    return {
        "format": FORMAT,
        "version": VERSION,
        "encoding": "pool" if block else "hidden",
        "target": {"name": target.name, "sha256": target.sha256},
        "drafter": {"name": drafter.name, "kind": drafter.kind, "sha256": drafter.sha256},
        "block_semantics": "in_place" if drafter.kind == "block" else "shifted",
        "vocab_size": target.vocab_size,
        "eos_token": eos[0] if len(eos) == 1 else eos or None,
        "temperature": temperature,
        "dtype": plan.stored,
        "domains": list(plan.domains),
        "seed": plan.seed,
        "generation": generation,
        "recorder_version": "1",
        "text_license": plan.text_license,
        "banned_tokens": sorted(target.banned_tokens),
        "shared_head": not block,
        "pair": pair.name,
        "splits": list(SPLITS),
    }


def _manifest(stem: Path, shards: list[Path]) -> Path:
    """The file that names the shards of one recording."""
    names = [shard.name for shard in shards]
    manifest = {"format": MANIFEST_FORMAT, "version": VERSION, "shards": names}
    path = stem.with_name(f"{stem.name}.json")
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(manifest, indent=2) + "\n")
    return path
