"""Matching of responses: variables, unordered lists, ignored fields, and the explanation of a difference."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord.conformance.matching import (
    MISSING,
    Difference,
    TooAmbiguousError,
    first_difference,
    match,
    substitute,
    variable_kind,
)
from tests.tables import as_one_test

BOUND = {"$g": "run-1", "$topic:t4": "00000000-0000-0000-0000-000000000004", "$m9": "taken"}


@as_one_test
@pytest.mark.parametrize(
    ("expected", "got", "found"),
    [
        ({"a": 1, "b": [None, "x"]}, {"a": 1, "b": [None, "x"]}, {}),
        ({"a": 1}, {"a": 1, "b": 2}, {}),
        *(
            ({"a": 1, name: 5}, {"a": 1, **other}, {})
            for name in ("throttle_time", "error_message", "host", "port", "node_id")
            for other in ({name: 6}, {})
        ),
        (["$g", "$g-2"], ["run-1-2", "run-1"], {}),
        ({"leader": "$m1", "member_id": "$m1"}, {"leader": "x", "member_id": "x"}, {"$m1": "x"}),
        ("$p1", 0, {"$p1": 0}),
        ("$topic:t4", BOUND["$topic:t4"], {}),
        (["$topic:new", "$topic:new"], ["made", "made"], {"$topic:new": "made"}),
        *(("$any", got, {}) for got in (None, 0, "", [], {"a": 1})),
        ([1, 2, 2], [2, 1, 2], {}),
        # Members of a list are chosen so that fields behind it match as well, and so that another list does.
        (
            {"pairs": [{"id": "$m1", "x": "$any"}, {"id": "$m2", "x": 1}], "more": ["$m1"]},
            {"pairs": [{"id": "one", "x": 1}, {"id": "two", "x": 2}], "more": ["two"]},
            {"$m1": "two", "$m2": "one"},
        ),
        (
            {"a": ["$m1", "$m2"], "b": [{"id": "$m1", "v": 1}, {"id": "$m2", "v": 2}]},
            {"a": ["x", "y"], "b": [{"id": "y", "v": 1}, {"id": "x", "v": 2}]},
            {"$m1": "y", "$m2": "x"},
        ),
    ],
)
def test_bodies_that_match(expected: Any, got: Any, found: dict[str, Any]) -> None:
    """Variables keep the first value they match; absent and ignored fields and the order of lists do not count."""
    assert match(expected, got, BOUND) == {**BOUND, **found}


@as_one_test
@pytest.mark.parametrize(
    ("expected", "got"),
    [
        *[(1, 2), (1, True), (True, 1), (None, 0), ("", None), ("1", 1), ({}, []), ([], {})],
        ({"hex": "61"}, {"hex": "62"}),
        ({"a": 1, "b": 2}, {"a": 1}),
        ("$g-2", "run-1-3"),
        ("$g", "run-1-2"),
        ({"leader": "$m1", "member_id": "$m1"}, {"leader": "x", "member_id": "y"}),
        ("$m9", "other"),
        *[("$m1", got) for got in ("", None, 5, ["x"], "taken", "run-1")],
        *[("$p1", got) for got in (-1, "7", True, None)],
        ("$topic:t4", "00000000-0000-0000-0000-000000000005"),
        ("$topic:new", BOUND["$topic:t4"]),
        ([1, 2, 2], [1, 1, 2]),
        ([1], [1, 1]),
    ],
)
def test_bodies_that_do_not_match(expected: Any, got: Any) -> None:
    """A variable has values of its kind only, never those of another variable."""
    assert match(expected, got, BOUND) is None


def test_long_lists_match_in_any_order() -> None:
    """A list of a thousand elements is matched without running out of stack or patience."""
    expected = [{"partition": n, "member": f"$m{n % 7}"} for n in range(1000)]
    got = [{"partition": n, "member": f"id{n % 7}"} for n in reversed(range(1000))]
    bindings = match(expected, got, BOUND)
    assert bindings is not None
    assert bindings["$m3"] == "id3"
    assert match(expected, [*got[1:], {"partition": -1, "member": "id0"}], BOUND) is None


def test_a_hopeless_search_is_given_up() -> None:
    """A list that matches in millions of ways but fails in the end stops the search."""
    expected = {"a": [f"$m{n}" for n in range(12)], "b": [{"z": {"never": 1}}]}
    with pytest.raises(TooAmbiguousError):
        match(expected, {"a": [f"id{n}" for n in range(12)], "b": [{"z": {"never": 2}}]}, BOUND)


def test_substitution_fills_in_values() -> None:
    body = {"group_id": "$g", "keys": ["$g-tx", "a$g"], "topics": [{"topic_id": "$topic:t4"}], "producer_id": "$p1"}
    assert substitute(body, {**BOUND, "$p1": 9}) == {
        "group_id": "run-1",
        "keys": ["run-1-tx", "a$g"],
        "topics": [{"topic_id": BOUND["$topic:t4"]}],
        "producer_id": 9,
    }


def test_substitution_of_an_unbound_variable_fails() -> None:
    with pytest.raises(KeyError):
        substitute({"member_id": "$m1"}, BOUND)


@as_one_test
@pytest.mark.parametrize("text", ["$", "$m", "$mx", "$x1", "$topic:", "$anything", "$p-1"])
def test_misspelt_variables_are_refused(text: str) -> None:
    """A text that starts with $ but is no variable is an error, not a literal."""
    with pytest.raises(ValueError, match="is no variable"):
        variable_kind(text)


@as_one_test
@pytest.mark.parametrize(
    ("expected", "got", "difference"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, Difference("b", 2, 3)),
        ({"a": {"b": [1]}}, {"a": {}}, Difference("a.b", [1], MISSING)),
        ({"a": [1, 2]}, {"a": [2]}, Difference("a[0]", 1, MISSING)),
        ({"a": [1]}, {"a": [1, 2]}, Difference("a[1]", MISSING, 2)),
        ({"a": [1, 2]}, {"a": None}, Difference("a", [1, 2], None)),
        ({"id": "$g-2"}, {"id": "x"}, Difference("id", "$g-2 = run-1-2", "x")),
        ({"id": "$m7"}, {"id": ""}, Difference("id", "$m7 (not met before)", "")),
        ({"a": [{"k": 1, "v": 2}, {"k": 3, "v": 4}]}, {"a": [{"k": 3, "v": 5}, {"k": 1, "v": 2}]},
         Difference("a[1].v", 4, 5)),
        ({"a": [{"k": 1, "v": 2, "w": 3}, {"k": 3, "v": 4, "w": 5}]},
         {"a": [{"k": 3, "v": 9, "w": 5}, {"k": 1, "v": 8, "w": 3}]}, Difference("a[0].v", 2, 8)),
    ],
)  # fmt: skip
def test_the_first_difference_is_shown(expected: Any, got: Any, difference: Difference) -> None:
    """The explanation names the path, the recorded value with variables resolved, and the server's value."""
    assert first_difference(expected, got, BOUND) == difference


def test_matching_bodies_have_no_difference() -> None:
    assert first_difference(["$m1", "$m2"], ["x", "y"], BOUND) is None


def test_a_conflict_of_bindings_is_explained() -> None:
    """When every field matches alone but not together, the field that contradicts an earlier one is named."""
    difference = first_difference({"leader": "$m1", "member_id": "$m1"}, {"leader": "x", "member_id": "y"}, BOUND)
    assert difference == Difference("member_id", "$m1 = x", "y")
