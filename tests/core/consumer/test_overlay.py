"""A mapping with changes kept apart is the dict that was changed."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from groupcoord.core.groups.base.state import Overlay

keys = st.integers(0, 5)
contents = st.dictionaries(keys, st.integers())
changes = st.lists(st.tuples(keys, st.one_of(st.none(), st.integers())))


def change(mapping: Overlay[int, int] | dict[int, int], key: int, value: int | None) -> None:
    """Set a key, or remove it."""
    if value is not None:
        mapping[key] = value
    elif key in mapping:
        del mapping[key]
    else:
        with pytest.raises(KeyError):
            del mapping[key]


def assert_equal(mapping: Overlay[int, int], expected: dict[int, int]) -> None:
    """Compare a mapping with another one by all its methods, order included."""
    assert list(mapping) == list(mapping.keys()) == list(expected)
    assert list(mapping.items()) == list(expected.items())
    assert list(mapping.values()) == list(expected.values())
    assert mapping == expected
    assert len(mapping) == len(expected)
    for key in range(6):
        assert (key in mapping) == (key in expected)
        assert mapping.get(key) == expected.get(key)
        assert mapping.get(key, -1) == expected.get(key, -1)
        if key in expected:
            assert mapping[key] == expected[key]
        else:
            with pytest.raises(KeyError):
                mapping[key]


@given(contents, changes, changes)
def test_it_is_the_dict_that_was_changed(
    below: dict[int, int], first: list[tuple[int, int | None]], second: list[tuple[int, int | None]]
) -> None:
    """Two layers look like dicts with the same changes, and leave what is below alone until they are merged into it."""
    lower_expected, before = dict(below), dict(below)
    lower = Overlay(below)
    for key, value in first:
        change(lower, key, value)
        change(lower_expected, key, value)
    upper, upper_expected = Overlay(lower), dict(lower_expected)
    for key, value in second:
        change(upper, key, value)
        change(upper_expected, key, value)
    assert_equal(upper, upper_expected)
    assert_equal(lower, lower_expected)
    assert list(below.items()) == list(before.items())
    assert upper.merge() is lower
    assert_equal(lower, upper_expected)
    assert lower.merge() is below
    assert list(below.items()) == list(upper_expected.items())


def test_it_shows_what_is_in_it() -> None:
    """A failing test can print one."""
    overlay = Overlay({1: 2})
    overlay[3] = 4
    assert repr(overlay) == "Overlay({1: 2, 3: 4})"
