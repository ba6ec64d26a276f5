"""A latency profile: one measured (or modelled) cost table of one GPU, model and engine.

A profile NAME is three files: ``NAME.yaml`` (the header), ``NAME.csv`` (target step times) and
``NAME.draft.csv`` (drafter step times), with ``NAME.prefill.csv`` where prefill was timed.
``traces/latency/README.md`` describes the format.
"""

from __future__ import annotations

import hashlib
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

import traces
from traces.common.errors import InputError
from traces.profiles.header import ProfileHeader, read_header
from traces.profiles.tables import (
    DraftRow,
    PrefillRow,
    VerifyRow,
    read_draft,
    read_prefill,
    read_verify,
)

PROFILE_FOLDER = Path(traces.__file__).parent / "latency"


@dataclass(frozen=True, slots=True)
class LatencyProfile:
    """Times in milliseconds as they were published; sizes in tokens and requests.

    source: what it was asked for by, a shipped name or a path; no part of what it is.
    """

    name: str
    header: ProfileHeader
    verify: tuple[VerifyRow, ...]
    draft: tuple[DraftRow, ...]
    prefill: tuple[PrefillRow, ...] = ()  # empty: not timed, prefill is free
    source: str = field(default="", repr=False, compare=False)

    def __deepcopy__(self, memo: dict) -> LatencyProfile:
        return replace(self, header=deepcopy(self.header, memo))  # the rows are frozen

    @property
    def modelled(self) -> bool:
        """True when the header says that no stopwatch was involved."""
        return self.header.kind == "modelled"

    @property
    def content_hash(self) -> str:
        """sha256 of header and tables: what has the same is the same profile, whatever its name."""
        facts = ", ".join(f"{name}={value!r}" for name, value in self.header.model_dump().items())
        text = f"(ProfileHeader({facts}), {self.verify!r}, {self.draft!r}, {self.prefill!r})"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def described(self) -> str:
        """What errors about it begin with."""
        return f"latency profile {self.source or self.name}"


def read_profile(path: str | Path) -> LatencyProfile:
    """Read ``NAME.csv`` with its header, draft table and, if any, prefill table beside it.

    Raises:
        InputError: one line naming the file, the line and column (or header field), the value and
            what is accepted.
    """
    path = Path(path)
    if path.suffix != ".csv":
        raise InputError(f"{path}: a latency profile is named by its .csv file")
    if not path.is_file():
        raise InputError(f"{path}: no such file; accepted: a latency profile's .csv file")
    header = read_header(path.with_suffix(".yaml"))
    verify = read_verify(path, header.fixed)
    draft = read_draft(path.with_suffix(".draft.csv"), header.fixed)
    prefill_path = path.with_suffix(".prefill.csv")
    prefill = read_prefill(prefill_path) if prefill_path.exists() else ()
    captured = {row.packed_tokens_total for row in verify if row.captured}
    if captured != set(header.graph_sizes):
        odd = min(captured ^ set(header.graph_sizes))
        raise InputError(
            f"{path.with_suffix('.yaml')}: graph_sizes and the cuda_graph rows of {path.name} "
            f"differ at size {odd}; accepted: the same sizes in both"
        )
    return LatencyProfile(path.stem, header, verify, draft, prefill, source=str(path))


def known_profiles() -> list[str]:
    """Names of the shipped profiles, sorted."""
    return sorted(path.stem for path in PROFILE_FOLDER.glob("*.yaml"))


def find_profile(name: str | Path) -> LatencyProfile:
    """Read a shipped profile by name, or any profile by the path of its CSV.

    Raises:
        InputError: an unknown name (the known ones are listed), or an unreadable profile.
    """
    if str(name).endswith(".csv"):
        return read_profile(name)
    if str(name) not in known_profiles():
        raise InputError(
            f"latency.profile is {str(name)!r}; accepted: a path to a .csv, or one of "
            f"{', '.join(known_profiles())}"
        )
    return replace(read_profile(PROFILE_FOLDER / f"{name}.csv"), source=str(name))
