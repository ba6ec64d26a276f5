"""Drawings inside a page: SVG as data, so that nothing beside the page is needed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO

from analysis.drawing import style
from analysis.figure.parts import Drawing
from analysis.figure_files import METADATA
from analysis.html import Html, tag


def figures(drawn: Sequence[Drawing]) -> Html:
    """All of them with their captions, several abreast; nothing where there is none."""
    return tag("div", [_figure(one) for one in drawn], class_="figures") if drawn else Html("")


def _figure(one: Drawing) -> Html:
    """Facts that hold of a whole setting stand once in its section, not under each figure."""
    data = b64encode(svg(one)).decode("ascii")
    image = tag("img", src=Html(f"data:image/svg+xml;base64,{data}"), alt=one.sentence)
    text = tag("figcaption", tag("b", one.sentence), " ", " ".join(one.remarks))
    return tag("figure", image, text)


def svg(one: Drawing) -> bytes:
    """The drawing as SVG, the same bytes each time."""
    out = BytesIO()
    with style():
        one.figure.savefig(out, format="svg", metadata=METADATA["svg"])
    return out.getvalue()
