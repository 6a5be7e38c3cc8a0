"""Histories of all groups of a log partition, with any records between and behind theirs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from groupcoord.analysis.fold.history import GENERATION, GROUP, MEMBER, REBALANCE, HistoryRow, LogHistory
from groupcoord.analysis.fold.history.causes import COORDINATOR_MOVE, EXPIRY_OR_LEAVE, LEAVE, UNKNOWN
from groupcoord.core.log.records import OffsetCommitRecord, OffsetTombstone, Record, TransactionMarker
from groupcoord.records.batches import encode_batch
from groupcoord.records.salvage import SoundBatch, salvage_batches
from groupcoord.records.typed import TypedRecord

from ..small_log import batch, generation

TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")


def commit(partition: int, at_ms: int, group_id: str = "g", producer_id: int = -1) -> OffsetCommitRecord:
    return OffsetCommitRecord(
        group_id, "t", partition, 7, commit_timestamp_ms=at_ms, topic_id=TOPIC_ID, producer_id=producer_id
    )


class Log:
    """A log partition that is written batch by batch, as time passes."""

    def __init__(self) -> None:
        self.history = LogHistory(3)
        self.offset = 0
        self.leader_epoch = 0

    def add(self, at_ms: int, *records: Record | TypedRecord, producer_id: int = -1) -> Log:
        data = batch(self.offset, at_ms, *records, producer_id=producer_id, leader_epoch=self.leader_epoch)
        self.feed(data)
        self.offset += len(records)
        return self

    def feed(self, data: bytes) -> None:
        for found in salvage_batches(lambda start, size: data[start : start + size], len(data)):
            assert isinstance(found, SoundBatch)
            self.history.add(found)

    def rows(self, kind: str, group_id: str = "g") -> list[HistoryRow]:
        return [row for row in self.history.rows() if (row.kind, row.group_id) == (kind, group_id)]

    def last_rebalance(self) -> dict[str, Any]:
        return self.rows(REBALANCE)[-1].values


def test_a_group_tells_its_history() -> None:
    """Each generation, its members, why it came and what the group is in the end, with the places of their records."""
    log = (
        Log().add(100, generation(1, 90, a=[0, 1])).add(200, generation(2, 190, a=[0], b=[1])).add(300, commit(0, 300))
    )

    assert [(row.kind, row.log_offset, row.log_timestamp_ms) for row in log.history.rows()] == [
        *((GENERATION, 0, 100), (MEMBER, 0, 100), (REBALANCE, 0, 100)),
        *((GENERATION, 1, 200), (MEMBER, 1, 200), (MEMBER, 1, 200), (REBALANCE, 1, 200)),
        (GROUP, 2, 300),
    ]
    assert {row.log_partition for row in log.history.rows()} == {3}
    rebalance = log.last_rebalance()
    assert (rebalance["cause"], rebalance["confidence"], rebalance["joined"]) == ("join", 1.0, ["b"])
    assert log.rows(GROUP)[0].values["state"] == "Stable"


def test_groups_come_one_after_the_other() -> None:
    """However their records are mixed, the rows of a group are together; a group that only committed has a state."""
    log = Log().add(1, commit(0, 1, "simple"))
    for number in (1, 2, 3):
        log.add(number, generation(number, number, "x", a=[0])).add(number, generation(number, number, "y", b=[0]))

    groups = [row.group_id for row in log.history.rows()]
    assert list(dict.fromkeys(groups)) == ["simple", "x", "y"]
    assert groups == sorted(groups)
    assert [row.kind for row in log.history.rows() if row.group_id == "simple"] == [GROUP]


def test_a_transaction_shows_nothing() -> None:
    """Offsets of a transaction, and tombstones, need no member that lives; the offsets keep a group all the same."""
    log = Log().add(0, generation(1, 0, a=[0], b=[1])).add(19_000, commit(1, 19_000, producer_id=7), producer_id=7)
    log.add(19_100, OffsetTombstone("g", "t", 1)).add(19_200, TransactionMarker(7, 0, True, 0), producer_id=7)
    log.add(20_000, generation(2, 20_000, a=[0, 1]))
    alone = Log().add(5, commit(0, 5, producer_id=7), producer_id=7)
    assert log.last_rebalance()["cause"] == EXPIRY_OR_LEAVE
    assert alone.rows(GROUP)[0].values["state"] == "Empty"


def test_a_new_leader_epoch_is_a_move() -> None:
    log = Log().add(0, generation(1, 0, a=[0]))
    log.leader_epoch = 1
    log.add(5_000, generation(2, 5_000, a=[0]))
    assert log.last_rebalance()["cause"] == COORDINATOR_MOVE


def test_what_compaction_has_removed_is_not_made_up() -> None:
    """In a gap a generation may be missing: the cause is unknown."""

    def compacted(*, is_other_file: bool) -> dict[str, Any]:
        log = Log().add(0, generation(1, 0, a=[0]))
        log.offset += 5
        log.add(50, commit(0, 50))
        if is_other_file:
            log.history.begin_file()
        log.add(100, generation(4, 100, a=[0], b=[]))
        log.offset += 0 if is_other_file else 3
        return log.add(200, commit(0, 200)).last_rebalance()

    for is_other_file in (False, True):
        rebalance = compacted(is_other_file=is_other_file)
        assert (rebalance["cause"], rebalance["missing_generations"]) == (UNKNOWN, 2)
    whole = Log().add(0, generation(1, 0, a=[0])).add(100, generation(4, 100, a=[0], b=[]))
    assert whole.last_rebalance()["cause"] == "join"


def test_two_copies_of_a_log_tell_it_once() -> None:
    """Replicas of two brokers, one behind the other: every generation comes once, and in order."""
    log = Log()
    for _ in range(2):
        log.history.begin_file()
        log.offset = 0
        log.add(0, generation(1, 0, a=[0], b=[1])).add(9_000, commit(1, 9_000))
        log.add(9_500, generation(2, 9_500, a=[0, 1]))

    assert [row.values["generation"] for row in log.rows(GENERATION)] == [1, 2]
    assert log.last_rebalance()["cause"] == LEAVE


def test_records_that_can_not_be_read_are_passed_over() -> None:
    """Keys of unknown types, keys without a value's known version, and none at all."""
    log = Log().add(0, generation(1, 0, a=[0]))
    records = [
        (b"\x00\x63what", b"x", 5),
        (None, b"x", 5),
        (b"\x00\x02\x00\x01g", b"\x00\x63", 5),
        (b"\x00\x02", None, 5),
    ]
    log.feed(encode_batch(log.offset, records))

    assert [row.kind for row in log.history.rows()] == [GENERATION, MEMBER, REBALANCE, GROUP]
