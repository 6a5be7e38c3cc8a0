"""Elements of HTML and SVG. What is escaped is escaped here: text is text until it is in an element.

Names on a page come out of logs and scenarios: whoever named a group may have put anything into it. So a plain ``str``
is never taken for HTML, whatever is in it; only what was made here is.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from groupcoord.analysis.report.text import NOTHING, TEXT_LENGTH_MAX, clipped

NAME_LENGTH_MAX = 72
PROSE_LENGTH_MAX = 1_000
"""Of the text in one element: more than any sentence of ours has, and a bound for what others wrote."""

_ESCAPES_MAX = 100
_ESCAPED_LENGTH_MAX = len("&quot;")
_VOID = frozenset({"br", "meta"})
_SHAPES = frozenset({"line", "path", "polygon", "polyline", "rect"})


class Html(str):
    """Markup that is finished: it goes into an element as it is."""

    __slots__ = ()


EMPTY = Html("")


def text(value: str, length_max: int = TEXT_LENGTH_MAX) -> Html:
    """Return text for a page: clipped, with HTML's own characters escaped, and bounded after that too."""
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
    """Return parts one behind the other; text among them is escaped."""
    told = (part if isinstance(part, Html) else text(part, PROSE_LENGTH_MAX) for part in parts)
    return Html(between.join(told))


def element(tag: str, *content: str, **attributes: str | float | None) -> Html:
    """Return an element.

    Args:
        tag: its name.
        content: elements, and text, which is escaped.
        attributes: by name, with ``_`` for ``-`` and one at the end if Python wants the name itself: ``class_``. They
            are escaped, but not clipped. Those that are None or empty are left out.
    """
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
    """Return an attribute's value, as long as it is: half a list of points would be another picture."""
    return value if isinstance(value, Html) else escape(str(value))


TITLE_LENGTH_MAX = 200


def picture(width: int, height: int, label: str, parts: Iterable[Html]) -> Html:
    """Return a picture, with what it shows in words."""
    return element("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", aria_label=text(label))


def titled(told: str, shapes: Iterable[Html]) -> Html:
    """Return shapes with what they stand for, which is shown where one points at them."""
    return element("g", element("title", text(told, TITLE_LENGTH_MAX)), *shapes)


def rect(x: float, y: float, width: float, height: float, style: str) -> Html:
    """Return a rectangle, never too narrow to be seen."""
    size = {"width": f"{max(width, 0.5):.1f}", "height": f"{max(height, 0):.1f}"}
    return element("rect", class_=style, x=f"{x:.1f}", y=f"{y:.1f}", **size)


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> Html:
    """Return a straight line."""
    return element("line", class_=style, x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}")


def label(x: float, y: float, words: str, anchor: str) -> Html:
    """Return words that start, end or have their middle at a place."""
    return element("text", text(words), x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)
