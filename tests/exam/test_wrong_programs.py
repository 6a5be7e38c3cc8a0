"""A program that is wrong in one way is caught by the law that is about that, and by no other."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord.testing.exams import Law, Plan, examine

from . import wrong_queue_workers, wrong_workers
from .rounds import of_worker

CAUGHT: dict[str, tuple[str, Law]] = {
    "commits-before-it-works": ("quiet", Law.AHEAD),
    "never-commits": ("quiet", Law.COMMITTED),
    "does-not-flush": ("quiet", Law.AHEAD),
    "does-not-flush-on-revoke": ("scale-out-and-in", Law.AHEAD),
    "swallows-errors": ("all-brokers-die", Law.AHEAD),
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

CAUGHT_IN_SHARE_GROUPS: dict[str, tuple[str, Law]] = {
    "accepts-before-it-works": ("quiet", Law.ACCEPTED),
    "leaves-out-what-it-does-not-know": ("quiet", Law.ACCEPTED),
    "never-accepts": ("quiet", Law.GIVEN_UP),
    "rejects-what-fails": ("quiet", Law.GIVEN_UP),
    "books-again-what-it-could-not-accept": ("locks-run-out", Law.AFTERWARDS),
    "does-not-say-that-it-leaves": ("scale-out-and-in", Law.LEAVING),
}
"""The same of programs whose groups are share groups."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CAUGHT, *CAUGHT_IN_SHARE_GROUPS])
def test_each_is_caught_by_its_law(name: str) -> None:
    """The law that is broken is that which is about the program's fault."""
    if name in CAUGHT:
        declared = "exactly-once" if CAUGHT[name][1] is Law.ONCE else "at-least-once"
        _assert_caught("wrong_workers.py", name, *CAUGHT[name], declared=declared)
    else:
        _assert_caught("wrong_queue_workers.py", name, *CAUGHT_IN_SHARE_GROUPS[name], protocol="share")


def _assert_caught(program: str, name: str, scenario: str, law: Law, **options: Any) -> None:
    plan = Plan(of_worker(program, name), within_s=15.0, **options)

    (result,) = examine(plan, [f"^{scenario}$"])

    assert not result.trouble, (result.trouble, result.last_words)
    assert [verdict.law for verdict in result.broken] == [law], (result.verdicts, result.events[-30:])


@pytest.mark.slow
def test_what_nobody_was_sent_is_noticed_without_an_output() -> None:
    """A program that begins at the end commits what it can't have read, wherever it keeps what it does."""
    _assert_caught("wrong_workers.py", "starts-at-the-end", "quiet", Law.AHEAD, declared="nothing")


def test_every_way_is_tried() -> None:
    assert set(CAUGHT) == set(wrong_workers.WAYS)
    assert set(CAUGHT_IN_SHARE_GROUPS) == set(wrong_queue_workers.WAYS)
