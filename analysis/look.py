"""The visual language: what a policy looks like in every figure, and the style of all of them.

A look follows from the policy's name alone, so a policy keeps its colour and marker whatever else
is drawn. Colours are those of Okabe and Ito (Color Universal Design, 2008) and the darker ones of
Paul Tol's muted set (SRON/EPS/TN/09-002), both made to be told apart under the common forms of
colour blindness; markers and dashes repeat the difference for print in grey. Nothing here loads
matplotlib.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from zlib import crc32

WIDTH_IN = 3.3  # one column of a paper
DPI = 300
BAND = 0.18  # opacity of an interval
SMALL = 5.5  # points, of remarks and crowded legends

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
INDIGO, TEAL, OLIVE, WINE, GREY = "#332288", "#44AA99", "#999933", "#882255", "#777777"
SOLID, DASHED, DOTTED, DASH_DOT = "-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2))
# Of what is no policy: violets, from dark to light, as in the predicted rounds of a validation.
TONES = ("#43317A", "#9A86C8", "#6E58A8", "#B9AADD", "#2B1B58", "#8471B8")

RC = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same figure on every machine
    "font.size": 7,
    "axes.labelsize": 7.5,
    "axes.titlesize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "0.3",
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.5,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.6,
    "xtick.bottom": True,
    "ytick.left": True,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "xtick.color": "0.15",
    "ytick.color": "0.15",
    "axes.labelcolor": "0.15",
    "pdf.fonttype": 42,  # editable text in the PDF
    "svg.fonttype": "path",  # an SVG that looks the same where the font is missing
    "svg.hashsalt": "specsim",  # the same identifiers each time
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.02,
    "figure.constrained_layout.w_pad": 0.02,
}


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
    "autoregressive": Look(BLACK, "X", DASHED),
    "fixed_chain": Look(SKY, "o"),
    "tuned_chain": Look(BLUE, "s"),
    "batch_schedule": Look(SKY, "P", DASHED),
    "sglang_adaptive": Look(BLUE, "X", DASHED),
    "smartspec": Look(INDIGO, "h"),
    "dspark": Look(TEAL, "o"),
    "dspark_threshold": Look(TEAL, "s", DASHED),
    "adaptive_verification": Look(INDIGO, "d", DASHED),
    "fixed_tree": Look(ORANGE, "^"),
    "fixed_tree_static": Look(ORANGE, "<", DASHED),
    "fixed_tree_binary": Look(ORANGE, ">", DOTTED),
    "sequoia": Look(YELLOW, "D"),
    "eagle2": Look(YELLOW, "o", DASHED),
    "opt_tree": Look(OLIVE, "s"),
    "pctree": Look(OLIVE, "^", DASHED),
    "ddtree": Look(WINE, "v"),
    "caddtree": Look(WINE, "P", DASHED),
    "caddtree_batch": Look(WINE, "X", DOTTED),
    "bastion": Look(GREY, "h"),
    "cast": Look(VERMILLION, "D"),
    "cast_measured": Look(VERMILLION, "d", DASHED),
    "treespark": Look(GREEN, "v"),
    "treespark_chain_arm": Look(GREEN, "p", DASHED),
    "priced_survival": Look(PURPLE, "*"),
}
_COLOURS = (PURPLE, GREY, TEAL, INDIGO, OLIVE, BLUE, WINE, GREEN, VERMILLION, ORANGE, SKY)
_MARKERS = ("P", "X", "h", "p", "<", ">", "d", "H", "8", "*", "o", "s", "D", "^", "v")
_TAKEN = {(look.colour, look.marker) for look in KNOWN.values()}
_SPARE = [(c, m) for m in _MARKERS for c in _COLOURS if (c, m) not in _TAKEN]
_DASHES = (SOLID, DASHED, DOTTED, DASH_DOT)
_VARIANTS = [(m, d) for d in (SOLID, DASHED, DOTTED) for m in ("o", "s", "^", "v", "D", "P", "X")]


def policy_name(label: str) -> str:
    """``fixed_chain`` of ``fixed_chain(length=4)``."""
    return label.partition("(")[0]


def policy_rank(label: str) -> int:
    """Place in tables and legends: the known policies in their order, then all others."""
    names = list(KNOWN)
    name = policy_name(label)
    return names.index(name) if name in names else len(names)


def in_order(labels: Iterable[str]) -> list[str]:
    """Labels once each, the known policies first; 2 before 16 in settings."""
    return sorted(set(labels), key=lambda label: (policy_rank(label), natural(label)))


def natural(text: str) -> tuple[tuple[int, float, str], ...]:
    """A key that sorts numbers within texts by value."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return tuple((0, float(one), "") if at % 2 else (1, 0.0, one) for at, one in enumerate(parts))


def look_of(policy: str) -> Look:
    """The look that a policy has by its name; users' own take one that no shipped policy has."""
    if policy in KNOWN:
        return KNOWN[policy]
    colour, marker = _SPARE[crc32(policy.encode()) % len(_SPARE)]
    return Look(colour, marker)


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """The look of every label.

    Variants of one policy share its colour and differ by marker and dash. Should two users'
    policies have the same colour and marker by chance, they differ by dash.
    """
    variants: dict[str, list[str]] = defaultdict(list)
    for label in in_order(labels):
        variants[policy_name(label)].append(label)
    found: dict[str, Look] = {}
    for name, group in variants.items():
        own, taken = look_of(name), set(found.values())
        every = (replace(own, dash=dash) for dash in (own.dash, *_DASHES))
        base = next((one for one in every if one not in taken), own)
        for index, label in enumerate(group):
            marker, dash = _VARIANTS[index % len(_VARIANTS)]
            alone = len(group) == 1
            found[label] = base if alone else replace(base, marker=marker, dash=dash)
    return found


def plain_looks(count: int, dashed: bool = False) -> list[Look]:
    """Looks of lines that are no policies', such as batch sizes: violets, told apart by marker.

    `dashed` ones are told apart by their dashes as well.
    """
    markers = ("o", "s", "^", "D", "v", "P", "X", "h")
    every = 1 if dashed else len(TONES)
    return [
        Look(TONES[at % len(TONES)], markers[at % len(markers)], _DASHES[at // every % 4])
        for at in range(count)
    ]
