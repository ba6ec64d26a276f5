"""HTML as text: everything that is not markup is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape as _escape


class Html(str):
    """Markup that is inserted as it is; any other text is escaped."""

    __slots__ = ()


_VOID = ("img", "meta", "br", "hr")


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element; attributes with None left out, ``class_`` written as ``class``."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{join(children)}</{name}>")


def join(parts: Iterable[object]) -> Html:
    """Parts one after the other: markup, texts, or lists of either."""
    return Html("".join(_text(part) for part in parts))


def _text(part: object) -> str:
    if isinstance(part, Html):
        return part
    if isinstance(part, str):
        return escape(part)
    if isinstance(part, Iterable):
        return join(part)
    return escape(part)


def escape(value: object) -> str:
    """A value as text that cannot become markup; what no document may hold is shown as ?."""
    text = "".join(one if one.isprintable() or one in "\n\t" else "?" for one in str(value))
    return _escape(text, quote=True)


def details(summary: object, *children: object) -> Html:
    """A part that folds."""
    return tag("details", tag("summary", summary), *children)


def table(
    head: Iterable[object], rows: Iterable[Iterable[object]], left: Iterable[int] = (0,)
) -> Html:
    """A table that scrolls sideways where it is too wide; columns of `left` hold words."""
    words = set(left)

    def line(name: str, cells: Iterable[object], scope: str | None = None) -> Html:
        made = (
            cell
            if isinstance(cell, Html) and cell.startswith(f"<{name}")
            else tag(name, cell, class_="w" if at in words else None, scope=scope)
            for at, cell in enumerate(cells)
        )
        return tag("tr", made)

    body = [line("td", row) for row in rows]
    made = tag("table", tag("thead", line("th", head, "col")), tag("tbody", body))
    return tag("div", made, class_="wide")


def listing(items: Iterable[object]) -> Html:
    """A bulleted list."""
    return tag("ul", [tag("li", item) for item in items])


def terms(pairs: Iterable[tuple[object, object]]) -> Html:
    """Names and what they are."""
    return tag("dl", [(tag("dt", name), tag("dd", text)) for name, text in pairs])
