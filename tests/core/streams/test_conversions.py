"""Conversion of an empty classic group by a join of a streams group that is refused."""

from __future__ import annotations

from typing import Any

from groupcoord import ErrorCode
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.messages import (
    ListGroups,
    OffsetCommit,
    OffsetToCommit,
    TopicToCommit,
)
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.core.streams.members import SETTINGS, Threads, active, answered

COMMIT = OffsetCommit("group", (TopicToCommit("lines", (OffsetToCommit(0, 5),)),))


def started(*, late: bool = False, **settings: Any) -> Threads:
    return Threads(Driver(late=late, topics=Topics(lines=4), **{**SETTINGS, **settings}))


def kinds(threads: Threads) -> list[tuple[str, str]]:
    """Return type and state of the group, as it is listed."""
    return [(group.group_type, group.group_state) for group in threads.driver.coordinator.call(ListGroups()).groups]


def test_a_classic_group_stays_if_the_join_is_refused() -> None:
    """Refused by the group or by the log; then no request waits."""
    threads = started(late=True, group_streams_initial_rebalance_delay_ms=3_000)
    threads.driver.submit(COMMIT)
    threads.driver.write_all()
    twice = threads.join("a", topology=threads.topology._replace(epoch=-1))
    assert answered(twice).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    refused = threads.join("a")
    threads.driver.refuse(NotEnoughReplicasError("refused"))
    assert answered(refused).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert kinds(threads) == [("classic", "Empty")]
    threads.driver.advance(2_000)
    threads.join("a")
    threads.driver.write_all()
    threads.beat("a", 1)
    threads.driver.advance(2_999)
    assert active(threads.beat("a", 1)) is None
