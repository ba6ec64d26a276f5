"""The load of a live run: the simulator's order of requests and arrivals, from the same seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.engine.settings import ServerSettings, Settings
from traces.common.errors import InputError
from traces.common.settings import read

KEYS = ("max_concurrency", "request_rate", "burstiness", "num_prompts", "seed", "goodput")


def read_load(config: Mapping[str, Any], prompts: int | None) -> Settings:
    """The load's settings, checked as the simulator checks them.

    prompts: lines of a prompts file, each sent once by default; None: the corpus.
    """
    server = read(ServerSettings, config["server"])
    defaults, changed = ServerSettings(), server.changed() - {"max_num_seqs"}
    for name in (one for one in ServerSettings.model_fields if one in changed):
        raise InputError(
            f"server.{name} is {getattr(server, name)!r}; accepted live: "
            f"{getattr(defaults, name)!r} (the live server is one replica that prefills whole "
            "prompts)"
        )
    values = {key: config[key] for key in KEYS}
    if values["num_prompts"] is None and prompts is not None:
        values["num_prompts"] = prompts
    return Settings(**values, server=server)
