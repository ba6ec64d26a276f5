"""The settings of the studies, each key declared once: `tournament.*`, `capacity.*` and the like.

What two settings say together, or about files, is checked where a study reads its plan.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field

from simulator.orders.specs import MAX_NODES
from traces.common.settings import LARGEST_WHOLE, Many, Section, equal, given, key

T = TypeVar("T")
MOST_CLIENTS = 100_000
MOST_SEED = LARGEST_WHOLE
MOST_REQUESTS = 100_000  # of a run of a search, which is held in memory
MOST_RATE = 1e6  # requests per second
MOST_BATCH = 4096  # requests of a batch that is bounded


def _ascending(values: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(sorted(set(values)))


def _once(values: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(dict.fromkeys(values))


def _listed(kind: Any) -> Any:
    return Annotated[Many[kind], Field(min_length=1)]


Split = Literal["calibration", "tuning", "report"]
Names = Annotated[_listed(str) | None, AfterValidator(_once)]
Clients = _listed(Annotated[int, Field(ge=1, le=MOST_CLIENTS)])
Loads = Annotated[Clients, AfterValidator(_ascending)]
SomeLoads = Annotated[Clients | None, AfterValidator(_ascending)]
Seeds = Annotated[
    _listed(Annotated[int, Field(ge=0, le=MOST_SEED)]) | None, AfterValidator(_ascending)
]
Nodes = Annotated[int, Field(ge=1, le=MAX_NODES)]
Budgets = Annotated[_listed(Nodes), AfterValidator(_ascending)]
Batches = Annotated[_listed(Annotated[int, Field(ge=1, le=MOST_BATCH)]), AfterValidator(_ascending)]
RIVALS = "a list of names and {policy, grid: {setting: [values]}}, or a file's name"
NAMES = "null, or a list of names or files"
PUBLISHED = [
    "published",
    {
        "policy": "priced_survival",
        "grid": {"price": ["local", "ratio", "lambda"], "nodes": [31, 63, 127]},
    },
]


class _Contest(Section):
    """What a tournament and a recommendation both ask."""

    seeds: Seeds = key(
        None, "of the runs that are reported; null: from the seed on", replaces="seed"
    )
    split_tune: Split = key("tuning", "where settings are chosen")
    split_report: Split = key("report", "where results are from")
    resamples: int = key(2000, "of prompts, for 95 % intervals", ge=100, le=100_000)
    workers: int = key(1, "processes", ge=1, le=1024)


class Tournament(_Contest):
    """Closed loops; rivals are tuned on one split, all of them reported on the other."""

    PREFIX = "tournament."
    candidate: str | None = key(
        None, "null: the policy of the run; or a name, or its YAML file", replaces="policy"
    )
    rivals: str | list[Any] = key("published", "who it is played against", accepted=RIVALS)
    profiles: Names = key(
        None, "null: the latency profile of the run; or a list", accepted=NAMES, replaces="latency"
    )
    traces: Names = key(
        None, "null: the trace of the run; or a list", accepted=NAMES, replaces="trace temperature"
    )
    domains: Literal["each", "mixture"] = key("each", "each (and their mixture), or mixture")
    concurrency: Loads = key((1, 2, 4, 8, 16, 32, 64, 128, 256), "clients, a load each")
    num_prompts: int | None = key(
        None, "null: every prompt once behind the clients' first ones", ge=1, le=MOST_REQUESTS
    )


class Recommend(_Contest):
    """Policy and settings for a load, tuned on one split, played on another."""

    PREFIX = "recommend."
    policies: str | list[Any] = key(PUBLISHED, "who may be recommended", accepted=RIVALS)
    concurrency: SomeLoads = key(
        None, "null: max_concurrency; or a list to recommend one of", replaces="max_concurrency"
    )
    attained: float = key(
        0.99,
        "share of requests within all limits that meets them",
        gt=0,
        le=1,
        counts=(given("goodput"),),
    )
    tuning_seeds: Seeds = key(None, "null: the seed of the run; or a list", replaces="seed")


class Claims(Section):
    """What the field's papers say, judged on the report split."""

    PREFIX = "claims."
    traces: Names = key(
        ("small_semi", "small_block", "small_semi_t1", "small_block_t1"),
        "null: the trace of the run; or a list",
        accepted=NAMES,
        replaces="trace temperature",
    )
    profiles: Names = key(None, "null: those that each claim is about; or a list", accepted=NAMES)
    concurrency: Loads = key((1, 16, 64, 256), "a claim takes those it is about")
    resamples: int = key(2000, "of prompts, for 95 % intervals", ge=100, le=100_000)


class Capacity(Section):
    """The largest load at which every objective of `goodput` is met, searched for by seed."""

    PREFIX = "capacity."
    of: Literal["request_rate", "max_concurrency"] = key("request_rate", "what is searched for")
    percentile: float = key(99.0, "of every objective that must lie within it", gt=0, lt=100)
    attained: float | None = key(
        None,
        "in its place: share of requests that meet all objectives",
        gt=0,
        le=1,
        replaces="capacity.percentile",
    )
    seeds: Seeds = key(None, "null: five, from the seed on; or a list", replaces="seed")
    tolerance: float = key(0.02, "by which the next load, not met, is above", gt=0, lt=1)
    least: float | None = key(
        None, "null: 0.001 requests per second, or one client", gt=0, le=MOST_RATE
    )
    most: float | None = key(
        None, "null: a million requests per second, or what all replicas run", gt=0, le=MOST_RATE
    )
    min_seconds: float = key(30.0, "that a run covers, unless it has max_requests", gt=0, lt=1e9)
    min_requests: int = key(500, "that are judged", ge=1, le=MOST_REQUESTS)
    max_requests: int = key(20_000, "of a run, at most", ge=1, le=MOST_REQUESTS)
    workers: int = key(1, "processes", ge=1, le=1024)


class Rtable(Section):
    """Committed round lengths of tree rules."""

    PREFIX = "rtable."
    split: Split | None = key(None, "null: every split")
    nodes: Budgets = key((15, 31, 63, 127), "draft nodes per request")


class Bounds(Section):
    """What no policy exceeds in a best-first order (O2), or in any with these children (O3)."""

    PREFIX = "bounds."
    nodes: int = key(63, "per request, at most")
    branch: int = key(8, "children of a node, at most")
    scores: str = key("auto", "what a node counts for; auto: by the drafter")
    batches: Batches = key((1, 4, 16, 64), "live requests")


class Calibrate(Section):
    """The calibration of a recording, fitted on best-first trees."""

    PREFIX = "calibrate."
    nodes: int = key(63, "per request, at most")
    branch: int = key(8, "children of a node, at most")
    output: str | None = key(None, "file; null: RECORDING.calibration.json beside the recording")


class Published(Section):
    """A paper's table beside this project's numbers."""

    PREFIX = "published."
    fit_domain: str = key(
        "gsm8k",
        "whose chain cell fits the host constant, and is not judged",
        counts=(equal("published.table", "decoding"),),
    )
    table: str = key("decoding", "of a paper, which conf/experiment/paper_*.yaml sets up")


SECTIONS = {
    one.PREFIX[:-1]: one
    for one in (
        Rtable,
        Bounds,
        Calibrate,
        Tournament,
        Claims,
        Capacity,
        Recommend,
        Published,
    )
}
