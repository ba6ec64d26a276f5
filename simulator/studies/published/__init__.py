"""`task=published`: a table of a paper beside this project's numbers, `published.table=NAME`.

The table NAME is made by the function `NAME_lines`, of a whole configuration, in the module that is
called like NAME's first word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from simulator.studies.settings import Published
from traces.common.settings import read


def run(cfg: Mapping[str, Any], _folder: Path | None = None) -> None:
    """Print the table; nothing is written.

    Raises:
        InputError: an unknown table, or what a table refuses about the configuration.
    """
    print("\n".join(lines(cfg)))


def lines(cfg: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the table that `published.table` names; it reads trace, profile and load.

    Raises:
        InputError: see `run`.
    """
    name = read(Published, cfg.get("published") or {}).table
    return resolve_name(f"{__name__}.{name.partition('_')[0]}:{name}_lines")(cfg)
