"""Published tables and figures beside this project's numbers: `published.table=NAME`.

Every module here prints one for `task=published`; `decoding` has its own task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from traces.common.errors import InputError

DECODING = "decoding"
TABLES = (
    "cast_width",
    "cast_latency",
    "cast_mass",
    "treespark_budget",
    "treespark_theta",
    "treespark_load",
    "dspark_lengths",
    "dspark_cliff",
)


def lines(name: Any, cfg: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a table.

    Args:
        name: one of `TABLES`.
        cfg: a whole configuration; tables read its trace, latency profile and load.

    Raises:
        InputError: an unknown table, or what a table refuses about the configuration.
    """
    if name not in TABLES:
        accepted = ", ".join((DECODING, *TABLES))
        raise InputError(f"published.table is {name!r}; accepted: {accepted}")
    module = import_module(f"simulator.studies.published.{name.partition('_')[0]}")
    return getattr(module, f"{name}_lines")(cfg)
