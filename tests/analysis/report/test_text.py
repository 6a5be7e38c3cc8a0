"""Summaries, times, durations and sizes as text, for any log."""

from __future__ import annotations

import re

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from groupcoord.analysis.fold.history.causes import CAUSES, JOIN
from groupcoord.analysis.report.data import model
from groupcoord.analysis.report.html.rendering import environment
from groupcoord.analysis.report.text import (
    TEXT_LENGTH_MAX,
    clipped,
    counted,
    format_clock,
    format_limit,
    format_share,
    format_size,
    format_span,
    format_time,
    listed,
)

from ..report import reports

DAY_MS = 86_400_000
TROUBLED = environment().get_template("analysis/report/html/troubled.html.jinja").module


def story_of(story: model.GroupStory, end_ms: int | None) -> list[str]:
    """Return the sentences of a group's story."""
    return re.sub(r"<.*?>", "", " ".join(TROUBLED.story_of(story, end_ms).split())).replace(". ", ".\n").split("\n")


def test_story_tells_what_happened() -> None:
    """State, pace, causes, time taken, churn, commits and findings, in sentences."""
    told = story_of(reports.story("a"), reports.START_MS + 30 * reports.MINUTE_MS)

    assert told == [
        "A classic group, Stable in generation 9, with 3 members at the end of the log.",
        "It rebalanced 9 times from 2026-11-21T07:23:37Z to 2026-11-21T07:31:37Z, every 1.0 min on average.",
        "That was 3 times because a member expired or left, 3 times because a member joined and 3 times because a "
        "member left.",
        "From the last join to the assignments, each took 3.0 s.",
        "In all, 6 members joined, 3 members left and 21 partitions changed their owner.",
        "5 of the rebalances (56%) fell into the five minutes after 2026-11-21T07:23:37Z.",
        "The log holds 1,234 commits of it; the last was at 2026-11-21T07:48:37Z, 5.0 min before the log ends.",
        "Anomalies: offset rewind (2).",
    ]


def test_story_of_a_group_that_is_gone() -> None:
    """A group with few traces is described as gone, without its unknown values."""
    row = model.GroupRow("a", 1, rebalances=1)
    one = evolve(reports.rebalance("a", 1), started_ms=None)

    assert story_of(model.GroupStory(row, {JOIN: 1}, (one,), (), (), None), None) == [
        "The group no longer exists at the end of the log.",
        "It rebalanced once.",
        "That was because a member joined.",
        "The log has no commit of it.",
    ]


def test_story_of_a_quiet_group() -> None:
    row = model.GroupRow("a", 0, type="Consumer", state="Empty", generation=4, members=0, commits=1)
    assert story_of(model.GroupStory(row, {}, (), (), (), None), None) == [
        "A consumer group, Empty in epoch 4, without members at the end of the log.",
        "The log shows no rebalance of it.",
        "The log holds 1 commit of it.",
    ]


def test_story_of_a_group_with_many_causes() -> None:
    """The most frequent are listed, without a cut sentence; the others are counted."""
    causes = {cause: number for number, cause in enumerate(reversed(CAUSES), 1)}
    (why,) = [
        sentence
        for sentence in story_of(model.GroupStory(reports.row("a", 1), causes, (), (), (), None), None)
        if sentence.startswith("That was ")
    ]

    assert why.startswith("That was 13 times because a member joined, 12 times because a member left, ")
    assert why.endswith(" and 45 times for other reasons.")
    assert len(why) < TEXT_LENGTH_MAX


@pytest.mark.parametrize(
    ("at_ms", "told"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_795_245_817_999, "2026-11-21T07:23:37Z"),
        (None, "-"),
        (-1, "-"),
        (2**62, f"{2**62} ms"),
    ],
)
def test_times_are_iso_in_utc(at_ms: int | None, told: str) -> None:
    assert format_time(at_ms) == told


def test_numbers_are_told_with_their_units() -> None:
    """Sizes, spans, shares and counts as people read them."""
    assert [format_size(size) for size in (None, 0, 1_023, 1_536, 5 * 2**40)] == [
        *("-", "0 bytes", "1,023 bytes", "1.5 KiB", "5.0 TiB")
    ]
    assert [format_span(span) for span in (None, 999, 90_000, 3 * DAY_MS)] == ["-", "999 ms", "1.5 min", "3.0 days"]
    assert [format_share(share) for share in (None, 0.456)] == ["-", "46%"]
    assert [counted(number, "group") for number in (1, 2_000)] == ["1 group", "2,000 groups"]
    assert [listed(list(words)) for words in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]
    assert [format_clock(DAY_MS, span) for span in (1_000, 600_000, 2 * DAY_MS, 4 * DAY_MS)] == [
        *("00:00:00", "00:00", "01-02 00:00", "1970-01-02")
    ]
    assert [format_limit(limit) for limit in (250, 2_000, 600_000, 5_400_000, DAY_MS, 7 * DAY_MS)] == [
        *("250 ms", "2 s", "10 min", "90 min", "1 day", "7 days")
    ]


@given(st.text(), st.integers(6, 50))
def test_text_is_bounded_and_printable(text: str, length_max: int) -> None:
    shown = clipped(text, length_max)
    assert len(shown) <= length_max + 1
    assert all(char.isprintable() for char in shown)
    assert shown == text or not text.isprintable() or shown == text[:length_max] + "…"
