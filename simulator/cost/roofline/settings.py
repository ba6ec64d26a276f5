"""The mapping ``latency.roofline`` of a configuration, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from simulator.cost.roofline.model import Roofline
from traces.common.errors import InputError
from traces.common.settings import Section, above, equal, key, number, read, several, whole
from traces.profiles.devices import find_gpu, find_model
from traces.profiles.header import DTYPE_BYTES

ROOFLINE = "roofline"
Share, Time = above(0, 1), number(0, 1e6)


class RooflineSettings(Section):
    """A device and a model by their data sheets, in `Roofline`'s numbers.

    gpu, model: names of the shipped tables, or mappings of numbers.
    """

    PREFIX: ClassVar[str] = f"latency.{ROOFLINE}."

    gpu: Any = key(
        help="a name of simulator/cost/gpus.yaml (h100-sxm as well), or "
        "{peak_tflops: .., bandwidth_gb_s: ..}",
        accepted="a name, or a mapping",
    )
    model: Any = key(
        help="a name of simulator/cost/models.yaml, or a mapping of its numbers",
        accepted="a name, or a mapping",
    )
    tensor_parallel: whole(1, 1024) = 1
    dtype: Literal[tuple(DTYPE_BYTES)] = key(
        "bfloat16", "of weights and cache; computing stays at the device's given peak"
    )
    bandwidth_efficiency: Share = key(0.8, "assumed")
    compute_efficiency: Share = key(0.6, "assumed")
    allreduce_us: Time = key(
        10.0,
        "assumed, of each of two all-reduces a layer; more than one GPU",
        counts=(several("latency.roofline.tensor_parallel"),),
    )
    overhead_ms: Time = key(
        0.0,
        "of every target step",
        counts=(equal("latency.roofline.calibrate", None, ", which else fits it"),),
    )
    draft_layers: whole(1, 1000) = key(5, "block drafter: so many of the target's layers")
    draft_tokens: whole(1, 32_766) = key(16, "tokens it drafts for a request")
    calibrate: Any = key(
        None,
        "CSV of batch,packed_tokens_total,kv_prefix_tokens,verify_ms: fits efficiencies and "
        "overhead",
    )


def read_roofline(node: Any) -> Roofline:
    """The roofline of a configuration, fitted to the points it names under ``calibrate``.

    Args:
        node: `RooflineSettings`, or a mapping of them; null where the default holds.

    Raises:
        InputError: an unknown key, or a value that is not accepted.
    """
    if isinstance(node, Mapping):
        node = {name: value for name, value in node.items() if value is not None}
    settings = node if isinstance(node, RooflineSettings) else read(RooflineSettings, node)
    given = {name: getattr(settings, name) for name in RooflineSettings.model_fields}
    calibrate, where = given.pop("calibrate"), RooflineSettings.PREFIX
    given["gpu"] = find_gpu(given["gpu"], f"{where}gpu")
    given["model"] = find_model(given["model"], f"{where}model")
    roofline = Roofline(**given)
    if roofline.draft_layers > roofline.model.layers:
        raise InputError(
            f"{where}draft_layers is {roofline.draft_layers}; accepted: up to "
            f"{roofline.model.layers}, the layers of {roofline.model.name}"
        )
    if calibrate is None:
        return roofline
    from simulator.cost.roofline.calibrate import calibrated

    return calibrated(roofline, calibrate)
