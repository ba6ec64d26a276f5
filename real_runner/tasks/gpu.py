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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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

    @property
    def finishes(self) -> bool:
        """Asked to leave the rest unmeasured: never more than one call."""
        return self.words.get("probe.finish") == "true"


def surface(shape: str, mode: str, more: dict[str, str]) -> Step:
    """The latency surface of a pair in real shapes."""
    from real_runner.models.loading import device_of
    from real_runner.probing.profile import short_name

    words = SURFACE | {"probe.shape": shape, "graphs": _graphs(mode)} | more
    name = f"{short_name(device_of(words['device']))}_{shape}_{mode}"
    words["probe.name"] = name
    result = Path(words["output"]) / f"{name}.csv"
    return Step(f"surface shape={shape} mode={mode}", words, result)


def validate(mode: str, more: dict[str, str]) -> Step:
    """Predictions against live runs of the small pair."""
    words = VALIDATE | {"graphs": _graphs(mode)} | more
    words["output"] = f"{words['output']}/small_{mode}"
    return Step(f"validate mode={mode}", words, Path(words["output"]) / "validation.json")


def _graphs(mode: str) -> str:
    return str(mode == "graphs").lower()


def main(argv: Sequence[str] | None = None) -> int:
    """Do what is asked; the exit status of the last task, 2 for words that mean nothing."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        verb = words.pop(0) if words and "=" not in words[0] else ""
        return _perform(verb, _pairs(words))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _pairs(words: list[str]) -> dict[str, str]:
    for word in words:
        if "=" not in word:
            raise InputError(f"{word}: accepted: KEY=VALUE")
    return dict(word.split("=", 1) for word in words)


def _perform(verb: str, more: dict[str, str]) -> int:
    verbs = ("list", "next", "all", "surface", "validate")
    if verb not in verbs:
        raise InputError(f"step {verb!r}; accepted: {', '.join(verbs)}")
    steps = _chosen(verb, more)
    if verb == "list":
        for step in steps:
            print(f"{'done' if step.done else 'to do':6} {step.name}: {command(step)}")
        return 0
    for step in steps:
        if step.done:
            if verb != "next":
                print(f"{step.name}: done, in {step.result}", flush=True)
            continue
        status = _call(step)
        while verb == "all" and status == 0 and not (step.done or step.finishes):
            status = _call(step)
        if status or verb != "all":
            return status
    print("all steps are done", flush=True)
    return 0


def _chosen(verb: str, more: dict[str, str]) -> list[Step]:
    """The steps in question; `shape` and `mode` narrow them."""
    from real_runner.probing.shapes import SHAPES as KNOWN
    from real_runner.settings import choice

    more = dict(more)
    shape, mode = more.pop("shape", None), more.pop("mode", None)
    shapes = SHAPES if shape is None else (choice("shape", shape, tuple(KNOWN)),)
    modes = MODES if mode is None else (choice("mode", mode, MODES),)
    choice("device", more.get("device", "cuda"), ("auto", "cpu", "cuda"))
    for key in more:
        if not key.startswith(("probe.", "validate.")) and key not in KEYS:
            raise InputError(f"{key} is {more[key]!r}; accepted: shape, mode, keys of the task")
    steps = []
    if verb != "validate":
        wanted = {key: value for key, value in more.items() if not key.startswith("validate.")}
        steps += [surface(one, how, wanted) for one in shapes for how in modes]
    if verb != "surface":
        wanted = {key: value for key, value in more.items() if not key.startswith("probe.")}
        steps += [validate(how, wanted) for how in modes]
    return steps


def command(step: Step) -> str:
    """The step as a command line of its task."""
    words = " ".join(f"{key}={value}" for key, value in step.words.items())
    return f"python -m real_runner {words}"


def _call(step: Step) -> int:
    from real_runner.app import main as run

    print(f"{step.name}: {command(step)}", flush=True)
    try:
        return run([f"{key}={value}" for key, value in step.words.items()])
    finally:
        gc.collect()  # gives the models' memory back before the next step


if __name__ == "__main__":
    sys.exit(main())
