"""Layout and style sheet of all reports: page frame, sections, tables, legends; colours for light and dark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from html import escape
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
    told = (part if isinstance(part, Html) else text(part, PROSE_LENGTH_MAX) for part in parts)
    return Html(between.join(told))


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


def titled(told: str, shapes: Iterable[Html]) -> Html:
    return element("g", element("title", text(told, TITLE_LENGTH_MAX)), *shapes)


def rect(x: float, y: float, width: float, height: float, style: str) -> Html:
    """Return a rectangle, wide enough to be seen."""
    size = {"width": f"{max(width, 0.5):.1f}", "height": f"{max(height, 0):.1f}"}
    return element("rect", class_=style, x=f"{x:.1f}", y=f"{y:.1f}", **size)


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> Html:
    return element("line", class_=style, x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}")


def label(x: float, y: float, words: str, anchor: str) -> Html:
    return element("text", text(words), x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfbfa; --card: #fff; --text: #1c2126; --soft: #5d6771; --line: #d9dde1; --faint: #eceef0;
  --accent: #2563a8; --bad: #b3261e; --good: #1d7a3e; --warn: #8f5f00;
  --join: #3b82c4; --leave: #b97f0c; --expiry: #d1495b; --metadata: #8a63c9; --leader: #23907f;
  --static: #8a5a38; --move: #4d5b78; --unknown: #858e97; --other: #c4689a;
  --fenced: #9c1f4a; --session: #b5526a; --topics: #5f7d1e; --regex: #8a7208; --assignor: #a8488a;
  --stable: #4a7c8c; --completing: #76992a; --preparing: #b97f0c; --reconciling: #3b82c4; --assigning: #8a63c9;
  --empty: #858e97; --dead: #5d6771;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #14181c; --card: #1b2127; --text: #e4e8eb; --soft: #9aa5af; --line: #353e47; --faint: #262d34;
    --accent: #7ab3ee; --bad: #ff8a80; --good: #7bd69a; --warn: #e8b44a;
    --join: #5aa0e0; --leave: #e8b44a; --expiry: #ec6a7b; --metadata: #a98be0; --leader: #45bfb0;
    --static: #c39169; --move: #8496bd; --unknown: #6b757f; --other: #e0a3c4;
    --fenced: #f0829e; --session: #d66f86; --topics: #a8c455; --regex: #cdbb4e; --assignor: #d98fc0;
    --stable: #6fa8ba; --completing: #a9cf55; --preparing: #e8b44a; --reconciling: #5aa0e0; --assigning: #a98be0;
    --empty: #75808b; --dead: #a9b4be;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
main { max-width: 84rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
h1 { font-size: 1.65rem; line-height: 1.25; margin: .5rem 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .5rem; padding-top: .6rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; overflow-wrap: anywhere; }
p { margin: .35rem 0 .7rem; max-width: 50rem; } p.soft, .soft { color: var(--soft); }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .8rem 0 1.2rem; }
code { font: .92em ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(4, 1fr); gap: .7rem; margin: 1rem 0; }
.tile { color: var(--text); background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem .85rem; }
.tile b { display: block; font-size: 1.5rem; font-weight: 600; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: .86rem; }
.tile.bad b { color: var(--bad); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem;
  margin: .8rem 0; }
.card > h3:first-child { margin-top: .1rem; }
.card p { margin: .2rem 0 .5rem; }
.note { border-left: 4px solid var(--line); padding: .1rem 0 .1rem .8rem; margin: .7rem 0; }
.note.bad { border-color: var(--bad); } .note.good { border-color: var(--good); }
.better { color: var(--good); } .worse { color: var(--bad); }
p.answer { font-size: 1.2rem; font-weight: 600; line-height: 1.4; text-wrap: balance; }
.scroll { overflow: auto; margin: .6rem 0 1rem; }
.card { --page: var(--card); }
.scroll, .plot { background:
  linear-gradient(to right, transparent, var(--page) 60%) right / 3rem 100% no-repeat local,
  linear-gradient(to right, transparent, var(--line)) right / 1.2rem 100% no-repeat scroll; }
.scroll.long { max-height: 34rem; border-bottom: 1px solid var(--line); background:
  linear-gradient(transparent, var(--page) 60%) bottom / 100% 3rem no-repeat local,
  linear-gradient(transparent, var(--line)) bottom / 100% 1.5rem no-repeat scroll; }
.long thead th { position: sticky; top: 0; background: var(--page); }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
caption { text-align: left; color: var(--soft); padding: .2rem 0; }
th, td { padding: .28rem .45rem; text-align: left; border-bottom: 1px solid var(--faint); vertical-align: top; }
th { color: var(--soft); font-weight: 600; border-bottom: 1px solid var(--line); white-space: nowrap; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th.n { white-space: normal; } thead th { vertical-align: bottom; } th.w { min-width: 17rem; }
time { white-space: nowrap; }
td code { display: inline-block; width: max-content; max-width: 19rem; overflow-wrap: break-word; }
td div.soft { white-space: nowrap; }
td.t { white-space: nowrap; font-variant-numeric: tabular-nums; }
tbody tr:hover { background: var(--faint); }
.legend { display: flex; flex-wrap: wrap; gap: .15rem 1.1rem; font-size: .86rem; color: var(--soft); margin: .3rem 0; }
.key { display: inline-block; width: .75em; height: .75em; border-radius: 2px; margin-right: .4em; }
.pill { display: inline-block; border-radius: 999px; padding: 0 .6em; font-size: .82rem; white-space: nowrap;
  border: 1px solid var(--line); }
.pill.good { border-color: var(--good); color: var(--good); }
.pill.bad { background: var(--bad); border-color: var(--bad); color: var(--page); font-weight: 600; }
.pill.warning { border-color: var(--warn); color: var(--warn); font-weight: 600; }
.lead { font-size: 1.05rem; } .lead.fine { color: var(--good); }
ol.worst { list-style: none; margin: .6rem 0; padding: 0; display: grid; gap: .5rem; }
ol.worst li { background: var(--card); border: 1px solid var(--line); border-left: 5px solid var(--edge);
  border-radius: 6px; padding: .45rem .8rem; overflow-wrap: anywhere; }
.bad { --edge: var(--bad); } .warning { --edge: var(--warn); }
.worst .head { display: flex; flex-wrap: wrap; align-items: baseline; gap: .1rem .7rem; font-weight: 600; }
.worst .behind { margin-left: auto; font-variant-numeric: tabular-nums; }
details > summary { cursor: pointer; color: var(--accent); margin: .4rem 0; }
svg { display: block; width: 100%; height: auto; margin: .3rem 0; }
.plot { overflow-x: auto; } .plot svg { min-width: 52rem; }
svg text { font: 11.5px system-ui, -apple-system, "Segoe UI", Arial, sans-serif; fill: var(--soft); }
svg .axis { stroke: var(--soft); stroke-width: 1; } svg .grid { stroke: var(--faint); stroke-width: 1; }
svg g:hover rect { opacity: .75; }
svg rect, svg path, svg polygon { fill: var(--fill); } .key { background: var(--fill); }
svg .silence { opacity: .16; }
.sequence .ends { display: flex; justify-content: space-between; font-weight: 600; padding: 0 .2rem; }
.sequence ol { list-style: none; margin: .2rem .9rem .8rem; padding: .6rem 0; border: solid var(--soft);
  border-width: 0 1px; }
.sequence li { border-bottom: 1px solid var(--line); padding: .2rem .5rem; font-size: .9rem; overflow-wrap: anywhere; }
.sequence li.finding-step { border-bottom: 2px solid var(--bad); }
.members-area { fill: var(--soft); opacity: .16; }
.members-line { fill: none; stroke: var(--soft); stroke-width: 1.6; }
svg polyline[class^="epoch"] { fill: none; stroke-width: 1.8; }
.epoch-group { stroke: var(--join); } .epoch-target { stroke: var(--leave); stroke-dasharray: 5 3; }
.epoch-member { stroke: var(--expiry); }
.card.bad, .card.warning { border-left: 5px solid var(--edge); }
.finding { fill: var(--bad); } svg .finding-line { stroke: var(--bad); stroke-width: 1.6; }
svg .finding text { fill: var(--bad); }
b.bad, details > summary.bad { color: var(--bad); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: .8rem; }
.plots .card { margin: 0; display: flex; flex-direction: column; } .plots svg { margin-top: auto; }
.plots p { font-size: .9rem; color: var(--soft); }
@media (max-width: 44rem) {
  main { padding: 1rem .9rem 3rem; } .tiles { grid-template-columns: repeat(2, 1fr); } td code { max-width: 12rem; }
  .card { padding: .7rem .75rem; } .worst .behind { margin-left: 0; } ul { padding-left: 1.2rem; }
}
@media print {
  body { background: #fff; font-size: 10pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; } nav { display: none; }
  .card, .tile, .plot, svg, tr { break-inside: avoid; } h2, h3, caption { break-after: avoid; }
  .scroll, .scroll.long { max-height: none; overflow: visible; background: none; } .plot svg { min-width: 0; }
  details::details-content { content-visibility: visible; }
}
"""

FILLS = {
    "cause-join": "join",
    "cause-leave": "leave",
    "cause-expiry-or-leave": "expiry",
    "cause-session-expiry": "session",
    "cause-rebalance-time-out": "fenced",
    "cause-metadata-change": "metadata",
    "cause-topic-change": "topics",
    "cause-regular-expression-change": "regex",
    "cause-assignor-change": "assignor",
    "cause-leader-rejoin": "leader",
    "cause-static-replace": "static",
    "cause-coordinator-move": "move",
    "cause-unknown": "unknown",
    "cause-other": "other",
    "state-stable": "stable",
    "state-completingrebalance": "completing",
    "state-preparingrebalance": "preparing",
    "state-reconciling": "reconciling",
    "state-assigning": "assigning",
    "state-empty": "empty",
    "state-dead": "dead",
    "state-other": "other",
    "joined": "join",
    "left": "leave",
    "load": "empty",
    "hot": "expiry",
    "commits": "dead",
    "silence": "bad",
    "values": "join",
    "epoch-group": "join",
    "epoch-target": "leave",
    "epoch-member": "expiry",
}

OWNER_COLOURS = 24
_TURN_DEGREES = 137.508
"""Golden angle between hues, so that each is far from the previous ones."""


def style_sheet() -> Html:
    fills = {name: f"var(--{colour})" for name, colour in FILLS.items()}
    fills |= {f"owner-{number}": colour for number, colour in enumerate(_owner_colours())}
    return Html(STYLE + "".join(f".{name}{{--fill:{fill}}}\n" for name, fill in fills.items()))


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
    return element("div", *(element("span", key(style), told) for told, style in entries), class_="legend")


def tile(value: str, told: str, section: str, shown: Collection[str], *, is_bad: bool = False) -> Html:
    """Return a tile, linked to its section if that is shown."""
    style, figure = "tile bad" if is_bad else "tile", (element("b", value), element("span", told))
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
