"""Random lives of one member: whatever comes, nothing is raised, its own rules hold, and it recovers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from groupcoord.testing.member_life import MemberLife
from tests.samples import seeds
from tests.tables import as_one_test

ROOT = Path(__file__).parents[2]
LIVES, STEPS = 150, 300


@as_one_test
@pytest.mark.parametrize("seed", seeds(LIVES))
def test_a_random_life(seed: int) -> None:
    """Through errors, nonsense, lost connections and pauses it keeps its rules; once all is well, it gets its share."""
    MemberLife(seed).live(STEPS)


STORIES = f"""
import hashlib
from groupcoord.testing.member_life import MemberLife
from tests.samples import seeds

digest = hashlib.sha256()
for seed in range(10):
    life = MemberLife(seed)
    for _ in range({STEPS}):
        life.step(is_kind=False)
    digest.update(repr([life.events, [send.request for send in life.sent]]).encode())
print(digest.hexdigest())
"""


def test_the_same_lives_twice() -> None:
    """The same inputs lead to the same outputs, whatever Python's hashes are."""
    told = {
        subprocess.run(
            [sys.executable, "-c", STORIES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
