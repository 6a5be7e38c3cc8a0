"""Groups that are in memory alone: those that a commit left which was refused for every partition."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from groupcoord import ErrorCode, GroupState
from groupcoord.core.log.records import GroupTombstone
from groupcoord.events import Cause, GroupRemoved
from groupcoord.log_store import NotLeaderError
from groupcoord.messages import (
    CompleteTransaction,
    DeleteGroupsResponse,
    ListGroups,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetToCommit,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from tests.core.driver import Driver, Group

TOO_LONG = "four"
CHECK_MS = 600_000


@pytest.fixture
def driver() -> Driver:
    return Driver(offset_metadata_max_bytes=3)


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


@pytest.fixture
def other(driver: Driver) -> Group:
    return Group(driver, "other")


def refused_plainly(group: Group) -> None:
    """Commit to every partition what is refused."""
    assert group.commit({0: 1, 1: 2, 2: 3}, metadata=TOO_LONG).error is ErrorCode.OFFSET_METADATA_TOO_LARGE


def refused_in_a_transaction(group: Group) -> None:
    """Commit in a transaction what is refused."""
    topics = (TopicToCommit("orders", (OffsetToCommit(0, 1, -1, TOO_LONG),)),)
    answer = group.driver.submit(TxnOffsetCommit(group.group_id, topics, 7, 0)).answer(TxnOffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code is ErrorCode.OFFSET_METADATA_TOO_LARGE


def refused_under_made_up_names(group: Group) -> None:
    """Commit what is refused, with a negative generation and somebody's ids."""
    sent = group.commit(1, generation=-7, member_id="m", instance="i", metadata=TOO_LONG)
    assert sent.error is ErrorCode.OFFSET_METADATA_TOO_LARGE


def listed(driver: Driver) -> list[str]:
    """Return the ids of all groups."""
    return [group.group_id for group in driver.coordinator.call(ListGroups()).groups]


def deletion_of(group: Group) -> ErrorCode:
    """Delete a group; return what comes of it."""
    return group.driver.delete(group.group_id).answer(DeleteGroupsResponse).results[0].error_code


# ---------------------------------------------------------------- who sees them


@pytest.mark.parametrize("refused", [refused_plainly, refused_in_a_transaction, refused_under_made_up_names])
def test_the_next_write_shows_it(driver: Driver, group: Group, other: Group, refused: Callable[[Group], None]) -> None:
    """Readers see the group when anything is written that began after it was made; nothing of it is in the log."""
    refused(group)
    assert (driver.written(), group.describe().group_state, listed(driver)) == ([], "Dead", [])
    other.commit(1)
    assert (group.describe().group_state, group.describe().protocol_type) == ("Empty", "")
    assert listed(driver) == ["group", "other"]
    driver.restart()
    assert listed(driver) == ["other"]


def test_a_marker_shows_it(driver: Driver, group: Group) -> None:
    """The end of a transaction is a write like any other."""
    refused_plainly(group)
    driver.submit(CompleteTransaction(0, 7, 0, committed=True))
    assert listed(driver) == ["group"]


@pytest.mark.parametrize("generation", [0, 3])
def test_a_generation_makes_none(driver: Driver, group: Group, other: Group, generation: int) -> None:
    """A commit that names a generation of an unknown group leaves nothing, however long its metadata are."""
    assert group.commit(1, generation=generation, metadata=TOO_LONG).error is ErrorCode.GROUP_ID_NOT_FOUND
    other.commit(1)
    assert listed(driver) == ["other"]


def test_another_log_partition_does_not_show_it() -> None:
    """What is seen of a log partition follows its own writes."""
    driver = Driver(offset_metadata_max_bytes=3, offsets_topic_num_partitions=2)
    groups = [Group(driver, name) for name in ("a", "b")]
    assert [driver.coordinator.partition_of(group.group_id) for group in groups] == [1, 0]
    refused_plainly(groups[0])
    groups[1].commit(1)
    assert groups[0].describe().group_state == "Dead"


def test_a_write_under_way_does_not_show_it() -> None:
    """A write that began before the group was made tells nothing of it, the next one does."""
    driver = Driver(late=True, offset_metadata_max_bytes=3)
    group, other = Group(driver), Group(driver, "other")
    other.commit(1)
    refused_plainly(group)
    other.commit(2)
    driver.write(1)
    assert listed(driver) == ["other"]
    driver.write(1)
    assert listed(driver) == ["group", "other"]


# ---------------------------------------------------------------- what requests find


def test_requests_find_it(driver: Driver, group: Group) -> None:
    """Commits of a generation, heartbeats, joins with unknown ids and deletions of offsets meet an Empty group."""
    refused_plainly(group)
    assert group.commit(1, generation=3).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat("m") is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.join(member_id="m", protocols=()).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.join(member_id="m").error is ErrorCode.UNKNOWN_MEMBER_ID
    deletion = driver.submit(OffsetDelete("group", (TopicToDelete("orders", (0,)),))).answer(OffsetDeleteResponse)
    assert (deletion.error_code, deletion.topics[0].partitions[0].error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert (driver.written(), group.committed()) == ([], {})


def test_deleting_it(driver: Driver, group: Group) -> None:
    """It can be deleted once, seen or not; its tombstone is written."""
    refused_plainly(group)
    assert [deletion_of(group), deletion_of(group)] == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert driver.written() == [GroupTombstone("group")]


def test_committing_to_it(driver: Driver, group: Group) -> None:
    """A commit that is accepted makes it a simple group like any other."""
    refused_plainly(group)
    assert group.commit(5).error is ErrorCode.NONE
    assert listed(driver) == ["group"]
    driver.restart()
    assert group.committed() == {"orders": {0: 5}}


@pytest.mark.parametrize("asks_for_id", [False, True])
def test_joining_it(driver: Driver, group: Group, asks_for_id: bool) -> None:
    """A first join writes no record, so readers see the group with its first generation, or the next other write."""
    refused_plainly(group)
    join = group.rejoin(group.ask_for_id("a")) if asks_for_id else group.join("a")
    driver.sleep(3_000)
    assert (join.error, driver.written(), group.describe().group_state) == (ErrorCode.NONE, [], "Dead")
    group.assign()
    assert group.describe().group_state == "Stable"


def test_a_refused_join_of_it(driver: Driver, group: Group) -> None:
    """Unlike a refused join of an unknown group, it writes no record either."""
    refused_plainly(group)
    assert group.join(protocols=()).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.written() == []


# ---------------------------------------------------------------- how they end


@pytest.mark.parametrize("made_ms", [0, CHECK_MS - 1])
def test_the_next_check_deletes_it(driver: Driver, group: Group, made_ms: int) -> None:
    """The check for expired offsets comes when it always comes, and writes the tombstone of a group without any."""
    driver.sleep(made_ms)
    refused_plainly(group)
    driver.sleep_until(CHECK_MS - 1)
    assert group.state is GroupState.EMPTY
    driver.sleep(1)
    assert (group.state, driver.written()) == (None, [GroupTombstone("group")])
    assert deletion_of(group) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_restart_forgets_it(driver: Driver, group: Group) -> None:
    """The log knows nothing of it."""
    refused_plainly(group)
    driver.restart()
    assert (group.state, deletion_of(group)) == (None, ErrorCode.GROUP_ID_NOT_FOUND)


def test_a_failed_write_takes_it_along(driver: Driver, group: Group, other: Group) -> None:
    """A group that nobody has seen never was when the next write fails, whomever that is for."""
    driver.coordinator.observe()
    refused_plainly(group)
    driver.store.fail_next(NotLeaderError())
    assert other.commit(1).error is ErrorCode.NOT_COORDINATOR
    assert (group.state, other.state) == (None, None)
    events = [event for event in driver.coordinator.take_events() if isinstance(event, GroupRemoved)]
    assert {(event.group_id, event.cause) for event in events} == {
        ("group", Cause.CREATION_FAILED),
        ("other", Cause.CREATION_FAILED),
    }


def test_a_failed_write_spares_what_was_seen(driver: Driver, group: Group, other: Group) -> None:
    """After a write that showed it, it can be deleted like any group."""
    refused_plainly(group)
    other.commit(1)
    driver.store.fail_next(NotLeaderError())
    other.commit(2)
    assert (listed(driver), deletion_of(group)) == (["group", "other"], ErrorCode.NONE)


def test_a_failed_write_while_a_join_waits(driver: Driver, group: Group, other: Group) -> None:
    """The join is told what the write came to: there is no group any more that it could wait for."""
    refused_plainly(group)
    join = group.join("a")
    driver.store.fail_next(NotLeaderError())
    other.commit(1)
    assert (join.error, group.state) == (ErrorCode.NOT_COORDINATOR, None)


def test_a_first_generation_that_cannot_be_written(driver: Driver, group: Group) -> None:
    """The sync gets the error, and the group is gone with its members, since the log never had it."""
    refused_plainly(group)
    (a,) = group.generation_of("a")
    driver.store.fail_next(NotLeaderError())
    assert group.sync(a, {a: b"A"}).error is ErrorCode.NOT_COORDINATOR
    assert (group.state, group.heartbeat(a, generation=1)) == (None, ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_deletion_that_fails(driver: Driver, group: Group) -> None:
    """It does not come back."""
    refused_plainly(group)
    driver.store.fail_next(NotLeaderError())
    assert deletion_of(group) is ErrorCode.NOT_COORDINATOR
    assert (group.state, deletion_of(group)) == (None, ErrorCode.GROUP_ID_NOT_FOUND)
