"""The list of seeded bugs stays in step with the code, and the suite still bites."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.catalogue import Mutant
from tests.mutants.consumer_groups import CONSUMER_GROUP_MUTANTS
from tests.mutants.run import ALL_MUTANTS, ROOT, try_mutant
from tests.tables import as_one_test

CONSUMER_GROUP_MUTANTS_MIN = 80
SAMPLE = {
    "KAFKA-2017: Members are answered before the generation is durable": "tests/core/test_h_sync.py",
    "an abort commits": "tests/core/test_transactions.py",
    "a lost answer fences its member": "tests/scripts",
    "who takes over does not read up to its fence": "tests/sim/test_replicas.py",
}
"""A few bugs, and for each the part of the suite that notices it first: all that comes before would be run in vain."""


@as_one_test
@pytest.mark.parametrize("mutant", ALL_MUTANTS, ids=lambda mutant: mutant.name)
def test_the_bug_can_be_made(mutant: Mutant) -> None:
    """A mutant's text stands exactly once in its file, and replacing it gives valid Python."""
    source = Path(ROOT, "groupcoord", "core", mutant.file).read_text()
    assert source.count(mutant.old) == 1
    compile(source.replace(mutant.old, mutant.new), mutant.file, "exec")


def test_names_are_distinct() -> None:
    """Every mutant can be asked for by its name."""
    assert len({mutant.name for mutant in ALL_MUTANTS}) == len(ALL_MUTANTS)


def test_the_rules_of_consumer_groups_have_their_mutants() -> None:
    """There are enough of them."""
    assert len(CONSUMER_GROUP_MUTANTS) >= CONSUMER_GROUP_MUTANTS_MIN


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ALL_MUTANTS, ids=lambda mutant: mutant.name)
def test_the_bug_is_noticed(mutant: Mutant) -> None:
    """The suite fails on a copy of the project that has the bug."""
    assert try_mutant(mutant).noticed_by is not None


@pytest.mark.ci
@pytest.mark.parametrize(("name", "suite"), SAMPLE.items())
def test_a_sample_of_the_bugs_is_noticed(name: str, suite: str) -> None:
    """As above, for a few of them, so that a suite that bites no longer is noticed every time."""
    (mutant,) = (mutant for mutant in ALL_MUTANTS if mutant.name == name)
    assert try_mutant(mutant, suite).noticed_by is not None
