"""Every key of every configuration: what its declaration says is what is refused and written."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import pytest

from real_runner.settings import (
    DemoKeys,
    DistributionKeys,
    ExactKeys,
    LiveSettings,
    ProbeKeys,
    RecordKeys,
    TrainKeys,
    ValidateKeys,
    live_settings,
)
from simulator.cli.remarks import defaults
from simulator.cost import build_step_cost
from simulator.cost.settings import LatencySettings
from simulator.engine.settings import ServerSettings, WorkloadSettings
from simulator.studies.options import CONF, read_option
from simulator.studies.settings import SECTIONS, Configuration, check_keys
from tests.composing import composed
from traces.common.errors import InputError
from traces.common.settings import Section, keys_of
from traces.common.yaml import load_yaml

ROOFLINE = read_option("latency", "roofline", "latency")
MODELS = {"": Configuration, "latency.": LatencySettings} | {
    f"{name}.": model for name, model in SECTIONS.items()
}
LIVE = {"": LiveSettings, "validate.": ValidateKeys}
LIVE_KEYS = {
    prefix + path: (section, name)
    for prefix, model in LIVE.items()
    for path, section, name in keys_of(model)
    if not path.startswith(("server.", "trace."))
}
KEYS = {
    prefix + path: (section, name)
    for prefix, model in MODELS.items()
    for path, section, name in keys_of(model)
}
# Of any shape: what they name is read, and refused, where it is used.
OPEN = {
    *("policy", "latency", "trace.split", "trace.domains", "trace.at_temperature", "goodput"),
    *("latency.profile", "latency.provenance", "latency.roofline.gpu", "latency.roofline.model"),
    "latency.roofline.calibrate",
}


def kinds_of(section: type[Section], name: str) -> list[dict[str, Any]]:
    """The JSON schemas of what a key accepts."""
    schema = section.model_json_schema()["properties"][name]
    return schema.get("anyOf", [schema])


def bad_values(kinds: list[dict[str, Any]]) -> Iterator[Any]:
    """Too small, too large, of another type, not a number, and a truth."""
    types = {kind.get("type") for kind in kinds}
    yield from () if "boolean" in types else (True,)
    yield from () if types & {"number", "array", "integer"} and "string" in types else (math.nan,)
    names = [kind for kind in kinds if "enum" in kind]
    yield from () if "string" in types and not names else ("nope",)
    for kind in kinds:
        if kind.get("type") in ("integer", "number"):
            yield from outside(kind)
        if kind.get("type") == "array" and kind["items"].get("type") in ("integer", "number"):
            yield from ([value] for value in outside(kind["items"]))


def outside(kind: dict[str, Any]) -> tuple[float, float]:
    """Numbers at either side of what is accepted: both bounds are declared."""
    least, above = kind.get("minimum"), kind.get("exclusiveMinimum")
    most, below = kind.get("maximum"), kind.get("exclusiveMaximum")
    step = 1 if kind["type"] == "integer" else 0.5
    low = above if least is None else least - step
    high = below if most is None else most + step * max(1, abs(most) * 1e-9)
    return low, int(high) if kind["type"] == "integer" else high


def changed(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    config = copy.deepcopy(config)
    *parts, last = path.split(".")
    node = config
    for part in parts:
        node = node[part]
    node[last] = value
    return config


def line_of(path: str, value: Any) -> str:
    """What is said about a configuration with this value; the task is one that reads the key."""
    config = changed(defaults() | {"latency": ROOFLINE}, path, value)
    group = path.partition(".")[0]
    config["task"] = group if group in SECTIONS and group != path else config["task"]
    try:
        check_keys(config)
        build_step_cost(config["latency"])
    except InputError as error:
        return str(error)
    return "nothing"


@pytest.fixture(scope="module")
def live() -> dict[str, Any]:
    """The configuration of the live runner, without a word."""
    return composed("real_runner")


@pytest.mark.parametrize("path", sorted(KEYS.keys() - OPEN - {"request_rate"}))
def test_what_is_out_of_bounds_is_refused_by_its_key(path):
    values = list(bad_values(kinds_of(*KEYS[path])))
    assert values
    for value in values:
        text = line_of(path, value)
        assert text.startswith(f"{path} is {value!r}; accepted: "), value
        assert text.isprintable()


@pytest.mark.parametrize("path", sorted(LIVE_KEYS.keys() - OPEN - {"request_rate", "ramp"}))
def test_what_is_out_of_bounds_live_is_refused_by_its_key(live, path):
    live_settings(live)
    for value in bad_values(kinds_of(*LIVE_KEYS[path])):
        with pytest.raises(InputError) as caught:
            live_settings(changed(live, path, value))
        assert str(caught.value).startswith(f"{path} is {value!r}; accepted: "), value


def test_a_rate_is_from_small_to_endless():
    for value in (0, 1e-7, -1, 1e301, math.nan, True, "fast", -math.inf):
        assert line_of("request_rate", value).startswith(f"request_rate is {value!r}; accepted: ")


# ---------------- The files that hold the defaults.


FILES = [
    ("config.yaml", Configuration, ""),
    *(("config.yaml", model, f"{name}.") for name, model in SECTIONS.items()),
    ("server/default.yaml", ServerSettings, ""),
    ("latency_base.yaml", LatencySettings, ""),
    ("latency/roofline.yaml", LatencySettings, "roofline."),
    ("workload/recorded.yaml", WorkloadSettings, ""),
    ("real_runner.yaml", LiveSettings, ""),
    ("real_runner.yaml", RecordKeys, "record."),
    *(
        ("real_runner.yaml", model, f"{model.PREFIX}")
        for model in (DemoKeys, ExactKeys, ProbeKeys, ValidateKeys, DistributionKeys, TrainKeys)
    ),
    ("workload/file.yaml", WorkloadSettings, ""),
]


def written(file: str, prefix: str) -> Iterator[tuple[str, Any, str]]:
    """Keys of a file below a prefix, their values, and what stands beside them."""
    text = (CONF / file).read_text(encoding="utf-8")
    node, lines = load_yaml(text), text.splitlines()
    for part in prefix.split(".")[:-1]:
        node, at = node[part], next(i for i, one in enumerate(lines) if one.startswith(f"{part}:"))
        lines = lines[at + 1 :]
    indent = "  " * prefix.count(".")
    for name, value in node.items():
        at = next(i for i, one in enumerate(lines) if one.startswith(f"{indent}{name}:"))
        more = takewhile(lambda line: line.startswith(f"{indent}  # "), lines[at + 1 :])
        comment = re.findall(r"  # (.*)$", lines[at])
        yield name, value, " ".join([*comment, *(one.strip()[2:] for one in more)])


@pytest.mark.parametrize(("file", "model", "prefix"), FILES, ids=[f"{f} {p}" for f, _, p in FILES])
def test_files_say_what_is_declared(file, model, prefix):
    """Values and comments of conf/ are the defaults and the help of the declarations."""
    seen = set()
    for name, value, comment in written(file, prefix):
        section = model
        if prefix and model is LatencySettings:
            section = LatencySettings.model_fields["roofline"].annotation.__args__[0]
        if prefix in ("", "record.") and isinstance(value, dict):
            continue
        if name in ("defaults", "hydra", *SECTIONS, "name", "profile", "host", "roofline", "path"):
            continue
        seen.add(name)
        field = section.model_fields[name]
        if not field.is_required() and file != "latency/roofline.yaml":
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            assert value in (default, None if default == [] else default), name
        assert comment == (field.description or ""), name
    assert seen
