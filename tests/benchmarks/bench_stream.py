"""A million requests in one run: its memory, its rounds per second, and what streaming costs.

python tests/benchmarks/bench_stream.py [requests] [setting=value ...]

Processor time; `beyond` is that of the run less that of its compiled rounds alone, whose results
are thrown away.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

from pyarrow import parquet

from simulator.engine.arrivals import LazyWorkload, arrival_times
from simulator.engine.compiled import eligible
from simulator.engine.run import Job, load, prepare, run_job
from tests.composing import composed_jobs

WORDS = ("policy=cast", "max_concurrency=64")


class Nowhere:
    """A ledger that counts rounds and keeps nothing."""

    rounds = 0

    def times(self, name, request, time_s) -> None:
        """Nothing."""

    def block(self, steps, rounds) -> None:
        """Count."""
        self.rounds += len(rounds["request"])


def make_job(count: int, words: list[str]) -> Job:
    """A prepared run of `count` requests."""
    words = [*WORDS, *words, f"num_prompts={count}"]
    return prepare(load(composed_jobs(words)[0]))


def bare_seconds(job: Job) -> float | None:
    """Processor time of the compiled rounds alone; None where the run has none."""
    from simulator.engine.compiled.server import FastServer

    workload = LazyWorkload(job.settings, job.recording, job.sequences)
    if not eligible(job.settings, workload, job.policy, job.cost):
        return None
    server = FastServer(
        job.policy, job.recording, job.cost, workload, job.settings.capacity, job.tables,
        Nowhere(), arrival_s=arrival_times(job.settings, workload),
    )  # fmt: skip
    started = time.process_time()
    server.run()
    return time.process_time() - started


def main() -> None:
    words = sys.argv[1:]
    count = int(words.pop(0)) if words and words[0].isdigit() else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        run_job(make_job(100_001, words), Path(folder) / "warm")  # compiles and caches
        started = time.process_time()
        summary = run_job(make_job(count, words), Path(folder) / "run")
        run_s = time.process_time() - started
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sizes = {path.name: path.stat().st_size / 1e6 for path in (Path(folder) / "run").iterdir()}
        rounds = rounds_of(Path(folder) / "run")
    bare_s = bare_seconds(make_job(count, words))
    print(f"{summary['completed']:,} requests, {rounds:,} rounds, {summary['policy']}")
    print(f"peak memory          {peak_mib:8.0f} MiB")
    print(f"time                 {run_s:8.1f} s, {rounds / run_s:,.0f} rounds per second")
    if bare_s is not None:
        print(f"compiled rounds alone{bare_s:8.1f} s")
        print(f"beyond them          {(run_s - bare_s) / rounds * 1e9:8.0f} ns per round")
    print("files, MB:", ", ".join(f"{name} {size:.1f}" for name, size in sorted(sizes.items())))


def rounds_of(folder: Path) -> int:
    """All rounds of a run, from its requests."""
    with parquet.ParquetFile(folder / "requests.parquet") as file:
        return sum(
            int(batch.column(0).to_numpy().sum()) for batch in file.iter_batches(columns=["rounds"])
        )


if __name__ == "__main__":
    main()
