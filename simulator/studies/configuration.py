"""The whole configuration of a command: groups, load, task, and the settings of every task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

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
from simulator.studies.settings import SECTIONS
from traces.common.errors import InputError, unknown
from traces.common.settings import Condition, Config, key, number, read

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
