"""How a streams group comes of an empty classic group, and becomes one again; and what others do with it."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord import ErrorCode
from groupcoord.core.log.records import GroupTombstone
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    ShareGroupHeartbeat,
    StreamsStatusCode,
    SyncGroup,
    TopicToCommit,
)
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.core.streams.members import SETTINGS, Threads, active, answered, statuses

COMMIT = OffsetCommit("group", (TopicToCommit("lines", (OffsetToCommit(0, 5),)),))
JOIN = JoinGroup("group", protocols=(JoinProtocol("range", b""),), requires_known_member_id=False)
JOIN_CONSUMERS = ConsumerGroupHeartbeat(
    "group", "m", rebalance_timeout_ms=1_000, subscribed_topic_names=("lines",), topic_partitions=()
)


def started(*, late: bool = False, **settings: Any) -> Threads:
    """Return a group that is none yet."""
    return Threads(Driver(late=late, topics=Topics(lines=4), **{**SETTINGS, **settings}))


def kinds(threads: Threads) -> list[tuple[str, str]]:
    """Return type and state of the group, as it is listed."""
    return [(group.group_type, group.group_state) for group in threads.driver.coordinator.call(ListGroups()).groups]


def test_an_empty_classic_group_makes_room() -> None:
    """Its tombstone comes first, and its offsets stay."""
    threads = started()
    threads.driver.submit(COMMIT)
    written = len(threads.driver.written())
    assert active(threads.join("a")) == {"0": (0, 1, 2, 3)}
    first, *others = threads.driver.written()[written:]
    assert isinstance(first, GroupTombstone)
    assert [record.key[0] for record in others] == [19, 23, 17, 21, 20, 22]
    assert kinds(threads) == [("streams", "Stable")]
    (fetched,) = threads.driver.coordinator.call(OffsetFetch((GroupToFetch("group", None),))).groups
    assert [topic.name for topic in fetched.topics] == ["lines"]


def test_a_group_that_was_classic_waits_for_more_members() -> None:
    """As any new one does."""
    threads = started(group_streams_initial_rebalance_delay_ms=3_000)
    threads.driver.submit(COMMIT)
    assert statuses(threads.join("a")) == [StreamsStatusCode.ASSIGNMENT_DELAYED]
    threads.beat("a", 1)
    threads.driver.advance(3_000)
    assert active(threads.beat("a", 1)) == {"0": (0, 1, 2, 3)}


def test_a_classic_group_stays_if_the_join_is_refused() -> None:
    """By the group or by the log; and nothing waits for anybody then."""
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


@pytest.mark.parametrize("first", [JOIN, JOIN_CONSUMERS])
def test_a_group_with_members_stays(first: Any) -> None:
    """Nobody of another protocol comes in."""
    threads = started(group_initial_rebalance_delay_ms=0)
    threads.driver.submit(first)
    threads.driver.advance(1)
    before = kinds(threads)
    assert answered(threads.join("a")).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert kinds(threads) == before


def test_an_empty_consumer_group_stays() -> None:
    """Only a classic one makes room (Kafka 4.4)."""
    threads = started()
    driver = threads.driver
    driver.submit(JOIN_CONSUMERS)
    driver.submit(ConsumerGroupHeartbeat("group", "m", -1))
    assert kinds(threads) == [("consumer", "Empty")]
    assert answered(threads.join("a")).error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_only_a_join_makes_a_group() -> None:
    """Whoever says that it is a member, or leaves, finds none."""
    threads = started()
    threads.driver.submit(COMMIT)
    for epoch in (1, -1):
        assert answered(threads.beat("a", epoch)).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert kinds(threads) == [("classic", "Empty")]


def test_an_empty_group_becomes_a_classic_one() -> None:
    """Its tombstones come first, the topology's last of them; the join goes on."""
    threads = started(group_initial_rebalance_delay_ms=0)
    threads.join("a")
    assert threads.driver.submit(JOIN).answer(JoinGroupResponse).error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    threads.beat("a", -1)
    written = len(threads.driver.written())
    joined = threads.driver.submit(JOIN)
    threads.driver.advance(1)
    assert joined.answer(JoinGroupResponse).error_code is ErrorCode.NONE
    tombstones = [record.key[0] for record in threads.driver.written()[written:] if isinstance(record, GroupTombstone)]
    assert tombstones == [20, 17, 23]
    threads.driver.restart()
    assert kinds(threads)[0][0] == "classic"


def test_requests_of_other_protocols_find_strangers() -> None:
    """A classic member is unknown, and of another kind there is no such group."""
    threads = started()
    threads.join("a")
    call = threads.driver.coordinator.call
    assert call(Heartbeat("group", 1, "a")).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert call(SyncGroup("group", 1, "a")).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    left = call(LeaveGroup("group", (LeavingMember("a"),)))
    assert {left.error_code, *(member.error_code for member in left.members)} >= {ErrorCode.UNKNOWN_MEMBER_ID}
    assert call(JOIN_CONSUMERS).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert call(ShareGroupHeartbeat("group", "m", 0, None, ("lines",))).error_code is ErrorCode.GROUP_ID_NOT_FOUND
