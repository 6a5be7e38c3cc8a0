"""Text never becomes markup, wherever it goes into an element, and tables have the shape of their titles."""

from __future__ import annotations

from html import unescape

import pytest
from hypothesis import given, strategies as st

from groupcoord.analysis.report.html.layout import (
    EMPTY,
    PROSE_LENGTH_MAX,
    Html,
    Section,
    element,
    enumeration,
    joined,
    listing,
    name,
    page,
    paragraph,
    table,
    text,
)

from .reports import Page

printable = st.text(st.characters(exclude_categories=("C", "Z")), max_size=100)


@given(printable, printable, printable)
def test_text_is_text_wherever_it_goes(first: str, second: str, value: str) -> None:
    """Any text in elements and attributes is shown as it is, and never as a tag."""
    found = Page(element("p", first, element("b", second), title=value))
    assert found.elements == [("p", {"title": value} if value else {}), ("b", {})]
    assert "".join(found.words) == first + second


def test_markup_goes_in_as_it_is() -> None:
    """Generated markup is not escaped again, and text that looks like it is escaped."""
    made = element("b", "1 < 2")
    assert element("p", made, "<b>") == "<p><b>1 &lt; 2</b>&lt;b&gt;</p>"
    assert joined([made, "&", made], ", ") == "<b>1 &lt; 2</b>, &amp;, <b>1 &lt; 2</b>"
    assert enumeration([made, made, made]) == f"{made}, {made} and {made}"
    assert isinstance(element("p", made) and joined(()), Html)


def test_attributes_have_names_that_python_does_not_allow() -> None:
    """``class_`` and ``text_anchor`` are what they should be; what is not given is left out."""
    assert element("a", class_="x", text_anchor="end", href=None, id="", tabindex=0) == (
        '<a class="x" text-anchor="end" tabindex="0"></a>'
    )
    assert element("br") + element("rect", x="1") == '<br><rect x="1"/>'


@given(st.text(max_size=400), st.integers(6, 50))
def test_text_is_bounded(value: str, length_max: int) -> None:
    """However many characters have to be escaped, no text makes a page long, and controls are shown, not obeyed."""
    made = text(value, length_max)
    assert "<" not in made
    assert len(made) <= length_max + 101
    assert all(char.isprintable() for char in unescape(made))


@pytest.mark.parametrize("character", ["x", '"'])
def test_prose_is_bounded(character: str) -> None:
    """Text that goes straight into an element is bounded too; what is between two elements is not."""
    long = element("p", character * 100_000)
    assert len(long) < PROSE_LENGTH_MAX + 200
    assert len(element("p", element("i", "x" * 900), element("i", "x" * 900))) > 1_800


def test_names_that_are_missing_or_empty() -> None:
    assert name(None) == "-"
    assert name("") == "<i>no name</i>"
    assert name("a") == "<code>a</code>"


def test_nothing_leaves_nothing() -> None:
    """Paragraphs and lists without content, and sections without a body, are left out."""
    assert paragraph("", EMPTY) == listing([]) == EMPTY
    whole = page("t", [], [Section("a", "A", EMPTY), Section("b", "B", paragraph("here"))])
    assert 'href="#b"' in whole
    assert 'id="a"' not in whole


def test_titles_say_how_columns_look() -> None:
    """Numbers stand right, what must not be broken stays on one line, cells are escaped like everything."""
    made = table(("name", "#count", "@when"), [("<a>", "1", "now")], "all")
    assert "<caption>all</caption>" in made
    assert '<th scope="col">name</th><th scope="col" class="n">count</th><th scope="col" class="t">when</th>' in made
    assert '<td>&lt;a&gt;</td><td class="n">1</td><td class="t">now</td>' in made
    with pytest.raises(ValueError, match="shorter"):
        table(("a",), [("1", "2")])
