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

BOUND = {"$g": "run-1", "$topic:t4": "00000000-0000-0000-0000-000000000004"}


def matched(expected: Any, got: Any, **bindings: Any) -> Any:
    return match(expected, got, {**BOUND, **bindings})


def test_equal_bodies_match_and_bind_nothing() -> None:
    """A body without variables matches its equal and leaves the bindings alone."""
    assert matched({"a": 1, "b": [None, "x"]}, {"a": 1, "b": [None, "x"]}) == BOUND


@as_one_test
@pytest.mark.parametrize(
    ("expected", "got"),
    [(1, 2), (1, True), (True, 1), (None, 0), ("", None), ("1", 1), ({}, []), ([], {}), ({"hex": "61"}, {"hex": "62"})],
)
def test_different_values_do_not_match(expected: Any, got: Any) -> None:
    assert matched(expected, got) is None


def test_fields_that_are_not_named_are_not_compared() -> None:
    assert matched({"a": 1}, {"a": 1, "b": 2}) is not None
    assert matched({"a": 1, "b": 2}, {"a": 1}) is None


@pytest.mark.parametrize("name", ["throttle_time", "error_message", "host", "port", "node_id"])
def test_ignored_fields_are_not_compared(name: str) -> None:
    """Fields that depend on the server's place or wording may differ or be absent."""
    assert matched({"a": 1, name: 5}, {"a": 1, name: 6}) is not None
    assert matched({"a": 1, name: 5}, {"a": 1}) is not None


def test_the_group_variable_and_ids_that_start_with_it() -> None:
    """$g and $g with a suffix stand for exactly the run's group ids."""
    assert matched(["$g", "$g-2"], ["run-1-2", "run-1"]) == BOUND
    assert matched("$g-2", "run-1-3") is None
    assert matched("$g", "run-1-2") is None


def test_a_member_variable_keeps_its_first_value() -> None:
    """$mN binds to the first value it meets and must stay equal."""
    assert matched({"leader": "$m1", "member_id": "$m1"}, {"leader": "x", "member_id": "x"})["$m1"] == "x"
    assert matched({"leader": "$m1", "member_id": "$m1"}, {"leader": "x", "member_id": "y"}) is None
    assert matched("$m1", "y", **{"$m1": "x"}) is None


def test_a_member_variable_takes_no_empty_or_foreign_value() -> None:
    """$mN never stands for an empty text, null, a number, or the value of another variable."""
    for got in ("", None, 5, ["x"]):
        assert matched("$m1", got) is None
    assert matched("$m2", "x", **{"$m1": "x"}) is None
    assert matched("$m1", "run-1") is None


def test_a_producer_variable_takes_a_number_from_zero() -> None:
    """$pN stands for a producer id: a number that is not negative."""
    assert matched("$p1", 0)["$p1"] == 0
    for got in (-1, "7", True, None):
        assert matched("$p1", got) is None


def test_a_topic_variable_has_the_id_of_the_topic() -> None:
    """$topic:NAME matches that topic's id only; of a topic that is made on the way, it takes the first."""
    assert matched("$topic:t4", BOUND["$topic:t4"]) == BOUND
    assert matched("$topic:t4", "00000000-0000-0000-0000-000000000005") is None
    made = "00000000-0000-0000-0000-000000000009"
    assert matched(["$topic:new", "$topic:new"], [made, made]) == {**BOUND, "$topic:new": made}
    assert matched("$topic:new", BOUND["$topic:t4"]) is None


def test_any_matches_everything() -> None:
    values: tuple[Any, ...] = (None, 0, "", [], {"a": 1})
    for got in values:
        assert matched("$any", got) == BOUND


def test_lists_match_in_any_order() -> None:
    assert matched([1, 2, 2], [2, 1, 2]) is not None
    assert matched([1, 2, 2], [1, 1, 2]) is None
    assert matched([1], [1, 1]) is None


def test_lists_are_searched_for_consistent_variables() -> None:
    expected = {"pairs": [{"id": "$m1", "x": "$any"}, {"id": "$m2", "x": 1}], "more": ["$m1"]}
    got = {"pairs": [{"id": "one", "x": 1}, {"id": "two", "x": 2}], "more": ["two"]}
    bindings = matched(expected, got)
    assert (bindings["$m1"], bindings["$m2"]) == ("two", "one")


def test_a_choice_in_one_list_is_taken_back_for_another_list() -> None:
    """Bindings chosen in one list must hold in the next; the search goes back for them."""
    expected = {"a": ["$m1", "$m2"], "b": [{"id": "$m1", "v": 1}, {"id": "$m2", "v": 2}]}
    got = {"a": ["x", "y"], "b": [{"id": "y", "v": 1}, {"id": "x", "v": 2}]}
    bindings = matched(expected, got)
    assert (bindings["$m1"], bindings["$m2"]) == ("y", "x")


def test_long_lists_match_in_any_order() -> None:
    """A list of a thousand elements is matched without running out of stack or patience."""
    expected = [{"partition": n, "member": f"$m{n % 7}"} for n in range(1000)]
    got = [{"partition": n, "member": f"id{n % 7}"} for n in reversed(range(1000))]
    assert matched(expected, got)["$m3"] == "id3"
    assert matched(expected, [*got[1:], {"partition": -1, "member": "id0"}]) is None


def test_a_hopeless_search_is_given_up() -> None:
    """A list that matches in millions of ways but fails in the end stops the search."""
    expected = {"a": [f"$m{n}" for n in range(12)], "b": [{"z": {"never": 1}}]}
    with pytest.raises(TooAmbiguousError):
        matched(expected, {"a": [f"id{n}" for n in range(12)], "b": [{"z": {"never": 2}}]})


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
