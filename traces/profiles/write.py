"""A latency profile written by a program: checked by reading it back before it takes its place."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from traces.common.errors import InputError
from traces.common.files import named
from traces.common.yaml import dump_yaml
from traces.profiles.header import ANY_BATCH
from traces.profiles.profile import read_profile
from traces.profiles.tables import DraftRow, PrefillRow, VerifyRow

Row = VerifyRow | DraftRow | PrefillRow
ENDINGS = (".draft.csv", ".prefill.csv", ".yaml", ".csv")  # the .csv names the profile: last


def write_profile(
    path: str | Path,
    header: Mapping[str, Any],
    verify_rows: Iterable[VerifyRow],
    draft_rows: Iterable[DraftRow],
    prefill_rows: Iterable[PrefillRow] = (),
) -> None:
    """Write ``NAME.yaml``, ``NAME.csv``, ``NAME.draft.csv`` and, with rows, ``NAME.prefill.csv``.

    Written under temporary names, read back and then renamed. An earlier profile's prefill table
    goes away if the new one has none.

    Args:
        path: of ``NAME.csv``; its folder is made.
        header: the fields of the YAML header, see ``traces/latency/README.md``.
        verify_rows, draft_rows, prefill_rows: sorted as the tables are.

    Raises:
        InputError: what `read_profile` would refuse, or rows that contradict the header's
            ``fixed``. No file is touched then.
    """
    path = Path(path)
    if path.suffix != ".csv":
        raise InputError(f"{path}: accepted: a path that ends in .csv")
    tables = tuple(verify_rows), tuple(draft_rows), tuple(prefill_rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = path.parent / f".{path.stem}.{os.getpid()}.tmp"
    try:
        with named(path):
            folder.mkdir()
            _write(folder / path.name, _plain(header), *tables)
            _check(folder / path.name, path, tables)
            for ending in ENDINGS:
                source, target = (folder / path.name).with_suffix(ending), path.with_suffix(ending)
                if source.exists():
                    os.replace(source, target)
                else:
                    target.unlink(missing_ok=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, header: dict, verify: Sequence, draft: Sequence, prefill: Sequence) -> None:
    text = dump_yaml(header)
    path.with_suffix(".yaml").write_text(text, encoding="utf-8")
    fixed = header.get("fixed")
    fixed = fixed if isinstance(fixed, dict) else {}
    _write_table(path, _columns(verify, ("packed_tokens_total", "verify_ms", "regime"), fixed))
    _write_table(path.with_suffix(".draft.csv"), _columns(draft, ("draft_ms",), fixed))
    if prefill:
        columns = _columns(prefill, ("prompt_tokens", "prefill_ms"), None)
        _write_table(path.with_suffix(".prefill.csv"), columns)


def _columns(
    rows: Sequence[Row], names: tuple[str, ...], fixed: Mapping[str, Any] | None
) -> dict[str, list]:
    """Texts by column; a dimension that `fixed` gives has none, `noise_ms` only if a row has it.

    Args:
        fixed: None for rows without dimensions.
    """
    columns = {}
    for name in () if fixed is None else ("batch", "kv_prefix_tokens"):
        values = [ANY_BATCH if value is None else value for value in _values(rows, name)]
        if name not in fixed or set(values) != {fixed[name]}:
            columns[name] = values
    columns |= {name: _values(rows, name) for name in names}
    noise = _values(rows, "noise_ms")
    if any(value is not None for value in noise):
        columns["noise_ms"] = ["" if value is None else value for value in noise]
    return columns


def _values(rows: Sequence[Row], name: str) -> list:
    """One column in Python's own numbers, whose text reads back as the same number."""
    if name == "regime":
        return ["cuda_graph" if row.captured else "eager" for row in rows]
    return [_plain(getattr(row, name)) for row in rows]


def _write_table(path: Path, columns: dict[str, list]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _check(written: Path, path: Path, tables: tuple[tuple, ...]) -> None:
    try:
        profile = read_profile(written)
    except InputError as error:  # it shall name the place, not the temporary one
        raise InputError(str(error).replace(str(written.parent), str(path.parent))) from None
    if (profile.verify, profile.draft, profile.prefill) != tables:
        raise InputError(f"{path}: the rows do not read back; accepted: rows the header fits")


def _plain(value: Any) -> Any:
    """`value` in the types that YAML and CSV know."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
