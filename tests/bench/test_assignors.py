"""The measurement of the assignors works, and a group of some size takes no time to speak of."""

from __future__ import annotations

from groupcoord.member.assignors import ASSIGNORS

from .assignors import measure


def test_every_assignor_is_measured() -> None:
    """There are figures for each assignor and kind of group; 200 members and 2,000 partitions stay far below 2 s."""
    found = measure(member_count=200, partition_count=2_000, topic_count=20)

    assert {name.partition(",")[0] for name in found} == set(ASSIGNORS)
    assert len(found) == 3 * len(ASSIGNORS)
    assert all(0 < seconds < 2 for both in found.values() for seconds in both.values())
