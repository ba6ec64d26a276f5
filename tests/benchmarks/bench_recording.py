"""A recording of about 1 GB: seconds and peak memory of `inspect` and of one short run.

The first opening checks the whole file, a block at a time; the second finds its stamp. Peak memory
is the process's, with the pages of the file that it has touched. `bench_recording.py FOLDER` runs
the code of another checkout on the same file.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.synthetic import make_pool
from traces.recordings.files import write_recording
from traces.recordings.manifest import concatenate

COPIES = 150  # of 24 sequences of 400 outputs


def write(path: Path) -> None:
    small = make_pool(np.random.default_rng(0), sequences=24, depths=7, lengths=[400] * 24, pool=16)
    whole = concatenate([small] * COPIES, "benchmark")
    write_recording(path, whole.meta, whole.arrays)


def timed(checkout: Path, cache: Path, *words: str) -> None:
    env = os.environ | {"PYTHONPATH": str(checkout), "SPECSIM_CACHE": str(cache)}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    code = (
        "import re, runpy, sys\n"
        "sys.argv = sys.argv[1:]\n"
        "try:\n    runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)\n"
        "finally:\n    peak = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]\n"
        "    print(f'PEAK {int(peak) / 1024:.0f} MiB', file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=env, cwd=cache, capture_output=True, text=True
    )
    seconds = time.perf_counter() - begun
    cpu_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before.ru_utime
    peak = [line for line in done.stderr.splitlines() if line.startswith("PEAK")]
    if done.returncode:
        print(done.stderr)
    print(f"{' '.join(words[:2]):40} {seconds:6.1f} s ({cpu_s:.1f} s of CPU) {peak}")


def main() -> None:
    checkout = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        path, cache = Path(folder) / "large.safetensors", Path(folder) / "cache"
        cache.mkdir()
        write(path)
        print(f"{path.stat().st_size / 1e9:.2f} GB, {checkout}")
        for _ in range(2):
            timed(checkout, cache, "traces", "inspect", str(path))
        for _ in range(2):
            words = ("policy=autoregressive", f"trace={path}", "num_prompts=4", "max_concurrency=1")
            timed(checkout, cache, "simulator", *words)


if __name__ == "__main__":
    main()
