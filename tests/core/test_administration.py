"""ListGroups and DeleteGroups over several log partitions, and deletions of many offsets."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupCoordinator, GroupState, ManualClock, MemoryLogStore
from groupcoord.core.log.records import GroupTombstone, OffsetTombstone
from groupcoord.core.offsets import cache
from groupcoord.messages import (
    DeletedGroup,
    DeleteGroups,
    DeleteGroupsResponse,
    GroupToFetch,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    TopicToCommit,
)
from tests.core.driver import Driver, Group


def test_delete_a_group_of_too_many_offsets() -> None:
    """A deletion that no log takes at once is refused as a log would refuse it, and the group stays."""
    driver = Driver(message_max_bytes=100)
    group = Group(driver)
    for partitions in (range(2), range(2, 4)):
        group.commit(dict.fromkeys(partitions, 1))
    before = len(driver.written())
    answer = driver.delete("group").answer(DeleteGroupsResponse)
    assert answer.results == (DeletedGroup("group", ErrorCode.UNKNOWN_SERVER_ERROR),)
    assert len(driver.written()) == before
    assert group.state is GroupState.EMPTY
    assert group.committed() == {"orders": dict.fromkeys(range(4), 1)}


def test_no_commit_is_taken_apart_to_delete_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All commits of a topic are deleted in one append, whatever their number of partitions."""
    store = MemoryLogStore()
    coordinator = GroupCoordinator(clock=ManualClock(), log_store=store)
    coordinator.load_all()
    partition = coordinator.partition_of("g")
    for partitions in (range(300), range(200, 500)):
        offsets = tuple(OffsetToCommit(index, 1) for index in partitions)
        coordinator.call(OffsetCommit("g", (TopicToCommit("orders", offsets),)))
    before = len(list(store.read(partition)))
    monkeypatch.setattr(cache, "take_out", None)
    answer = coordinator.call(DeleteGroups(("g",)))
    assert answer.results == (DeletedGroup("g", ErrorCode.NONE),)
    tombstones = [*(OffsetTombstone("g", "orders", index) for index in range(500)), GroupTombstone("g")]
    assert [logged.record for logged in store.read(partition)][before:] == tombstones
    assert coordinator.call(OffsetFetch((GroupToFetch("g"),))).groups[0].topics == ()
