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

from real_runner.models.small.config import TargetConfig
from real_runner.models.small.load import DRAFTERS, load_target, save_half, save_shapes
from real_runner.settings import TrainKeys
from real_runner.training.corpus import stdlib_provenance
from real_runner.training.drafter import train_drafter
from real_runner.training.drafts import DraftData, make_draft_data
from real_runner.training.target import train_target
from real_runner.training.text import load_tokenizer, train_tokenizer


def train(plan: TrainKeys, folder: Path, log: Callable[[str], None] = print) -> None:
    """Train the pair into `folder` (weights as float16, tokenizer, shapes, provenance)."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(plan.threads)
    _stage(folder / "tokenizer.json", lambda path: _tokenizer(plan, path), log)
    _stage(folder / "provenance.json", lambda path: _provenance(plan, path), log)
    _stage(folder / "target.safetensors", lambda path: _target(plan, folder, path, log), log)
    _stage(folder / "drafts.npz", lambda path: _drafts(plan, folder, path, log), log)
    context = multiprocessing.get_context("spawn")
    running = [
        context.Process(target=_drafter, args=(plan, folder, kind), name=kind)
        for kind in DRAFTERS
        if not (folder / f"drafter_{kind}.safetensors").exists()
    ]
    for process in running:  # two single-thread processes beat one with two threads
        process.start()
    for process in running:
        process.join()
    failed = [process.name for process in running if process.exitcode]
    if failed:
        raise SystemExit(f"training failed: {', '.join(failed)}")


def _stage(path: Path, make: Callable[[Path], None], log: Callable[[str], None]) -> None:
    """Make `path` under a temporary name unless it is there already."""
    if path.exists():
        log(f"{path.name}: there already, kept")
        return
    temporary = path.with_name("partial_" + path.name)
    make(temporary)
    temporary.rename(path)
    log(f"{path.name}: done")


def _tokenizer(plan: TrainKeys, path: Path) -> None:
    rng = np.random.default_rng([plan.seed, 0])
    train_tokenizer(rng, plan.vocab_size, plan.tokenizer_examples).save(str(path))


def _provenance(plan: TrainKeys, path: Path) -> None:
    facts = {"plan": plan.model_dump()}
    facts |= {"torch": torch.__version__, "standard_library": stdlib_provenance()}
    path.write_text(json.dumps(facts, indent=2) + "\n")


def _target(plan: TrainKeys, folder: Path, path: Path, log) -> None:
    config = TargetConfig(vocab_size=plan.vocab_size)
    save_shapes(config, folder)
    target = train_target(
        config,
        load_tokenizer(folder),
        seed=plan.seed,
        steps=plan.target_steps,
        batch=plan.target_batch,
        row_tokens=plan.row_tokens,
        checkpoint=folder / "checkpoint_target.safetensors",
        log=log,
    )
    save_half(target, path)


def _drafts(plan: TrainKeys, folder: Path, path: Path, log) -> None:
    data = make_draft_data(
        load_target(folder),
        load_tokenizer(folder),
        folder,
        seed=plan.seed,
        rows=plan.draft_rows,
        row_tokens=plan.row_tokens,
        max_new_tokens=plan.draft_max_new_tokens,
        log=log,
    )
    with path.open("wb") as file:
        np.savez(file, tokens=data.tokens, prompt_len=data.prompt_len, length=data.length)


def _drafter(plan: TrainKeys, folder: Path, kind: str) -> None:
    torch.set_num_threads(1)
    kept = np.load(folder / "drafts.npz")
    taps = np.load(folder / "taps.npy", mmap_mode="r")
    data = DraftData(kept["tokens"], kept["prompt_len"], kept["length"], taps)
    drafter = train_drafter(
        DRAFTERS[kind],
        load_target(folder),
        data,
        seed=plan.seed,
        steps=getattr(plan, f"{kind}_steps"),
        schedule_steps=plan.block_steps if kind == "block" else plan.schedule_steps,
        rows=plan.drafter_rows,
        anchors=plan.drafter_anchors,
        checkpoint=folder / f"checkpoint_{kind}.safetensors",
        log=lambda line: print(line, flush=True),
    )
    path = folder / f"partial_drafter_{kind}.safetensors"
    save_half(drafter, path)
    path.rename(folder / f"drafter_{kind}.safetensors")
