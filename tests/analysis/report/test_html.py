"""Text never becomes markup, wherever a template shows it, and tables have the shape of their columns."""

from __future__ import annotations

from html import unescape

import pytest
from hypothesis import given, strategies as st

from groupcoord.analysis.report.html.rendering import environment, text

from .reports import Page

ELEMENTS = environment().get_template("analysis/report/html/elements.html.jinja").module
TABLE = """{% from "analysis/report/html/elements.html.jinja" import table -%}
{% call(row, column) table(rows, "all") %}
{{ column("name", row[0]) }}{{ column("count", row[1], "n") }}{{ column("when", row[2], "t") }}
{% endcall %}"""
printable = st.text(st.characters(exclude_categories=("C", "Z")), max_size=100)


def made(template: str, **values: object) -> str:
    return environment().from_string(template).render(values)


@given(printable, printable, printable)
def test_text_is_text_wherever_it_goes(first: str, second: str, value: str) -> None:
    """Any text in elements and attributes is shown as it is, and never as a tag."""
    template = '<p title="{{ value }}">{{ first }}<b>{{ second }}</b></p>'
    found = Page(made(template, first=first, second=second, value=value))
    assert found.elements == [("p", {"title": value}), ("b", {})]
    assert "".join(found.words) == first + second


@given(st.text(max_size=400), st.integers(6, 50))
def test_text_is_bounded(value: str, length_max: int) -> None:
    """However many characters have to be escaped, no text makes a page long, and controls are shown, not obeyed."""
    for shown in (text(value, length_max), made("{{ value }}", value=value[: length_max + 20])):
        assert "<" not in shown
        assert len(shown) <= 6 * (length_max + 20)
        assert all(char.isprintable() for char in unescape(shown))
    assert len(text(value, length_max)) <= length_max + 101


@pytest.mark.parametrize("character", ["x", '"'])
def test_values_are_bounded(character: str) -> None:
    """A value that a template shows without a filter is bounded, too."""
    assert len(made("{{ value }}", value=character * 100_000)) < 500
    assert len(made("{{ value | text(1000) }}", value=character * 100_000)) < 1_200


def test_names_that_are_missing_or_empty() -> None:
    assert [ELEMENTS.name(value) for value in (None, "", "a")] == ["-", "<i>no name</i>", "<code>a</code>"]


def test_titles_say_how_columns_look() -> None:
    """Numbers stand right, what must not be broken stays on one line, cells are escaped like everything."""
    found = made(TABLE, rows=[("<a>", "1", "now")])
    assert "<caption>all</caption>" in found
    assert '<th scope="col">name</th><th scope="col" class="n">count</th><th scope="col" class="t">when</th>' in found
    assert '<td>&lt;a&gt;</td><td class="n">1</td><td class="t">now</td>' in found
    assert made(TABLE, rows=[]).strip() == ""
