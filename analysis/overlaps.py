"""Lines that lie on one another: which points of a line later ones cover, and which are the same.

What is drawn last is on top, so marks below are drawn larger and stick out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isclose

NEAR = 0.004  # relative; about the width of a line
_NAMED = 3  # groups of equal lines that are spelled out

Points = Sequence[tuple[float, float]]  # (x, y) of a line


def covered(lines: Mapping[str, Points]) -> dict[str, tuple[int, ...]]:
    """By name, for every point of a line: how many later lines have a point there."""
    names = list(lines)
    return {
        name: tuple(
            sum(_has(lines[later], point) for later in names[at + 1 :]) for point in lines[name]
        )
        for at, name in enumerate(names)
    }


def equal_lines(panels: Iterable[Mapping[str, Points]]) -> list[list[str]]:
    """Groups of names whose lines are the same in every panel; a panel may lack some names."""
    drawn = [panel for panel in panels if panel]
    names = list(dict.fromkeys(name for panel in drawn for name in panel))
    groups: list[list[str]] = []
    for name in names:
        own = next((group for group in groups if _same(drawn, group[0], name)), None)
        if own is None:
            groups.append([name])
        else:
            own.append(name)
    return [group for group in groups if len(group) > 1]


def equal_words(panels: Iterable[Mapping[str, Points]]) -> list[str]:
    """What a figure itself says of lines that are the same; nothing where there are none."""
    groups = equal_lines(panels)
    more = [f"{len(groups) - _NAMED} more"] if len(groups) > _NAMED else []
    found = [" = ".join(group) for group in groups[:_NAMED]] + more
    return [f"same line: {', '.join(found)}"] if found else []


def _same(panels: Sequence[Mapping[str, Points]], one: str, other: str) -> bool:
    for panel in panels:
        a, b = panel.get(one, ()), panel.get(other, ())
        if len(a) != len(b) or not all(_near(p, q) for p, q in zip(a, b, strict=True)):
            return False
    return True


def _has(points: Points, wanted: tuple[float, float]) -> bool:
    return any(_near(point, wanted) for point in points)


def _near(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return all(isclose(x, y, rel_tol=NEAR) for x, y in zip(a, b, strict=True))
