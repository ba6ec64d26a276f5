"""Wall time of the demo's sweep (30 runs) and its two ends, against importing numpy.

python tests/benchmarks/bench_sweep.py
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POLICIES = "autoregressive,fixed_chain,tuned_chain,fixed_tree,cast,treespark"


def seconds(*words: str) -> float:
    """Wall time of one command; its output is thrown away."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        base_s = min(seconds("-c", "import numpy") for _ in range(3))
        rows = {
            "import numpy": base_s,
            "import simulator": min(seconds("-c", "import simulator") for _ in range(3)),
            "one run": seconds("-m", "simulator", "+policy=cast", f"hydra.run.dir={folder}/one"),
            "30 runs": seconds(
                "-m", "simulator", "-m", f"+policy={POLICIES}", "max_concurrency=1,4,16,64,256",
                f"hydra.sweep.dir={folder}/sweep",
            ),
        }  # fmt: skip
        for name, wall_s in rows.items():
            print(f"{name:18s} {wall_s:7.2f} s {wall_s / base_s:7.1f} x import numpy")


if __name__ == "__main__":
    main()
