"""A program that is wrong in one way is caught by the law that is about that, and by no other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from groupcoord.testing.exams import Law, Plan, examine

from .wrong_workers import WAYS

PROGRAM = Path(__file__).with_name("wrong_workers.py")
ARGUMENTS = ("{bootstrap}", "{group}", "{topic}", "{output}", "{instance}", "{protocol}")

CAUGHT: dict[str, tuple[str, Law]] = {
    "commits-before-it-works": ("quiet", Law.AHEAD),
    "does-not-flush": ("quiet", Law.AHEAD),
    "starts-at-the-end": ("quiet", Law.AHEAD),
    "skips-the-batch": ("poison-record", Law.AHEAD),
    "dies-of-what-it-cannot-read": ("poison-record", Law.CAUGHT_UP),
    "leaves-without-a-word": ("scale-out-and-in", Law.LEAVING),
    "does-not-end": ("scale-out-and-in", Law.LEAVING),
    "works-on-what-it-lost": ("killed", Law.OWNED),
    "blocks-for-too-long": ("quiet", Law.OWNED),
    "commits-what-it-lost": ("scale-out-and-in", Law.BACKWARD),
    "starts-over": ("rolling-restart", Law.BACKWARD),
    "retries-for-ever": ("session-ends", Law.FENCED),
    "stands-still-after-an-error": ("errors-of-OffsetCommit", Law.CAUGHT_UP),
    "promises-too-much": ("killed", Law.ONCE),
}
"""By way of being wrong: in which scenario it shows, and the law that it breaks."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUGHT)
def test_each_is_caught_by_its_law(name: str) -> None:
    """The law that is broken is that which is about the program's fault."""
    scenario, law = CAUGHT[name]
    declared = "exactly-once" if law is Law.ONCE else "at-least-once"
    plan = Plan((sys.executable, str(PROGRAM), name, *ARGUMENTS), declared=declared, within_s=15.0)

    (result,) = examine(plan, [f"^{scenario}$"])

    assert not result.trouble, (result.trouble, result.last_words)
    assert [verdict.law for verdict in result.broken] == [law], (result.verdicts, result.events[-30:])


def test_every_way_is_tried() -> None:
    """No wrong program is forgotten."""
    assert set(CAUGHT) == set(WAYS)
