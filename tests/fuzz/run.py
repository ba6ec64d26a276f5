"""Damaged files against every reader: `python tests/fuzz/run.py --cases 10000 --seed 0`.

Case N damages one file of target N modulo their number, by a generator of (seed, N): the same words
give the same cases, and `--only N` plays one again. Cases are played by a process of 2 GB memory; a
crash of it is a fault of its case, and the next process goes on behind. Exit status 1 with faults.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.fuzz import cases
from tests.fuzz.cases import ACCEPTED, FAULT, MOST_BYTES, REFUSED, Bench, Outcome, Target

ENOUGH = 100  # cases of a target, of which some are accepted and some refused
STILL_S = 300.0  # without a word from the process, on a clock: it waits for something


def targets() -> list[Target]:
    """All targets; those of the live side where torch is installed."""
    from tests.fuzz import named, profiles, recordings, results, stores, workloads

    parts = (recordings, profiles, workloads, results, stores, named)
    found = [target for part in parts for target in part.TARGETS]
    try:
        import torch  # noqa: F401
    except ImportError:
        return found
    from tests.fuzz import imports, live

    return [*found, *imports.TARGETS, *live.TARGETS]


def _child(first: int, last: int, seed: int) -> None:
    """Play cases and write a line of JSON before (its number) and after each (its outcome)."""
    import numpy as np

    cases.limit_memory()
    words, sys.stdout = sys.stdout, sys.stderr
    found, benches = targets(), {}
    with tempfile.TemporaryDirectory() as folder:
        for case in range(first, last):
            print(json.dumps({"case": case}), file=words, flush=True)
            started = time.process_time()
            target = found[case % len(found)]
            try:
                if target.name not in benches:
                    benches[target.name] = Bench(target, Path(folder, str(len(benches))))
                outcome = benches[target.name].play(np.random.default_rng([seed, case]))
            except MemoryError:
                outcome = Outcome(FAULT, f"more than {MOST_BYTES >> 20} MiB")
            line = {"case": case, "target": target.name, "kind": outcome.kind, "text": outcome.text}
            line["seconds"] = time.process_time() - started
            line["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            print(json.dumps(line), file=words, flush=True)


def outcomes(first: int, last: int, seed: int) -> Iterator[dict]:
    """Lines of all cases, by as many processes as it takes."""
    while first < last:
        said = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed with the generator
        process = subprocess.Popen(
            [sys.executable, __file__, "--child", f"{first}:{last}", "--seed", str(seed)],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        yet = first - 1
        for line in _watched(process):
            node = json.loads(line)
            if "kind" in node:
                yield node
                first = node["case"] + 1
            yet = node["case"]
        status = process.wait()
        if first < last:
            said.seek(0)
            text = f"the process ends with {status}: {said.read()[-2000:]}"
            if yet < first:
                raise SystemExit(text)
            yield {"case": first, "target": "?", "kind": FAULT, "text": text}
            first += 1


def _watched(process: subprocess.Popen) -> Iterator[str]:
    """Lines of the process; it is killed when it is still for too long."""
    alive = threading.Event()

    def watch() -> None:
        while process.poll() is None:
            alive.clear()
            if not alive.wait(STILL_S) and process.poll() is None:
                process.kill()

    threading.Thread(target=watch, daemon=True).start()
    for line in process.stdout:
        alive.set()
        yield line
    alive.set()


def main(argv: list[str] | None = None) -> int:
    """Play, print a line for every target and every fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="N", help="play this case alone")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        first, last = map(int, args.child.split(":"))
        _child(first, last, args.seed)
        return 0
    first, last = (0, args.cases) if args.only is None else (args.only, args.only + 1)
    counts: dict[str, Counter] = {}
    faults, peak, slowest = [], 0, (0.0, 0)
    for node in outcomes(first, last, args.seed):
        counts.setdefault(node["target"], Counter())[node["kind"]] += 1
        peak = max(peak, node.get("peak", 0))
        slowest = max(slowest, (node.get("seconds", 0.0), node["case"]))
        if node["kind"] == FAULT:
            faults.append(node)
            print(f"case {node['case']}, {node['target']}: {node['text']}", flush=True)
    for name, found in sorted(counts.items()):
        print(f"{name:24} " + ", ".join(f"{count} {kind}" for kind, count in sorted(found.items())))
    for name, found in counts.items():
        for kind in (ACCEPTED, REFUSED):
            if found.total() >= ENOUGH and not found[kind]:
                faults.append({})
                print(f"{name}: {found.total()} cases, none {kind}: it checks nothing")
    played = sum(map(Counter.total, counts.values()))
    print(
        f"{played} cases, {len(faults)} faults, seed {args.seed}; slowest {slowest[0]:.1f} s, case "
        f"{slowest[1]} (reading may take {cases.MOST_S:g} s), at most {peak >> 20} MiB"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
