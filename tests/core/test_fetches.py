"""OffsetFetch: shapes of the answer, what is not there, what may not be seen yet."""

from __future__ import annotations

from uuid import UUID

import pytest

from groupcoord import ErrorCode
from groupcoord.messages import (
    CompleteTransaction,
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    GroupToFetch,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    TopicToCommit,
    TopicToFetch,
    TxnOffsetCommit,
)
from tests.core.driver import Driver, Group

ZERO, A, B = UUID(int=0), UUID(int=1), UUID(int=2)
NOTHING = FetchedOffset(0, -1, -1, "", ErrorCode.NONE)


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def fetch(driver: Driver, *wanted: GroupToFetch, **how: bool) -> tuple[FetchedGroup, ...]:
    """Fetch from these groups."""
    answer = driver.coordinator.call(OffsetFetch(wanted, **how))
    assert isinstance(answer, OffsetFetchResponse)
    return answer.groups


def test_an_unknown_group(driver: Driver) -> None:
    """It has no offsets, which is no error; member id and epoch do not matter."""
    named = GroupToFetch("group", (TopicToFetch("orders", (0,)),), "m", 5)
    everything = GroupToFetch("group", None)
    assert fetch(driver, named, everything) == (
        FetchedGroup("group", ErrorCode.NONE, (FetchedTopic("orders", ZERO, (NOTHING,)),)),
        FetchedGroup("group", ErrorCode.NONE, ()),
    )


def test_a_classic_group_ignores_the_member(driver: Driver, group: Group) -> None:
    """Member id and epoch of the request are for other groups."""
    (a,) = group.stable("a")
    group.commit(5, member_id=a)
    wanted = GroupToFetch("group", (TopicToFetch("orders", (0,)),), "stranger", 99)
    assert fetch(driver, wanted)[0].topics[0].partitions[0].committed_offset == 5


def test_what_is_fetched(driver: Driver, group: Group) -> None:
    """Offset, leader epoch and metadata; partitions without an offset are answered with -1, -1 and empty metadata."""
    group.commit(5, leader_epoch=3, metadata="m")
    wanted = GroupToFetch("group", (TopicToFetch("orders", (0, 1)), TopicToFetch("other", (0,))))
    topics = fetch(driver, wanted)[0].topics
    assert topics[0].partitions == (FetchedOffset(0, 5, 3, "m", ErrorCode.NONE), NOTHING._replace(partition_index=1))
    assert topics[1].partitions == (NOTHING,)


def test_repetitions_and_empty_lists(driver: Driver, group: Group) -> None:
    """What is named twice is answered twice; a topic without partitions, and no topics, come back as they are."""
    group.commit(5)
    topic = TopicToFetch("orders", (0, 0))
    first, second = fetch(driver, *[GroupToFetch("group", (topic, topic, TopicToFetch("none", ())))] * 2)
    assert first == second
    assert [len(entry.partitions) for entry in first.topics] == [2, 2, 0]
    assert fetch(driver, GroupToFetch("group", ()))[0].topics == ()
    assert fetch(driver) == ()


def test_everything(driver: Driver, group: Group) -> None:
    """Without a list, all partitions with an offset are answered; a stored -1 is listed too."""
    group.commit({0: 1, 2: -1})
    group.commit(7, topic="other")
    assert group.committed() == {"orders": {0: 1, 2: -1}, "other": {0: 7}}


def test_no_group_id(driver: Driver) -> None:
    """A null group id is INVALID_GROUP_ID; other groups of the request are answered."""
    answer = fetch(driver, GroupToFetch(None), GroupToFetch("group"))
    assert [entry.error_code for entry in answer] == [ErrorCode.INVALID_GROUP_ID, ErrorCode.NONE]


def test_two_partitions_of_the_log() -> None:
    """Each group is answered by its own log partition."""
    driver = Driver(offsets_topic_num_partitions=5)
    ids = {driver.coordinator.partition_of(name): name for name in "abcde"}
    first, second = list(ids.values())[:2]
    Group(driver, first).commit(1)
    driver.coordinator.unload(driver.coordinator.partition_of(second))
    answer = fetch(driver, GroupToFetch(first), GroupToFetch(second))
    assert answer[0].topics[0].partitions[0].committed_offset == 1
    assert answer[1] == FetchedGroup(second, ErrorCode.NOT_COORDINATOR, ())


@pytest.mark.parametrize(
    ("stored", "asked", "is_found"),
    [(ZERO, ZERO, True), (A, A, True), (A, ZERO, True), (ZERO, A, True), (A, B, False)],
)
def test_topic_ids(driver: Driver, group: Group, stored: UUID, asked: UUID, is_found: bool) -> None:
    """An offset that was stored for another topic of the same name is none; without an id, the name counts."""
    group.commit(5, topic_id=stored)
    topics = (TopicToFetch("orders", (0,), asked),)
    (topic,) = fetch(driver, GroupToFetch("group", topics))[0].topics
    assert topic == FetchedTopic("orders", asked, (NOTHING._replace(committed_offset=5) if is_found else NOTHING,))


def test_an_open_transaction(driver: Driver, group: Group) -> None:
    """Its offsets are invisible; who asks for stable ones is told UNSTABLE_OFFSET_COMMIT, for that partition alone."""
    group.commit({0: 1, 1: 1})
    driver.submit(
        TxnOffsetCommit("group", (TopicToCommit("orders", (OffsetToCommit(0, 2), OffsetToCommit(3, 2))),), 9, 0)
    )
    unstable = FetchedOffset(0, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert group.fetch().committed_offset == 1
    assert group.fetch(require_stable=True) == unstable
    assert group.fetch(index=1, require_stable=True).committed_offset == 1
    everything = fetch(driver, GroupToFetch("group"), require_stable=True)[0].topics[0].partitions
    assert [(entry.partition_index, entry.error_code) for entry in everything] == [
        (0, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        (1, ErrorCode.NONE),
    ]
    driver.submit(CompleteTransaction(0, 9, 0, committed=True))
    assert group.fetch(require_stable=True).committed_offset == 2
    assert group.committed() == {"orders": {0: 2, 1: 1, 3: 2}}
