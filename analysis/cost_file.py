"""A fit of host terms as a latency configuration, with where its numbers come from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from analysis.cost_fit import Fit
from traces.errors import InputError


def write_latency(path: Path, fit: Fit) -> Path:
    """Write the configuration under a temporary name and rename it.

    The same rounds, profile and options give the same bytes: no date is in it.

    Raises:
        InputError: a folder that cannot be written to.
    """
    from traces.plain_yaml import dump_yaml

    text = dump_yaml(node_of(path.stem, fit))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(_heading(path) + text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; accepted: a path to write to") from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _heading(path: Path) -> str:
    return (
        "# Host terms fitted to measured rounds by `python -m analysis cost`. Use it with\n"
        f"# latency=path/to/{path.name}; settings that come after that word replace these.\n"
    )


def node_of(name: str, fit: Fit) -> dict[str, Any]:
    """The configuration in types that YAML knows."""
    judged = fit.judged[0]
    return {
        "name": name,
        "profile": fit.profile,
        "strict": False,
        "packing": fit.packing,
        "draft_steps": 1,
        "mode": None,
        "graph_sizes": None,
        "cliffs": None,
        "prefill": None,
        "host": {term: float(f"{seconds:.6g}") for term, seconds in fit.host.items()}
        | {"overlap": False},
        "provenance": {
            "rounds": fit.rounds.path.name,
            "sha256": fit.rounds.sha256,
            "rows": len(fit.rounds),
            "fitted": fit.fitted,
            "seed": fit.seed,
            "hold_out": fit.hold_out,
            "profile": fit.profile,
            "context": fit.context,
            "held_out_median_error": round(judged.median, 6),
            "held_out_p90_error": round(judged.p90, 6),
        },
    }
