"""Regular expressions of subscriptions: what they match, and what they may cost."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import re2

from groupcoord.broker import regexes
from groupcoord.broker.regexes import ExpressionError, TopicMatcher, compile_expression
from groupcoord.broker.topics.registry import TopicRegistry

LARGE = [
    *(r"(\pL|\pN|ä|\x{2603}){300}", r"(\pL|\pN|7){300}", r"(\pL|\pN|7){1000}", r"((\pL|\pN){100}){10}"),
    *(r"\pL{1000}\pL{1000}", "a" * 10_000),
]
"""All of them are taken by Kafka 4.4."""


@pytest.mark.parametrize("regex", LARGE)
def test_large_expressions_for_names_of_topics_are_small(regex: str) -> None:
    """Names are ASCII, so classes of characters need not know all that is written in the world."""
    assert compile_expression(regex, ascii_only=True).programsize < 30_000


@pytest.mark.parametrize(
    "regex", ["orders-.*", r"[\pL\pN.-]+", r"[^ä]+", r"ä*orders-\d+", r"(?i)ORDERS-7", r"\x{2603}?orders-7"]
)
def test_names_are_matched_as_ever(regex: str) -> None:
    """Also by expressions that name characters which no topic has."""
    topics = TopicRegistry()
    with topics.edit() as edit:
        edit.create("orders-7", 1)
    matcher = TopicMatcher(topics, None)
    assert matcher.problem(regex) is None
    assert list(matcher.matching_topics(regex, None)) == ["orders-7"]


PIECES = (
    *("a", "s", "k", "x", "\u2603", "\u017f", "\u212a", "ä", "ÿ", r"\x{2603}", r"\x{17f}", r"\x61", r"\\x{2}"),
    *(r"\pL", r"\d", r"\W", ".", "[^\u2603]", "[a-\u2603]", "[\u2603-\u2604s]", "[^a-\u212a]", "[[:alpha:]ä]"),
    *("*", "+", "?", "|", "(?i)", "(?i:", "(", ")", "{2}", "\\Q\u2603\\E", r"\Q\x{2603}\E"),
)
NAMES = ("a", "s", "k", "as", "sa", "K", "S", "aa", "x", "1", "ks1", "s.s", "-", "_", "x2", "xx")


@pytest.mark.parametrize("usual_memory", [1_000, regexes.USUAL_MEMORY_MAX])
def test_names_are_matched_as_any_text(usual_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expression for ASCII finds there what the same for any text finds, however large expressions are."""
    monkeypatch.setattr(regexes, "USUAL_MEMORY_MAX", usual_memory)
    chance = random.Random(1)
    found: Counter[str] = Counter()
    for _ in range(3_000):
        regex = "".join(chance.choices(PIECES, k=chance.randint(1, 6)))
        expected, expression = (matches_of(regex, ascii_only=ascii_only) for ascii_only in (False, True))
        if expression != "too large":
            assert expression == expected, regex
        found["none" if isinstance(expression, str) else "some"] += 1
    assert min(found.values()) > 500


def matches_of(regex: str, *, ascii_only: bool) -> list[str] | str:
    try:
        expression = compile_expression(regex, ascii_only=ascii_only)
    except ExpressionError as error:
        return "too large" if b"too large" in error.args[0] else "none"
    return [name for name in NAMES if expression.fullmatch(name)]


def test_other_names_may_have_any_characters() -> None:
    """Transactional ids are text."""
    assert compile_expression(r"\pL+").fullmatch("größe☃"[:5])
    assert not compile_expression(r"\pL+", ascii_only=True).fullmatch("größe")


def test_what_takes_too_much_is_none() -> None:
    """Expressions that need more than two mebibytes are refused; other errors keep their message."""
    with pytest.raises(ExpressionError, match="too large"):
        compile_expression(r"(\pL|\pN|7){300}")
    with pytest.raises(ExpressionError, match="missing"):
        compile_expression("(a", ascii_only=True)


def test_memory_for_compiled_expressions_is_bounded() -> None:
    """The most recently used are kept, few large and many small ones, and the binding's cache is empty."""
    kept = compile_expression("kept")
    large = compile_expression(r"\pL{20}")
    for number in range(200):
        compile_expression(f"usual-{number}.*")
        assert compile_expression("kept") is kept
    assert compile_expression(r"\pL{20}") is large
    assert re2._Regexp._make.cache_info().currsize == 0
    bounds = (
        (regexes._usual_expression, regexes.USUAL_MEMORY_MAX),
        (regexes._large_expression, regexes.MEMORY_MAX),
    )
    assert sum(cached.cache_info().maxsize * most_bytes for cached, most_bytes in bounds) <= 2**25
