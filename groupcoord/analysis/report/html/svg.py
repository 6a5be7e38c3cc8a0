"""Shapes of pictures: inline SVG whose colours come from the page's style, so that they follow light and dark."""

from __future__ import annotations

from collections.abc import Iterable

from groupcoord.analysis.report.html.elements import Html, element, text

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
