"""Random lives of one member: nothing is raised, its own rules hold, and it recovers."""

from __future__ import annotations

import pytest

from groupcoord.testing.museum.hunting import MemberLife
from tests.samples import seeds
from tests.tables import as_one_test

LIVES, STEPS = 150, 300


@as_one_test
@pytest.mark.parametrize("seed", seeds(LIVES))
def test_a_random_life(seed: int) -> None:
    """Through errors, nonsense, lost connections and pauses it keeps its rules; once all is well, it gets its share."""
    MemberLife(seed).live(STEPS)
