"""Of what takes long a fifth is tried by default, and everything where somebody asks for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import chooses_ci
from tests.samples import Sample, examples, portion

EXAMPLES = 50


@given(st.booleans())
@settings(max_examples=EXAMPLES)
def test_random_ones_are_sampled_by_themselves(value: bool) -> None:
    """A random test tries as many examples as this run does of so many, though it doesn't say so."""
    wrapped: Any = test_random_ones_are_sampled_by_themselves
    assert wrapped._hypothesis_internal_use_settings.max_examples == examples(EXAMPLES)


@pytest.mark.parametrize(
    ("is_whole", "cases", "tried"), [(False, [0, 5, 10], [3, 5, 10]), (True, [*range(11)], [3, 9, 50])]
)
def test_a_part_or_all(monkeypatch: pytest.MonkeyPatch, is_whole: bool, cases: list[int], tried: list[int]) -> None:
    """Of tables one of each five, the first among them; of random tests a fifth, but five at least."""
    monkeypatch.setattr(Sample, "is_whole", is_whole)
    assert list(portion(range(11))) == cases
    assert [examples(whole) for whole in (3, 9, 50)] == tried


@pytest.mark.parametrize(
    ("chosen", "is_whole"),
    [("not (slow or ci)", False), ("slow", False), ("ci and not slow", True), ("ci or slow", True), ("", True)],
)
def test_what_ci_chooses_is_whole(
    monkeypatch: pytest.MonkeyPatch, pytestconfig: Any, chosen: str, is_whole: bool
) -> None:
    """Whoever chooses what is marked ``ci``, or everything, tries all of it."""
    monkeypatch.setattr(pytestconfig.option, "markexpr", chosen)
    assert chooses_ci(pytestconfig) == is_whole
