"""The load of a live run: the simulator's order of requests and arrivals, from the same seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from real_runner.settings import mapping
from simulator.engine.settings import ServerSettings, Settings, read_server
from traces.common.errors import InputError

KEYS = ("max_concurrency", "request_rate", "burstiness", "num_prompts", "seed", "goodput")


def read_load(config: Mapping[str, Any], prompts: int | None) -> Settings:
    """The load's settings, checked as the simulator checks them.

    prompts: lines of a prompts file, each sent once by default; None: the corpus.
    """
    server = mapping("server", config["server"])
    for item in fields(ServerSettings):
        value = server.get(item.name, item.default)
        if item.name != "max_num_seqs" and value != item.default:
            raise InputError(
                f"server.{item.name} is {value!r}; accepted live: {item.default!r} (the live "
                "server is one replica that prefills whole prompts)"
            )
    unknown = [key for key in server if key not in {item.name for item in fields(ServerSettings)}]
    if unknown:
        raise InputError(f"unknown key server.{unknown[0]}; accepted: server.max_num_seqs")
    values = {key: config[key] for key in KEYS}
    if values["num_prompts"] is None and prompts is not None:
        values["num_prompts"] = prompts
    return Settings(**values, server=read_server(server))


def realised_rate(load: Settings, arrival_s: np.ndarray) -> float | None:
    """Requests per second that arrived in an open loop."""
    last_s = float(np.max(arrival_s))
    return None if math.isinf(load.request_rate) or last_s <= 0 else load.requests / last_s
