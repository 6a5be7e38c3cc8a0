"""Sample sizes and seeds of the suite's random tests.

A long test tries a fifth of its cases by default. A table of cases has the mark ``sampled``, takes its cases from
:func:`portion`, and tries all of them in ``.ci/run``, which selects it by the mark ``ci``. Hypothesis tests are sampled
without a mark, and try all examples with ``-m slow``, as each night. ``pytest --whole`` tries everything.

All random tests draw from ``SEED``: the environment variable ``GROUPCOORD_SEED``, a number or ``random``; 0 if unset.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar
from unittest import TestCase

import pytest
from hypothesis import is_hypothesis_test, settings

T = TypeVar("T")

VARIABLE = "GROUPCOORD_SEED"
if os.environ.get(VARIABLE) == "random":
    os.environ[VARIABLE] = str(random.SystemRandom().randrange(1, 10**9))  # pytest's workers inherit it
IS_SEEDED = VARIABLE in os.environ
SEED = int(os.environ.get(VARIABLE, 0))
"""First seed of every random test; Hypothesis is derandomized unless the variable is set."""

PARTS = 5
"""A sample is one of so many parts."""

EXAMPLES_MIN = 5
"""A random test tries so many examples at least, if its whole has them."""

sampled = pytest.mark.sampled


class Sample:
    """Size of this run: ``is_whole`` if it tries all cases of tables, ``is_long`` if all examples of random tests."""

    is_whole = False
    is_long = False


def seeds(count: int) -> range:
    """Return the seeds of a test that tries ``count`` random cases: ``SEED`` and those after it."""
    return range(SEED, SEED + count)


def portion(whole: Sequence[T]) -> Sequence[T]:
    """Return which cases this run tries: all, or one of each few, the first among them."""
    return whole if Sample.is_whole else whole[::PARTS]


def examples(whole: int) -> int:
    """Return the number of random examples in this run, of ``whole`` in a long one."""
    return whole if Sample.is_long else max(min(whole, EXAMPLES_MIN), whole // PARTS)


def sample_random_tests(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Limit random tests, functions and machines with rules, to the examples of this run, and return them.

    Tests with the mark ``ci`` or ``slow`` keep their examples.
    """
    found: list[pytest.Item] = []
    seen: set[object] = set()
    for item in items:
        if not isinstance(item, pytest.Function) or item.get_closest_marker("slow") or item.get_closest_marker("ci"):
            continue
        if item.cls is not None and issubclass(item.cls, TestCase) and hasattr(item.cls, "settings"):
            owner, name = item.cls, "settings"
        elif is_hypothesis_test(item.function):
            owner, name = item.function, "_hypothesis_internal_use_settings"
        else:
            continue
        found.append(item)
        if owner not in seen:
            whole = getattr(owner, name)
            setattr(owner, name, settings(whole, max_examples=examples(whole.max_examples)))
            seen.add(owner)
    return found
