"""The keys of the command line, each declared once: those of the studies (`tournament.*`,
`capacity.*` and the like) and the whole configuration.

What two settings say together, or about files, is checked where a study reads its plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from simulator.engine.settings import (
    GROUPS,
    OPTIONAL,
    SCALARS,
    LoadSettings,
    ServerSettings,
    TraceSettings,
    WorkloadSettings,
    value_at,
)
from simulator.orders.specs import MAX_NODES, SCORES
from traces.common.errors import InputError, unknown
from traces.common.settings import (
    LARGEST_WHOLE,
    Condition,
    Config,
    Many,
    Section,
    above,
    equal,
    given,
    key,
    number,
    read,
    whole,
)

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
Clients = _listed(whole(1, MOST_CLIENTS))
Loads = Annotated[Clients, AfterValidator(_ascending)]
SomeLoads = Annotated[Clients | None, AfterValidator(_ascending)]
Seeds = Annotated[_listed(whole(0, MOST_SEED)) | None, AfterValidator(_ascending)]
Nodes = whole(1, MAX_NODES)
Budgets = Annotated[_listed(Nodes), AfterValidator(_ascending)]
Batches = Annotated[_listed(whole(1, MOST_BATCH)), AfterValidator(_ascending)]
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

    split_tune: Split = key("tuning", "calibration, tuning or report: where settings are chosen")
    split_report: Split = key("report", "and where results are from")
    resamples: whole(100, 100_000) = key(2000, "of prompts, for 95 % intervals")
    workers: whole(1, 1024) = key(1, "processes")


class Tournament(_Contest):
    """Closed loops; rivals are tuned on one split, all of them reported on the other."""

    PREFIX = "tournament."
    candidate: str | None = key(
        None,
        "null: the policy chosen above; or one of conf/policy, or its YAML file",
        replaces="policy",
    )
    rivals: str | list[Any] = key(
        "published",
        "a file of conf/tournament, or a list of {policy, grid: {setting: [values]}}",
        accepted=RIVALS,
    )
    profiles: Names = key(
        None,
        "null: the latency profile chosen above; or a list",
        accepted=NAMES,
        replaces="latency",
    )
    traces: Names = key(
        None,
        "null: the trace chosen above; or a list",
        accepted=NAMES,
        replaces="trace temperature",
    )
    seeds: Seeds = key(None, "null: the seed above; or a list", replaces="seed")
    domains: Literal["each", "mixture"] = key("each", "each (and their mixture), or mixture")
    concurrency: Loads = key((1, 2, 4, 8, 16, 32, 64, 128, 256), "clients, a load each")
    num_prompts: whole(1, MOST_REQUESTS) | None = key(
        None, "null: every prompt once behind the clients' first ones, at most 256, or more"
    )


class Recommend(_Contest):
    """Policy and settings for a load, tuned on one split, played on another."""

    PREFIX = "recommend."
    policies: str | list[Any] = key(
        PUBLISHED,
        "names of policies, {policy, grid: {setting: [values]}}, and files of conf/tournament",
        accepted=RIVALS,
    )
    concurrency: SomeLoads = key(
        None,
        "null: max_concurrency above; or a list to recommend one of",
        replaces="max_concurrency",
    )
    attained: above(0, 1) = key(
        0.99,
        "share of requests within all limits of `goodput` from which on they are met",
        counts=(given("goodput"),),
    )
    tuning_seeds: Seeds = key(None, "null: the seed above; or a list", replaces="seed")
    seeds: Seeds = key(None, "null: five, from the seed above on; or a list", replaces="seed")


class Claims(Section):
    """What the field's papers say, judged on the report split."""

    PREFIX = "claims."
    traces: Names = key(
        ("small_semi", "small_block", "small_semi_t1", "small_block_t1"),
        "null: the trace chosen above",
        accepted=NAMES,
        replaces="trace temperature",
    )
    profiles: Names = key(
        None, "null: those that each claim is about; or a list for all of them", accepted=NAMES
    )
    concurrency: Loads = key(
        (1, 16, 64, 256), "a claim takes those it is about: alone, in batches, from 64 on"
    )
    resamples: whole(100, 100_000) = key(2000, "of prompts, for 95 % intervals")


class Capacity(Section):
    """The largest load at which every objective of `goodput` is met, searched for by seed."""

    PREFIX = "capacity."
    of: Literal["request_rate", "max_concurrency"] = key(
        "request_rate", "of an open loop; or max_concurrency, of a closed one"
    )
    percentile: float = key(
        99.0,
        "of requests' ttft, tpot and e2el, and of gaps' itl, that must be within limits",
        gt=0,
        lt=100,
    )
    attained: above(0, 1) | None = key(
        None,
        "in its place: share of requests within all limits, as vLLM's goodput judges",
        replaces="capacity.percentile",
    )
    seeds: Seeds = key(None, "null: five, from the seed above on; or a list", replaces="seed")
    tolerance: float = key(
        0.02,
        "share of the load found by which the next one, which is not met, is above it",
        gt=0,
        lt=1,
    )
    least: above(0, MOST_RATE) | None = key(
        None, "loads that are tried; null: 0.001 requests per second, or one client"
    )
    most: above(0, MOST_RATE) | None = key(
        None, "null: a million requests per second, or what all replicas run at once"
    )
    min_seconds: above(0, 1e9) = key(30.0, "that a run covers, unless it has max_requests")
    min_requests: whole(1, MOST_REQUESTS) = key(500, "that are judged")
    max_requests: whole(1, MOST_REQUESTS) = key(20_000, "of a run, at most")
    workers: whole(1, 1024) = key(1, "processes")


class Rtable(Section):
    """Committed round lengths of tree rules."""

    PREFIX = "rtable."
    split: Split | None = key(None, "null: every split; or calibration, tuning, report")
    nodes: Budgets = key((15, 31, 63, 127), "draft nodes per request")


class Bounds(Section):
    """What no policy exceeds in a best-first order (O2), or in any with these children (O3)."""

    PREFIX = "bounds."
    nodes: Nodes = key(63, "per request, at most")
    branch: Nodes = key(8, "children of a node, at most")
    scores: Literal[SCORES] = key(
        "auto", "what a node counts for: parent, marginal, marginal_biased; auto: by the drafter"
    )
    batches: Batches = key((1, 4, 16, 64), "live requests")


class Calibrate(Section):
    """The calibration of a recording, fitted on best-first trees."""

    PREFIX = "calibrate."
    nodes: Nodes = key(63, "per request, at most")
    branch: Nodes = key(8, "children of a node, at most")
    output: str | None = key(None, "file; null: RECORDING.calibration.json beside the recording")


TABLES = (
    "decoding",
    "cast_width",
    "cast_latency",
    "cast_mass",
    "treespark_budget",
    "treespark_theta",
    "treespark_load",
    "dspark_lengths",
    "dspark_cliff",
)


class Published(Section):
    """A paper's table beside this project's numbers."""

    PREFIX = "published."
    fit_domain: str = key(
        "gsm8k",
        "whose chain cell fits the host constant, and is not judged",
        counts=(equal("published.table", "decoding"),),
    )
    table: Literal[TABLES] = key(
        "decoding",
        f"or of a paper, which conf/experiment/paper_*.yaml sets up: {', '.join(TABLES[1:])}",
    )


_STUDIES = (Rtable, Bounds, Calibrate, Tournament, Claims, Capacity, Recommend, Published)
SECTIONS = {one.PREFIX[:-1]: one for one in _STUDIES}


# ---------------- The whole configuration: groups, load, task, and the settings of every task.


TASKS = ("run", *SECTIONS)
TOP = (*GROUPS, *OPTIONAL, *SCALARS, *SECTIONS)  # every key of the first level
_PLAYED = "run published tournament claims capacity recommend"
_RECORDED = "run rtable published bounds calibrate tournament claims capacity recommend"


def names_csv(values: Any) -> bool:
    """Whether a list of profiles names a file, which is read like the configured one."""
    return any(str(one).endswith(".csv") for one in values or ())


def _is_log(config: Config) -> bool:
    """Whether the trace is an imported log of rounds."""
    from simulator.engine.inputs import load_recording, settled

    try:
        recording = load_recording(settled(config)["trace"], per_round=True)
    except InputError:  # which the task says better
        return True
    return bool(recording.meta.get("per_round"))


_LOG = Condition(
    "an imported log of rounds, at task=rtable",
    lambda config: config.get("task") != "rtable" or _is_log(config),
)
_OWN_FILE = Condition(
    "a .csv in claims.profiles",
    lambda config: config.get("task") != "claims" or names_csv(value_at(config, "claims.profiles")),
)


def _option(group: str, read_by: str, *counts: Condition) -> Any:
    return key(accepted=f"{group}=OPTION, see --help", read_by=read_by, counts=counts)


class Configuration(LoadSettings):
    """Every key of ``conf/config.yaml`` but those of the tasks, which `SECTIONS` declares."""

    policy: Mapping[str, Any] = _option("policy", "run tournament capacity")
    trace: TraceSettings = _option("trace", _RECORDED)
    latency: Mapping[str, Any] = _option(
        "latency", _RECORDED.replace("calibrate ", ""), _LOG, _OWN_FILE
    )
    server: ServerSettings = _option("server", _PLAYED)
    workload: WorkloadSettings | None = key(
        None, accepted="workload=OPTION, see --help", read_by=_PLAYED
    )
    temperature: number(0, 100) | None = key(
        None, "of the texts; null: the trace's own", read_by=_RECORDED
    )
    task: Literal[TASKS] = "run"


def check_keys(config: Config) -> None:
    """Check the keys of all tasks, and the values that this task reads.

    Raises:
        InputError: the first key that nothing reads, or that has a value which is not accepted.
    """
    strange = [name for name in config if name not in TOP]
    if strange:
        raise InputError(unknown(strange[0], TOP))
    found = read(Configuration, {k: v for k, v in config.items() if k not in SECTIONS})
    for task, section in SECTIONS.items():
        node = config.get(task) or {}
        if task == found.task or not isinstance(node, Mapping):
            read(section, node)
        for name in node:
            if name not in section.model_fields:
                names = [section.PREFIX + one for one in section.model_fields]
                raise InputError(unknown(section.PREFIX + name, names))
