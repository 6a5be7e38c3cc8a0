"""Layout and style sheet of all reports: page frame, sections, tables, legends; colours for light and dark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TypeVar

from attrs import frozen

from groupcoord.analysis.report.text import NOTHING, TEXT_LENGTH_MAX, clipped, listed

NAME_LENGTH_MAX = 72
PROSE_LENGTH_MAX = 1_000
"""Limit of text in one element, above any sentence of the report: bounds names from the log."""

_ESCAPES_MAX = 100
_ESCAPED_LENGTH_MAX = len("&quot;")
_VOID = frozenset({"br", "meta"})
_SHAPES = frozenset({"line", "path", "polygon", "polyline", "rect"})


class Html(str):
    """Finished markup, which is not escaped again."""

    __slots__ = ()


EMPTY = Html("")


def text(value: str, length_max: int = TEXT_LENGTH_MAX) -> Html:
    """Return text for a page: clipped, escaped, and clipped further if escapes lengthen it."""
    escaped = escape(clipped(value, length_max))
    if len(escaped) > length_max + _ESCAPES_MAX:
        return Html(escape(clipped(value, length_max // _ESCAPED_LENGTH_MAX)))
    return Html(escaped)


def name(value: str | None) -> Html:
    """Return the name of a group, a topic or a file for a page."""
    if value is None:
        return Html(NOTHING)
    return element("code", text(value, NAME_LENGTH_MAX)) if value else element("i", "no name")


def joined(parts: Iterable[str], between: str = "") -> Html:
    """Concatenate parts; text is escaped."""
    prose = (part if isinstance(part, Html) else text(part, PROSE_LENGTH_MAX) for part in parts)
    return Html(between.join(prose))


def element(tag: str, *content: str, **attributes: str | float | None) -> Html:
    opened = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    if tag in _VOID:
        return Html(f"<{tag}{opened}>")
    if tag in _SHAPES and not content:
        return Html(f"<{tag}{opened}/>")
    return Html(f"<{tag}{opened}>{joined(content)}</{tag}>")


def _value(value: str | float) -> str:
    return value if isinstance(value, Html) else escape(str(value))


TITLE_LENGTH_MAX = 200


def picture(width: int, height: int, label: str, parts: Iterable[Html]) -> Html:
    """Return an SVG with a label."""
    return element("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", aria_label=text(label))


def titled(title: str, shapes: Iterable[Html]) -> Html:
    return element("g", element("title", text(title, TITLE_LENGTH_MAX)), *shapes)


def rect(x: float, y: float, width: float, height: float, style: str) -> Html:
    """Return a rectangle, wide enough to be seen."""
    size = {"width": f"{max(width, 0.5):.1f}", "height": f"{max(height, 0):.1f}"}
    return element("rect", class_=style, x=f"{x:.1f}", y=f"{y:.1f}", **size)


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> Html:
    return element("line", class_=style, x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}")


def label(x: float, y: float, words: str, anchor: str) -> Html:
    return element("text", text(words), x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


STYLE_SHEET = Path(__file__).with_name("style.css")
OWNER_COLOURS = 24
_TURN_DEGREES = 137.508
"""Golden angle between hues, so that each is far from the previous ones."""


def style_sheet() -> Html:
    owners = (f".owner-{number}{{--fill:{colour}}}\n" for number, colour in enumerate(_owner_colours()))
    return Html("\n" + STYLE_SHEET.read_text("utf-8") + "".join(owners))


def _owner_colours() -> list[str]:
    """Return colours for consumers that are visible on light and dark pages."""
    hues = [round(210 + number * _TURN_DEGREES) % 360 for number in range(OWNER_COLOURS)]
    return [f"hsl({hue} {62 - number % 3 * 14}% {46 + number % 2 * 12}%)" for number, hue in enumerate(hues)]


LONG_TABLE_ROWS = 15
"""Number of rows above which a table scrolls under fixed titles."""

RowT = TypeVar("RowT")

Columns = Sequence[tuple[str, Callable[[RowT], str]]]
"""Columns of a table: title, and cell of a row."""

_COLUMN_STYLES = {"#": "n", "@": "t", "~": "w"}


@frozen
class Section:
    """A part of a page, linked by its name; without a body it is left out."""

    name: str
    title: str
    body: Html


def page(title: str, lead: Iterable[Html], sections: Iterable[Section]) -> Html:
    """Return a self-contained page: with its style, without scripts or external links."""
    shown = [section for section in sections if section.body]
    links = [element("a", section.title, href=f"#{section.name}") for section in shown]
    parts = [element("section", element("h2", one.title), one.body, id=one.name) for one in shown]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", style_sheet()),
    )
    body = element("body", element("main", element("h1", title), *lead, element("nav", *links), *parts))
    return joined((Html("<!doctype html>\n"), element("html", head, body, lang="en"), Html("\n")))


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> Html:
    """Return a table.

    The first character of a title sets the column's style: ``#`` numbers, ``@`` no wrapping, ``~`` sentences.
    """
    rows = list(rows)
    styles = [_COLUMN_STYLES.get(title[:1]) for title in head]
    of_cells = [None if style == "w" else style for style in styles]  # a title is enough to make a column wide
    titles = [
        element("th", title.lstrip("#@~"), scope="col", class_=style) for title, style in zip(head, styles, strict=True)
    ]
    made = [
        element("tr", *(element("td", cell, class_=style) for cell, style in zip(row, of_cells, strict=True)))
        for row in rows
    ]
    parts = [element("thead", element("tr", *titles)), element("tbody", joined(made, "\n"))]
    if caption:
        parts.insert(0, element("caption", caption))
    size = "scroll long" if len(rows) > LONG_TABLE_ROWS else "scroll"
    return element("div", element("table", *parts), class_=size, tabindex=0)


def table_of(rows: Iterable[RowT], columns: Columns[RowT], caption: str = "") -> Html:
    return table([title for title, _ in columns], ([cell(row) for _, cell in columns] for row in rows), caption)


def key(style: str) -> Html:
    """Return a small square in the colour of a style."""
    return element("i", class_=f"key {style}")


def legend(entries: Iterable[tuple[str, str]]) -> Html:
    return element("div", *(element("span", key(style), meaning) for meaning, style in entries), class_="legend")


def tile(value: str, title: str, section: str, shown: Collection[str], *, is_bad: bool = False) -> Html:
    """Return a tile, linked to its section if that is shown."""
    style, figure = "tile bad" if is_bad else "tile", (element("b", value), element("span", title))
    if section not in shown:
        return element("div", *figure, class_=style)
    return element("a", *figure, class_=style, href=f"#{section}")


def pill(word: str, severity: str) -> Html:
    return element("span", text(word), class_=f"pill {severity}") if word else EMPTY


def paragraph(*content: str, style: str | None = None) -> Html:
    return element("p", *content, class_=style) if any(content) else EMPTY


def soft(*content: str) -> Html:
    return element("p", *content, class_="soft")


def enumeration(parts: Iterable[Html]) -> Html:
    return Html(listed(list(parts)))


def listing(items: Iterable[Html | str]) -> Html:
    made = [element("li", item) for item in items]
    return element("ul", *made) if made else EMPTY
