"""Mistakes of an embedding program: exceptions where they are made, with the name of what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from groupcoord import Config, GroupCoordinator
from groupcoord.aio import AsyncCoordinator
from groupcoord.cluster.replica import Replica
from groupcoord.cluster.slot_log import ConnectedSlotLog
from groupcoord.cluster.slot_store import SlotStore
from groupcoord.coordinator.loading import LoadError
from groupcoord.coordinator.threads import ThreadSafeCoordinator
from groupcoord.messages import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    DeleteGroups,
    DescribeGroups,
    FindCoordinator,
    ListGroups,
    OffsetToCommit,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
    StreamsGroupDescribe,
)
from tests.tables import as_one_test

MISTAKES: dict[str, Callable[[], object]] = {
    "partition_index": lambda: OffsetToCommit("0", 1),  # type: ignore[arg-type]
    "committed_offset": lambda: OffsetToCommit(0, 1.5),  # type: ignore[arg-type]
    "committed_leader_epoch": lambda: OffsetToCommit(0, 1, None),  # type: ignore[arg-type]
    "committed_metadata": lambda: OffsetToCommit(0, 1, -1, b""),  # type: ignore[arg-type]
    "group_ids of DescribeGroups": lambda: DescribeGroups("billing"),  # type: ignore[arg-type]
    "group_ids of DeleteGroups": lambda: DeleteGroups("billing"),  # type: ignore[arg-type]
    "group_ids of ConsumerGroupDescribe": lambda: ConsumerGroupDescribe("billing"),  # type: ignore[arg-type]
    "group_ids of ShareGroupDescribe": lambda: ShareGroupDescribe("billing"),  # type: ignore[arg-type]
    "group_ids of StreamsGroupDescribe": lambda: StreamsGroupDescribe("billing"),  # type: ignore[arg-type]
    "states_filter": lambda: ListGroups(states_filter="Stable"),  # type: ignore[arg-type]
    "keys": lambda: FindCoordinator(0, "billing"),  # type: ignore[arg-type]
    "subscribed_topic_names of ConsumerGroupHeartbeat": lambda: ConsumerGroupHeartbeat(
        "billing",
        "a",
        subscribed_topic_names="orders",  # type: ignore[arg-type]
    ),
    "subscribed_topic_names of ShareGroupHeartbeat": lambda: ShareGroupHeartbeat(
        "billing",
        "a",
        subscribed_topic_names="orders",  # type: ignore[arg-type]
    ),
    "topics": lambda: GroupCoordinator(topics={"orders": 3}),  # type: ignore[arg-type]
    "log_store": lambda: GroupCoordinator(log_store="groups.db"),  # type: ignore[arg-type]
    "AsyncCoordinator": lambda: AsyncCoordinator(Config()),  # type: ignore[arg-type]
    "ThreadSafeCoordinator": lambda: ThreadSafeCoordinator(Config()),  # type: ignore[arg-type]
}


@as_one_test
@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_type_is_a_type_error(name: str) -> None:
    """It is raised by the constructor, and names the argument."""
    with pytest.raises(TypeError, match=name.partition(" ")[0]):
        MISTAKES[name]()


def test_a_slot_store_without_a_replica() -> None:
    """Loading fails with a message that names what drives a SlotStore, once for all log partitions."""
    coordinator = GroupCoordinator(log_store=SlotStore())

    with pytest.raises(LoadError, match=r"give its coordinator to a Replica.*; 47 more log partitions$"):
        coordinator.load_all()


class UnopenedSlotLog(ConnectedSlotLog):
    """An engine that was not opened."""

    async def _connect(self) -> list[str]:
        raise AssertionError("not called")

    async def _disconnect(self) -> None:
        raise AssertionError("not called")


async def _start_replica() -> None:
    await Replica(GroupCoordinator(log_store=SlotStore()), UnopenedSlotLog(), "a:1").start()  # type: ignore[arg-type]


def test_a_slot_log_that_is_not_open() -> None:
    """A replica does not start over an engine that is not open, and the error names the call that opens it."""
    with pytest.raises(RuntimeError, match=r"not open: async with UnopenedSlotLog"):
        asyncio.run(_start_replica())
