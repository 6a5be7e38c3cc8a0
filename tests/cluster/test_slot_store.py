"""The slot store: its contract as a log store, the layout that all agree on, and metrics."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from groupcoord.cluster.metrics import ReplicaCollector
from groupcoord.cluster.replica import ReplicaStatus
from groupcoord.cluster.shared_log import LayoutError, NoLogError, agree_on_partition_count, partition_count_of
from groupcoord.cluster.slot_log import (
    LAYOUT_PARTITION,
    Chunk,
    Kind,
    MalformedSlotError,
    Manifest,
    MemorySlotLog,
    Message,
    Slot,
    contents,
    join,
)
from groupcoord.cluster.slot_store import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, CHUNK_BYTES_MAX, Gone, PartitionFigures
from groupcoord.cluster.slot_writer import UNKNOWN
from groupcoord.core.log.records import GroupTombstone, OffsetCommitRecord
from groupcoord.log_store import (
    AppendOutcomeUnknownError,
    LogRecord,
    NotLeaderError,
    RecordTooLargeError,
    StorageError,
    Ticket,
)
from groupcoord.records.batches import iter_batches
from groupcoord.testing import check_log_store

from .nodes import at_once
from .processes import Process, TakenOverAtEachLook


@pytest.mark.parametrize("body_bytes_max", [100, 1_000_000])
def test_it_keeps_the_contract_of_log_stores(body_bytes_max: int) -> None:
    """Also when each process dies and another one takes over, and after snapshots."""
    check_log_store(
        lambda: TakenOverAtEachLook(MemorySlotLog(read_max=3), body_bytes_max),
        reopen=TakenOverAtEachLook.reopened,
        compact=TakenOverAtEachLook.compact,
        settle=TakenOverAtEachLook.settle,
    )


def commit(offset: int) -> list[LogRecord]:
    return [LogRecord(OffsetCommitRecord("g", "t", 0, offset), 1)]


def test_who_does_not_own_appends_nothing() -> None:
    """Before it was taken over, after another one has, and after it was given up."""
    slot_log = MemorySlotLog()
    one, other = Process(slot_log), Process(slot_log)
    with pytest.raises(NotLeaderError):
        one.store.append(0, Ticket(0, 0), commit(1))
    with pytest.raises(NotLeaderError):
        one.store.read(0)
    assert one.take_over(0) == []
    one.store.append(0, Ticket(0, 0), commit(1))
    one.work()
    assert one.store.take_answers() == [(Ticket(0, 0), 0)]
    assert [record.offset for record in other.take_over(0)] == [0]
    one.store.append(0, Ticket(0, 1), commit(2))
    one.work()
    ((ticket, error),) = one.store.take_answers()
    assert (ticket, type(error)) == (Ticket(0, 1), NotLeaderError)
    assert [type(change) for change in one.store.take_changes()] == [Gone]
    assert (one.store.owned, other.store.owned) == ({}, {0: 2})
    other.store.give_up(0, "another is chosen")
    assert other.store.take_changes() == [Gone(0, "another is chosen")]
    with pytest.raises(NotLeaderError):
        other.store.append(0, Ticket(0, 0), commit(3))


def test_what_is_on_its_way_when_it_is_given_up_may_be_written() -> None:
    """Its outcome is ignored; everything else that waits is not written."""
    one = Process(MemorySlotLog())
    one.take_over(0)
    one.store.append(0, Ticket(0, 0), commit(1))
    ((_, operation),) = one.store.next_operations()
    one.store.append(0, Ticket(0, 1), commit(2))
    one.store.give_up(0, "stopped")
    one.store.done(0, operation, UNKNOWN)
    errors = [(ticket.number, type(error)) for ticket, error in one.store.take_answers()]
    assert errors == [(0, AppendOutcomeUnknownError), (1, NotLeaderError)]


def test_offsets_grow_over_snapshots() -> None:
    """A snapshot leaves out the last record, which was a tombstone: its offset is not given again."""
    slot_log = MemorySlotLog()
    one = Process(slot_log)
    one.take_over(0)
    for number, records in enumerate((commit(1), commit(2), [LogRecord(GroupTombstone("other"), 1)])):
        one.store.append(0, Ticket(0, number), records)
    one.work()
    one.store.snapshot(0, [(1, OffsetCommitRecord("g", "t", 0, 2))], 5)  # refused: there are answers that nobody took
    assert one.store.next_operations() == []
    one.store.take_answers()
    one.store.snapshot(0, [(1, OffsetCommitRecord("g", "t", 0, 2))], 5)
    one.work()
    other = Process(slot_log)
    assert [record.offset for record in other.take_over(0)] == [1]
    other.store.append(0, Ticket(0, 0), commit(3))
    other.work()
    assert other.store.take_answers() == [(Ticket(0, 0), 3)]


@pytest.mark.parametrize("body", [b"no batch" * 9, bytes(3), b""], ids=["text", "cut", "empty"])
@pytest.mark.parametrize("is_snapshot", [False, True])
def test_a_malformed_slot_fails_the_load(body: bytes, is_snapshot: bool) -> None:
    """Other log partitions are taken over as before."""
    slot_log = MemorySlotLog()
    bodies = [(Kind.CHUNK, Chunk(0, 0, body).encoded()), (Kind.MANIFEST, Manifest(0, 0, 1).encoded())]
    for slot, (kind, content) in enumerate(bodies if is_snapshot else [(Kind.BATCHES, join([body]))]):
        assert at_once(slot_log.put(0, slot, Message(kind, bytes(16), slot, content).encoded())) is None
    one = Process(slot_log)
    with pytest.raises(StorageError, match="log partition 0 can't be read"):
        one.take_over(0)
    assert one.take_over(1) == []


def test_a_batch_that_no_slot_has_room_for_is_refused() -> None:
    """It is refused at once and takes no offset; smaller batches are written after it as before."""
    one = Process(MemorySlotLog())
    one.take_over(0)
    metadata = "x" * 1_000
    many = [LogRecord(OffsetCommitRecord("g", "t", number, 1, metadata=metadata), 1) for number in range(1_100)]
    with pytest.raises(RecordTooLargeError, match=f"at most {BATCH_BYTES_MAX} are allowed"):
        one.store.append(0, Ticket(0, 0), many)
    one.store.append(0, Ticket(0, 1), many[:900])
    one.work()
    assert one.store.take_answers() == [(Ticket(0, 1), 0)]


@pytest.mark.parametrize(("bytes_max", "metadata"), [(1_000_000, ""), (20_000, "x" * 1_000)])
def test_a_snapshot_is_read_in_small_steps(bytes_max: int, metadata: str) -> None:
    """No batch of it has more records than are read in one go, and no slot more bytes than it may; all are there."""
    slot_log = MemorySlotLog(read_max=1_000)
    one = Process(slot_log, bytes_max)
    one.take_over(0)
    offsets = [number + number // 2_500 for number in range(5_000)]  # with a gap
    records = [(offset, OffsetCommitRecord("g", "t", offset, 1, metadata=metadata)) for offset in offsets]
    one.store.snapshot(0, records, 5)
    one.work()
    chunks, _ = contents(at_once(slot_log.read(0, 0)))
    assert max(map(len, chunks)) <= min(bytes_max, CHUNK_BYTES_MAX)
    assert max(batch.record_count for chunk in chunks[1:] for batch in iter_batches(chunk)) <= BATCH_RECORDS_MAX
    other = Process(slot_log)
    assert [record.offset for record in other.take_over(0)] == offsets


# ---------------------------------------------------------------- layout


class LagsBehind(MemorySlotLog):
    """An engine of which a replica answers that has not heard of the last put."""

    def __init__(self) -> None:
        super().__init__()
        self.lag = 1

    async def read(self, partition: int, from_slot: int) -> list[Slot]:
        self.lag -= 1
        return [] if self.lag >= 0 else await super().read(partition, from_slot)


def test_the_first_one_decides() -> None:
    """Others compare; who believes in another number is refused, and changes nothing."""
    slot_log = MemorySlotLog()
    with pytest.raises(NoLogError):
        at_once(partition_count_of(slot_log))
    for _ in range(2):
        at_once(agree_on_partition_count(slot_log, 12))
    with pytest.raises(LayoutError, match=r"begun with offsets.topic.num.partitions=12, which can't be changed to 50"):
        at_once(agree_on_partition_count(slot_log, 50))
    assert at_once(partition_count_of(slot_log)) == 12


def test_a_reader_that_lags_behind_is_asked_again() -> None:
    """The slot was refused, so it is filled."""
    slot_log = LagsBehind()
    at_once(agree_on_partition_count(slot_log, 12))
    asyncio.run(agree_on_partition_count(slot_log, 12))
    assert slot_log.lag == -1


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b'{"offsets.topic.num.partitions": "x"}', b"\xff"])
def test_something_else_is_refused(payload: bytes) -> None:
    slot_log = MemorySlotLog()
    at_once(slot_log.put(LAYOUT_PARTITION, 0, payload))
    for asked in (partition_count_of(slot_log), agree_on_partition_count(slot_log, 12)):
        with pytest.raises(MalformedSlotError, match="no valid number of log partitions"):
            at_once(asked)


# ---------------------------------------------------------------- metrics


def shown(status: ReplicaStatus | None) -> list[str]:
    """Return what Prometheus reads, without its comments."""
    registry = CollectorRegistry()
    registry.register(ReplicaCollector(lambda: status))
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_what_there_is_to_be_known_of_a_replica() -> None:
    """Lease, owners and epochs, how often something was taken over or lost, and how far snapshots lag behind."""
    owners = {0: "a", 2: "b"}
    status = ReplicaStatus(True, ("a", "b"), owners, {0: PartitionFigures(256, 7_000, 1_000)}, 3, 1)
    assert shown(status) == [
        "groupcoord_replica_may_answer 1.0",
        "groupcoord_replica_live 2.0",
        "groupcoord_replica_take_overs_total 3.0",
        "groupcoord_replica_losses_total 1.0",
        'groupcoord_replica_owner{node="a",partition="0"} 1.0',
        'groupcoord_replica_owner{node="b",partition="2"} 1.0',
        'groupcoord_replica_epoch{partition="0"} 256.0',
        'groupcoord_replica_unread_bytes{partition="0"} 7000.0',
        'groupcoord_replica_snapshot_bytes{partition="0"} 1000.0',
    ]


def test_nothing_is_shown_of_what_does_not_run() -> None:
    """Before a node has its share of the log, and without one."""
    assert shown(None) == []
