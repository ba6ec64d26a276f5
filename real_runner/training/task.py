"""task=train: target, target-generated text, then both drafters side by side.

Steps and seeds are fixed. Each finished stage leaves a file and is skipped when the task is started
again, so an interrupted run goes on at the stage it was in.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from real_runner.engine.attend import read_whole
from real_runner.models.small.config import DRAFTERS, PAD, DrafterConfig, TargetConfig
from real_runner.models.small.load import load_coder, load_target, save_half, save_shapes
from real_runner.models.small.pair import Drafter, Target
from real_runner.recording.texts import Prompt, write_texts
from real_runner.settings import TrainKeys
from real_runner.training.corpus.stdlib_text import stdlib_provenance
from real_runner.training.fit import fit
from real_runner.training.losses import DraftData, drafter_loss, target_loss
from real_runner.training.text import examples, packed_rows, train_tokenizer
from traces.common.files import replacing

SAMPLED = 0.45  # share of the drafters' text that is drawn at temperature 1
Log = Callable[[str], None]


def train(plan: TrainKeys, folder: Path, log: Log = print) -> None:
    """Train the pair into `folder` (weights as float16, tokenizer, shapes, provenance)."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(plan.threads)
    for name, make in STAGES.items():
        if (folder / name).exists():
            log(f"{name}: there already, kept")
        else:
            with replacing(folder / name) as path:
                make(plan, folder, path, log)
            log(f"{name}: done")
    context = multiprocessing.get_context("spawn")
    running = [
        context.Process(target=_drafter, args=(plan, folder, kind), name=kind)
        for kind, _ in DRAFTERS
        if not (folder / f"drafter_{kind}.safetensors").exists()
    ]
    for process in running:  # two single-thread processes beat one with two threads
        process.start()
    for process in running:
        process.join()
    failed = [process.name for process in running if process.exitcode]
    if failed:
        raise SystemExit(f"training failed: {', '.join(failed)}")


def _tokenizer(plan: TrainKeys, folder: Path, path: Path, log: Log) -> None:
    rng = np.random.default_rng([plan.seed, 0])
    train_tokenizer(rng, plan.vocab_size, plan.tokenizer_examples).save(str(path))


def _provenance(plan: TrainKeys, folder: Path, path: Path, log: Log) -> None:
    facts = {"plan": plan.model_dump()}
    facts |= {"torch": torch.__version__, "standard_library": stdlib_provenance()}
    path.write_text(json.dumps(facts, indent=2) + "\n")


def _target(plan: TrainKeys, folder: Path, path: Path, log: Log) -> None:
    """Trained from scratch on packed rows."""
    config = TargetConfig(vocab_size=plan.vocab_size)
    save_shapes(config, folder)
    torch.manual_seed(plan.seed)
    rng, batch = np.random.default_rng([plan.seed, 1]), plan.target_batch
    tokenizer, rows = load_coder(folder).tokenizer, plan.target_steps * batch
    tokens, weight = packed_rows(tokenizer, rng, rows, plan.row_tokens)
    model = Target(config)

    def batch_at(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = slice(step * batch, (step + 1) * batch)
        return (
            torch.from_numpy(tokens[chosen].astype(np.int64)),
            torch.from_numpy(weight[chosen].astype(np.float32)),
        )

    fit(
        model,
        lambda *parts: target_loss(model, *parts),
        batch_at,
        name="target",
        rate=3e-3,
        steps=plan.target_steps,
        schedule_steps=plan.target_steps,
        keep=0.95,
        checkpoint=folder / "checkpoint_target.safetensors",
        log=log,
    )
    save_half(model, path)


@torch.no_grad()
def _drafts(plan: TrainKeys, folder: Path, path: Path, log: Log) -> None:
    """Training prompts continued by the target, and its states after the tapped layers."""
    target, coder = load_target(folder), load_coder(folder)
    rng = np.random.default_rng([plan.seed, 2])
    prompts = [coder.encode(e.prompt) for e in examples(rng, plan.draft_rows, "train")]
    prompts = [p for p in prompts if len(p) + 16 <= plan.row_tokens]
    sampled = rng.random(len(prompts)) < SAMPLED
    tokens = np.full((len(prompts), plan.row_tokens), PAD, np.uint16)
    length = np.zeros(len(prompts), int)
    for temperature, chosen in enumerate((~sampled, sampled)):
        rows = np.flatnonzero(chosen).tolist()
        asked = [Prompt(0, 0, plan.seed * 1_000_003 + row, prompts[row]) for row in rows]
        texts = write_texts(
            target,
            asked,
            plan.draft_max_new_tokens,
            temperature,
            on_text=lambda done: log(f"generated {done} of {len(prompts)} sequences"),
        )
        for row, text in zip(rows, texts, strict=True):
            kept = text.tokens[: plan.row_tokens]
            tokens[row, : len(kept)], length[row] = kept, len(kept)
    taps = DrafterConfig().taps
    shape = (*tokens.shape, len(taps) * target.width)
    stored = np.lib.format.open_memmap(folder / "taps.npy", "w+", np.float16, shape)
    for start in range(0, len(tokens), 32):
        rows = torch.from_numpy(tokens[start : start + 32].astype(np.int64))
        stored[start : start + 32] = read_whole(target, rows, taps)[1].numpy()
    stored.flush()
    with path.open("wb") as file:
        np.savez(file, tokens=tokens, prompt_len=np.array(list(map(len, prompts))), length=length)


STAGES: dict[str, Callable[[TrainKeys, Path, Path, Log], None]] = {
    "tokenizer.json": _tokenizer,
    "provenance.json": _provenance,
    "target.safetensors": _target,
    "drafts.npz": _drafts,
}


def _drafter(plan: TrainKeys, folder: Path, kind: str) -> None:
    torch.set_num_threads(1)
    kept = np.load(folder / "drafts.npz")
    taps = np.load(folder / "taps.npy", mmap_mode="r")
    data = DraftData(kept["tokens"], kept["prompt_len"], kept["length"], taps)
    model = train_drafter(plan, kind, getattr(DRAFTERS, kind), load_target(folder), data, folder)
    with replacing(folder / f"drafter_{kind}.safetensors") as temporary:
        save_half(model, temporary)


def train_drafter(
    plan: TrainKeys,
    kind: str,
    config: DrafterConfig,
    target: Target,
    data: DraftData,
    folder: Path,
) -> Drafter:
    """Train a drafter of one kind on the target's text."""
    torch.manual_seed(plan.seed)
    rng = np.random.default_rng([plan.seed, 3])
    model = Drafter(config, target)
    fit(
        model,
        lambda *parts: drafter_loss(model, target, *parts),
        lambda step: data.draw(rng, plan.drafter_rows, plan.drafter_anchors),
        name=kind,
        rate=2e-3,
        steps=getattr(plan, f"{kind}_steps"),
        schedule_steps=plan.block_steps if kind == "block" else plan.schedule_steps,
        keep=0.97,
        checkpoint=folder / f"checkpoint_{kind}.safetensors",
        log=lambda line: print(line, flush=True),
    )
    return model
