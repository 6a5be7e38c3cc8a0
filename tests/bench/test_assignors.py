"""The measurement of the assignors works."""

from __future__ import annotations

from groupcoord.member.assignors import ASSIGNORS

from .assignors import measure


def test_every_assignor_is_measured() -> None:
    """There are figures for each assignor and kind of group."""
    found = measure(member_count=20, partition_count=60, topic_count=3)

    assert {name.partition(",")[0] for name in found} == set(ASSIGNORS)
    assert len(found) == 3 * len(ASSIGNORS)
    assert all(both.keys() == {"first", "one left"} and min(both.values()) > 0 for both in found.values())
