"""The writer of a log partition by itself: appends in flight, and what a log store may not do."""

from __future__ import annotations

import pytest

from groupcoord import InvariantError, StoreContractError
from groupcoord.core.columns import OffsetColumns
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.rebalance import WhenGroupWritten
from groupcoord.core.log.append_queue import PartitionWriter
from groupcoord.core.log.records import CommitKind, CommitRecords, CommittedTopic
from groupcoord.core.messages import OffsetCommitResponse
from groupcoord.core.offsets.commits import WhenCommitted
from groupcoord.core.outputs import Append, Effects
from groupcoord.core.replies import Reply

FIRST = 7


@pytest.fixture
def writer() -> PartitionWriter:
    """A writer whose first append is number 7."""
    return PartitionWriter(3, Effects(), FIRST)


def commit(writer: PartitionWriter, *offsets: int) -> Append:
    """Begin an append of these offsets, one for each partition from 0 on; return it."""
    columns = OffsetColumns(tuple(range(len(offsets))), offsets, (-1,) * len(offsets))
    records = CommitRecords([CommittedTopic(CommitKind("group", "orders"), columns)])
    writer.begin(records, WhenCommitted("group", len(records)), (Reply("token", OffsetCommitResponse(())),))
    writer.check()
    return writer.in_flight[-1]


def offsets_of(writer: PartitionWriter) -> dict[int, tuple[int, ...]]:
    topics = writer.hard.offsets.of_group("group")
    logged = {index: commit.logged(index) for index, commit in topics.get("orders", {}).items()}
    return {index: (log_offset, record.offset) for index, (log_offset, record) in logged.items()}


@pytest.mark.parametrize("number", [8, 10, 99])
def test_acknowledging_what_was_never_made(writer: PartitionWriter, number: int) -> None:
    """An append that is not in flight can't be acknowledged; nothing changes."""
    commit(writer, 1)
    with pytest.raises(StoreContractError, match=f"log partition 3: append {number} is not in flight"):
        writer.acknowledge(number, 0)
    assert (len(writer.in_flight), offsets_of(writer)) == (1, {})


@pytest.mark.parametrize("base_offset", [0, 41, -1])
def test_an_offset_that_goes_back(writer: PartitionWriter, base_offset: int) -> None:
    """Offsets of a log grow."""
    commit(writer, 1)
    commit(writer, 2)
    writer.acknowledge(7, 41)
    with pytest.raises(StoreContractError, match=r"append 8 was acknowledged at offset .* already reached 42"):
        writer.acknowledge(8, base_offset)
    assert offsets_of(writer) == {0: (41, 1)}


def test_no_room_for_what_came_before(writer: PartitionWriter) -> None:
    """An acknowledgement for several must leave room for the earlier ones."""
    commit(writer, 1, 1, 1)
    commit(writer, 2)
    with pytest.raises(StoreContractError, match="at offset -1"):
        writer.acknowledge(8, 2)


@pytest.mark.parametrize("number", [8, 99])
def test_failing_out_of_turn(writer: PartitionWriter, number: int) -> None:
    """Only the oldest append in flight can fail."""
    commit(writer, 1)
    commit(writer, 2)
    with pytest.raises(StoreContractError, match=f"append {number} failed out of turn"):
        writer.fail(number)
    assert len(writer.in_flight) == 2


def test_check(writer: PartitionWriter) -> None:
    """Pending commits are those in flight."""
    writer.begin([], WhenGroupWritten(GroupMetadata("group", 3, 0)))
    writer.check()
    writer.hard.offsets.pending[99] = CommitRecords([])
    with pytest.raises(InvariantError, match=r"pending commits \[99\]"):
        writer.check()
