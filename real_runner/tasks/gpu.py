"""What only a machine with a GPU can measure, in steps: `make gpu`, or one step at a time.

    python -m real_runner.tasks.gpu list
    python -m real_runner.tasks.gpu next        # the first step that is not done
    python -m real_runner.tasks.gpu all         # every step, one call after another
    python -m real_runner.tasks.gpu surface shape=qwen3_8b mode=eager
    python -m real_runner.tasks.gpu validate mode=graphs

A call takes less than nine minutes (`all` makes many); what is cut short goes on with the next
one. More words, KEY=VALUE, go to the task of the step in place of what stands here.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from real_runner.app import main as run
from real_runner.settings import choice
from traces.common.errors import InputError

CALL_S = 450  # of a surface's call; its last cell and the profile come on top
SHAPES = ("qwen3_4b", "qwen3_8b")
MODES = ("eager", "graphs")
SURFACE = {
    "task": "probe",
    "device": "cuda",
    "dtype": "bfloat16",
    "output": "traces/latency",
    "probe.batches": "[1,2,4,8,16,32,64,128,256]",
    "probe.packed_per_request": "[1,2,4,8,16,17,24,32,33,48,64,65,96,128]",
    "probe.prefixes": "[512,2048,8192]",
    "probe.prompt_tokens": "[128,512,2048,8192]",
    "probe.edges": "false",  # 17, 33 and 65 stand in the list
    "probe.repeats": "8",
    "probe.passes": "2",
    "probe.time_s": str(CALL_S),
}
VALIDATE = {
    "task": "validate",
    "device": "cuda",
    "dtype": "float32",
    "output": "results/gpu",
    "validate.repeats": "2",
    "validate.prompts_per_domain": "8",
}
KEYS = ("device", "dtype", "threads", "output", "packing", "temperature", "max_new_tokens")
VERBS = ("list", "next", "all", "surface", "validate")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to measure: the words of its task, and the file that is there when it is done."""

    name: str
    words: dict[str, str]
    result: Path

    @property
    def done(self) -> bool:
        """Its result is there, and no samples that wait for more."""
        partial = self.result.with_suffix(".partial.jsonl")
        return self.result.exists() and not partial.exists()

    def __str__(self) -> str:
        """With the command line of its task."""
        words = " ".join(f"{key}={value}" for key, value in self.words.items())
        return f"{self.name}: python -m real_runner {words}"

    def call(self) -> int:
        """Run it, or go on with it; the task's exit status."""
        print(self, flush=True)
        try:
            return run([f"{key}={value}" for key, value in self.words.items()])
        finally:
            gc.collect()  # gives the models' memory back before the next step


def steps_of(verb: str, more: Mapping[str, str]) -> list[Step]:
    """The steps in question; `shape` and `mode` narrow them, other keys go to their tasks."""
    from real_runner.models.loading import device_of
    from real_runner.probing.profile import short_name
    from real_runner.probing.shapes import SHAPES as KNOWN

    shapes = SHAPES if "shape" not in more else (choice("shape", more["shape"], tuple(KNOWN)),)
    modes = MODES if "mode" not in more else (choice("mode", more["mode"], MODES),)
    device = choice("device", more.get("device", "cuda"), ("auto", "cpu", "cuda"))
    own = {key: value for key, value in more.items() if key not in ("shape", "mode")}
    for key, value in own.items():
        if not key.startswith(("probe.", "validate.")) and key not in KEYS:
            raise InputError(f"{key} is {value!r}; accepted: shape, mode, keys of the task")
    graphs = {mode: {"graphs": str(mode == "graphs").lower()} for mode in modes}
    steps = []
    if verb != "validate":
        gpu = short_name(device_of(device))
        words = SURFACE | {key: own[key] for key in own if not key.startswith("validate.")}
        for shape, mode in product(shapes, modes):
            name = f"{gpu}_{shape}_{mode}"
            wanted = {"probe.shape": shape, **graphs[mode], "probe.name": name}
            result = Path(words["output"]) / f"{name}.csv"
            steps.append(Step(f"surface shape={shape} mode={mode}", words | wanted, result))
    if verb != "surface":
        words = VALIDATE | {key: own[key] for key in own if not key.startswith("probe.")}
        for mode in modes:
            folder = f"{words['output']}/small_{mode}"
            result = Path(folder) / "validation.json"
            wanted = words | graphs[mode] | {"output": folder}
            steps.append(Step(f"validate mode={mode}", wanted, result))
    return steps


def main(argv: Sequence[str] | None = None) -> int:
    """Do what is asked; the exit status of the last task, 2 for words that mean nothing."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words.pop(0) if words and "=" not in words[0] else ""
    try:
        for word in words:
            if "=" not in word:
                raise InputError(f"{word}: accepted: KEY=VALUE")
        if verb not in VERBS:
            raise InputError(f"step {verb!r}; accepted: {', '.join(VERBS)}")
        steps = steps_of(verb, dict(word.split("=", 1) for word in words))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if verb == "list":
        for step in steps:
            print(f"{'done' if step.done else 'to do':6} {step}")
        return 0
    for step in steps:
        if step.done:
            if verb != "next":
                print(f"{step.name}: done, in {step.result}", flush=True)
            continue
        status = step.call()
        once = verb != "all" or step.words.get("probe.finish") == "true"  # the rest stays undone
        while not (once or status or step.done):
            status = step.call()
        if status or verb != "all":
            return status
    print("all steps are done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
