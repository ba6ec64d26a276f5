"""How a policy looks: one colour and one marker, the same in every figure.

Colours are those of Okabe and Ito (Color Universal Design, 2008), told apart under the common
forms of colour blindness; markers and dashes repeat the difference for print in grey.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from zlib import crc32

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
SOLID, DASHED, DOTTED, DASH_DOT = "-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2))


@dataclass(frozen=True, slots=True)
class Look:
    """Of one policy's line."""

    colour: str
    marker: str
    dash: str | tuple = SOLID

    @property
    def edge(self) -> str:
        """Outline of a marker; yellow alone is too pale to stand on white."""
        return "#8A8100" if self.colour == YELLOW else self.colour


KNOWN = {
    "autoregressive": Look(BLACK, "x", DASHED),
    "fixed_chain": Look(SKY, "o"),
    "tuned_chain": Look(BLUE, "s"),
    "fixed_tree": Look(ORANGE, "^"),
    "fixed_tree_static": Look(ORANGE, "<", DASHED),
    "fixed_tree_binary": Look(ORANGE, ">", DOTTED),
    "cast": Look(VERMILLION, "D"),
    "treespark": Look(GREEN, "v"),
    "treespark_chain_arm": Look(GREEN, "p", DASHED),
    "priced_survival": Look(PURPLE, "*"),
}
_SPARE = [
    Look(colour, marker, dash)
    for marker, dash in (("P", SOLID), ("X", DASHED), ("h", DOTTED), ("*", DASH_DOT))
    for colour in (PURPLE, YELLOW)
]
_VARIANTS = [(m, d) for d in (SOLID, DASHED, DOTTED) for m in ("o", "s", "^", "v", "D", "P", "X")]


def policy_name(label: str) -> str:
    """``fixed_chain`` of ``fixed_chain(length=4)``."""
    return label.partition("(")[0]


def policy_rank(label: str) -> int:
    """Place in tables and legends: the known policies in their order, then all others."""
    names = list(KNOWN)
    name = policy_name(label)
    return names.index(name) if name in names else len(names)


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """The look of every label.

    Unknown policies take a spare look picked by their name, the next free one if it is taken.
    Variants of one policy share its colour and differ by marker and dash.
    """
    variants: dict[str, list[str]] = defaultdict(list)
    for label in sorted(set(labels)):
        variants[policy_name(label)].append(label)
    base = _base_looks(variants)
    found = {}
    for name, group in variants.items():
        for index, label in enumerate(group):
            marker, dash = _VARIANTS[index % len(_VARIANTS)]
            alone = len(group) == 1
            found[label] = base[name] if alone else replace(base[name], marker=marker, dash=dash)
    return found


def _base_looks(names: Iterable[str]) -> dict[str, Look]:
    base, taken = {}, set()
    for name in sorted(names):
        slot = crc32(name.encode()) % len(_SPARE)
        if name in KNOWN:
            base[name] = KNOWN[name]
            continue
        free = ((slot + step) % len(_SPARE) for step in range(len(_SPARE)))
        slot = next((one for one in free if one not in taken), slot)
        taken.add(slot)
        base[name] = _SPARE[slot]
    return base
