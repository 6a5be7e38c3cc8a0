"""What a page is made of: its frame, sections, tables, legends, figures and notes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from attrs import frozen

from groupcoord.analysis.report.html.elements import EMPTY, Html, element, joined, text
from groupcoord.analysis.report.html.style import style_sheet
from groupcoord.analysis.report.text import listed

LONG_TABLE_ROWS = 15
"""A table with more rows scrolls in a box of its own, under titles that stay."""

RowT = TypeVar("RowT")

Columns = Sequence[tuple[str, Callable[[RowT], str]]]
"""The columns of a table of rows: the title of each, and what it shows of a row."""

_COLUMN_STYLES = {"#": "n", "@": "t", "~": "w"}


@frozen
class Section:
    """A part of a page.

    Attributes:
        name: where links lead; no other section has it.
        title: above it, and in the list of contents.
        body: without one, it is left out.
    """

    name: str
    title: str
    body: Html


def page(title: str, lead: Iterable[Html], sections: Iterable[Section]) -> Html:
    """Return a page that needs nothing else: its style is in it, there is no script, and no link leads away.

    Args:
        title: on top.
        lead: below it.
        sections: the rest, with a list of contents before it.
    """
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

    Titles that start with ``#`` stand above numbers, with ``@`` above what stays on one line, with ``~`` above
    sentences.
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
    """Return a :func:`table` by its columns."""
    return table([title for title, _ in columns], ([cell(row) for _, cell in columns] for row in rows), caption)


def key(style: str) -> Html:
    """Return a small square in the colour of a style."""
    return element("i", class_=f"key {style}")


def legend(entries: Iterable[tuple[str, str]]) -> Html:
    """Return names with the colours of their styles."""
    return element("div", *(element("span", key(style), told) for told, style in entries), class_="legend")


def tile(value: str, told: str, section: str, shown: Collection[str], *, is_bad: bool = False) -> Html:
    """Return one figure, which leads to its section if that is shown."""
    style, figure = "tile bad" if is_bad else "tile", (element("b", value), element("span", told))
    if section not in shown:
        return element("div", *figure, class_=style)
    return element("a", *figure, class_=style, href=f"#{section}")


def pill(word: str, severity: str) -> Html:
    """Return a word on the colour of how bad that is which it stands for; nothing without a word."""
    return element("span", text(word), class_=f"pill {severity}") if word else EMPTY


def paragraph(*content: str, style: str | None = None) -> Html:
    """Return a paragraph; nothing without content."""
    return element("p", *content, class_=style) if any(content) else EMPTY


def soft(*content: str) -> Html:
    """Return a paragraph that stands back."""
    return element("p", *content, class_="soft")


def enumeration(parts: Iterable[Html]) -> Html:
    """Return ``a, b and c``."""
    return Html(listed(list(parts)))


def listing(items: Iterable[Html | str]) -> Html:
    """Return a list of items; nothing without any."""
    made = [element("li", item) for item in items]
    return element("ul", *made) if made else EMPTY
