"""A log of groups with every trouble, and what is known of the groups of a log."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.results import ResultDirectory
from groupcoord.analysis.decode.schema import KIND_RECORD, RECORDS
from groupcoord.analysis.fold.commits import CommitFacts, CommitFold, commits
from groupcoord.analysis.fold.histories import feed_history
from groupcoord.analysis.fold.history import KINDS, LogHistory
from groupcoord.analysis.fold.records import decode_records, read_back
from groupcoord.analysis.options import Thresholds
from groupcoord.analysis.pipeline.sources import LogSource
from groupcoord.analysis.rules.groups import Row
from groupcoord.core.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    encode_assignment,
    encode_subscription,
)
from groupcoord.core.log.records import GroupMetadataRecord, MemberRecord, OffsetCommitRecord, Record, TransactionMarker
from groupcoord.records.batches import encode_batch
from groupcoord.records.codec import encode_record


class Known(NamedTuple):
    """What is known of the groups of a log partition."""

    histories: dict[str, list[Row]]
    facts: CommitFacts
    current: pa.Table


def fold_log(folder: Path, out: Path, limits: Thresholds | None = None) -> Known:
    """Decode the only log partition of a folder, and fold it."""
    results = ResultDirectory(out)
    decoded = decode_records(LogSource([folder]).tasks(), results, lambda done, total: None)
    (partition,) = decoded.partitions
    fold, history = CommitFold(limits), LogHistory(partition.number)
    for span in decoded.spans(partition):
        history.add_span(*span)
    for records in read_back(results, partition, RECORDS.names, [KIND_RECORD]):
        feed_history(history, records.filter(pc.field("problem").is_null()))
        fold.add(commits(records, partition.markers()))
    found: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    for row in history.rows():
        found[row.kind].append({"group_id": row.group_id, "log_partition": row.log_partition} | row.values)
    facts = fold.facts()
    return Known(found, facts, facts.current_offsets())


class Log:
    """A log partition that is written batch by batch, as time passes."""

    def __init__(self, folder: Path, partition: int = 0) -> None:
        self._path = folder / f"__consumer_offsets-{partition}" / f"{0:020d}.log"
        self._path.parent.mkdir(parents=True)
        self._offset = 0
        self.leader_epoch = 0

    def add(self, at_ms: int, *records: Record, producer_id: int = -1, skipped: int = 0) -> Log:
        """Write one batch; some offsets before it are missing, as after compaction."""
        self._offset += skipped
        data = encode_batch(
            self._offset,
            [(*encode_record(record), at_ms) for record in records],
            leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            producer_epoch=min(producer_id, 0),
            is_transactional=producer_id >= 0,
            is_control=isinstance(records[0], TransactionMarker),
        )
        with self._path.open("ab") as file:
            file.write(data)
        self._offset += len(records)
        return self

    def commit(self, at_ms: int, group_id: str, offset: int, partition: int = 0, producer_id: int = -1) -> Log:
        record = OffsetCommitRecord(
            group_id, "t", partition, offset, commit_timestamp_ms=at_ms, producer_id=producer_id
        )
        return self.add(at_ms, record, producer_id=producer_id)

    def generation(self, at_ms: int, group_id: str, number: int, **members: list[int]) -> Log:
        """Write a classic group's record, members with their partitions."""
        names = list(members)
        record = GroupMetadataRecord(
            group_id,
            "consumer",
            number,
            "range" if names else None,
            names[0] if names else None,
            at_ms,
            tuple(
                MemberRecord(
                    name,
                    None,
                    name[0],
                    "/h",
                    60_000,
                    10_000,
                    encode_subscription(Subscription(("t",))),
                    encode_assignment(Assignment(tuple(TopicPartition("t", index) for index in indexes))),
                )
                for name, indexes in members.items()
            ),
        )
        return self.add(at_ms, record)


def write_troubled(folder: Path) -> None:
    log = Log(folder)
    log.generation(0, "stormy", 1, a1=[0], b1=[1])
    for number in range(2, 9):
        members = {"a1": [0]} if number % 2 == 0 else {"a1": [0], f"b{number}": [1]}
        log.generation(number * 1_000, "stormy", number, **members)
    log.commit(8_500, "stormy", 100).commit(9_000, "stormy", 60).commit(9_500, "stormy", 70)
    log.generation(10_000, "double", 1, a1=[0, 1], b1=[1])
    for step in range(5):
        log.commit(11_000 + step, "double", 5)
    for step in range(5):
        log.commit(11_000 + step, "double", 5 + step, partition=1)
    for step in range(7):
        log.commit(590_000 + step, "busy", step)
    # The member that leaves at the end was there a second before, as a commit shows.
    log.generation(20_000, "quiet", 1, a1=[0], b1=[1]).commit(49_000, "quiet", 1, partition=1)
    log.generation(50_000, "quiet", 2, a1=[0, 1])
    log.generation(500_000, "emptied", 1, a1=[0]).commit(500_005, "emptied", 1).generation(530_000, "emptied", 2)
    log.generation(500_000, "live", 1, a1=[0]).commit(500_005, "live", 1)
    log.add(500_007, OffsetCommitRecord("live", "former", 0, 1, commit_timestamp_ms=500_007))
    own_expiry = OffsetCommitRecord("simple", "t", 0, 1, commit_timestamp_ms=500_008, expire_timestamp_ms=700_000)
    log.add(500_008, own_expiry)
    log.commit(595_000, "open", 1).commit(595_500, "open", 2, producer_id=7)
    log.commit(600_000, "last", 1)
