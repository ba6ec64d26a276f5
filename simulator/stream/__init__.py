"""Runs of any number of requests in memory that does not grow with it.

with open_ledger(settings, workload, folder, domains) as ledger:
    ...  # serve `ledger.workload`, noting what happens in `ledger`
    summary = finish(job, ledger, folder)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.invariants import check_invariants
from simulator.ledger import Ledger, texts_of
from simulator.results import write_results
from simulator.settings import Settings
from simulator.stream.files import RunFiles
from simulator.stream.ledger import StreamLedger
from simulator.summary import summarise, summary_of
from simulator.workload import LazyWorkload, Workload

if TYPE_CHECKING:
    from simulator.run import Job

STREAM_FROM = 100_000  # requests of a run; longer runs are streamed


@contextmanager
def open_ledger(
    settings: Settings,
    workload: Workload | LazyWorkload,
    folder: Path | None,
    domains: tuple[str, ...],
) -> Iterator[Ledger | StreamLedger]:
    """A ledger for a run: in memory, or streamed to temporary files in `folder`.

    Serve its `workload`, which notes the requests that are read from it. Files that `finish` did
    not publish are removed at the end of the block.

    Args:
        folder: of the results; None: in memory, whatever the size.
        domains: names of the recording's.
    """
    if folder is None or len(workload) <= STREAM_FROM:
        yield Ledger(workload)
        return
    with RunFiles(folder) as files:
        yield StreamLedger(
            workload, files, domains, replicas=settings.server.replicas, limits=settings.goodput
        )


def finish(
    job: Job,
    ledger: Ledger | StreamLedger,
    folder: Path,
    *,
    capacity: int | None = None,
    open_end: bool = False,
    near_threshold: int | None = None,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Check the run, write its results into `folder`, and return its summary.

    Args:
        capacity: KV blocks of a replica; None: no limit.
        open_end: whether the run may have stopped while requests waited or ran.
        near_threshold, more: see `summarise`.

    Raises:
        InvariantError: the run contradicts itself; nothing is written.
    """
    keys = {"near_threshold": near_threshold, "more": more}
    if isinstance(ledger, StreamLedger):
        measures = ledger.close()
        ledger.accounts.check(capacity, open_end)
        summary = summary_of(job, measures, **keys)
        ledger.files.publish(summary)
        return summary
    facts = ledger.facts(texts_of(job.recording, ledger.workload))
    check_invariants(facts, capacity, open_end)
    summary = summarise(job, facts, **keys)
    write_results(folder, summary, facts, job.recording.domains)
    return summary


__all__ = ["STREAM_FROM", "RunFiles", "StreamLedger", "finish", "open_ledger"]
