"""Hard state: the fold of the records of one log partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from groupcoord.core.log.records import (
    CLASSIC_GROUP_KEY,
    CommitRecords,
    GroupMetadataRecord,
    GroupRecord,
    GroupTombstone,
    OffsetCommitRecord,
    OffsetTombstone,
    OpaqueRecord,
    Record,
    RecordKey,
    TransactionMarker,
    topic_of_record,
)
from groupcoord.core.offsets.cache import OffsetCache

LoggedGroupRecord = tuple[int, GroupRecord]
RecordsOfGroup = dict[RecordKey, LoggedGroupRecord]


class HardState:
    """State that is the same for live traffic, loading and checks: it changes only by applying durable records.

    Attributes:
        groups: group id → the last record of each of its keys; empty for a group that only has (or had) offsets.
        offsets: committed offsets and open transactions.
    """

    def __init__(self) -> None:
        self.groups: dict[str, RecordsOfGroup] = {}
        self.offsets = OffsetCache()

    def apply(self, record: Record | CommitRecords, log_offset: int) -> None:
        """Apply one durable record at ``log_offset``, or the records of a commit from there on."""
        # Types without an entry are records of groups: the last one with a key counts.
        _APPLY.get(type(record), HardState._remember)(self, record, log_offset)

    def apply_all(self, records: Sequence[Record], log_offset: int) -> None:
        tombstones: list[OffsetTombstone] = []
        for place, record in enumerate(records):
            # Adjacent tombstones of a group are applied together, because deletions have very many.
            if tombstones and (type(record) is not OffsetTombstone or record.group_id != tombstones[0].group_id):
                self.offsets.apply_tombstones(tombstones)
                tombstones = []
            if type(record) is OffsetTombstone:
                tombstones.append(record)
            elif (apply := _APPLY.get(type(record))) is not None:
                apply(self, record, log_offset + place)
            else:
                # Inlined from _remember, because a group's write has several of these.
                of_group: Any = record
                self.groups.setdefault(of_group.group_id, {})[of_group.key] = (log_offset + place, of_group)
        if tombstones:
            self.offsets.apply_tombstones(tombstones)

    def apply_commit(self, commit: CommitRecords, log_offset: int) -> None:
        group_id = commit.topics[0][0][0]  # by place: this is done for each commit
        # A commit makes a group exist: a load finds it by its offsets alone (KAFKA-4704).
        if group_id not in self.groups:
            self.groups[group_id] = {}
        self.offsets.apply(commit, log_offset)

    def _remember(self, record: GroupRecord, log_offset: int) -> None:
        self.groups.setdefault(record.group_id, {})[record.key] = (log_offset, record)

    def _forget(self, tombstone: GroupTombstone, log_offset: int) -> None:
        # None if compaction kept only the tombstone.
        records = self.groups.get(tombstone.group_id)
        if records is not None:
            # Compaction may have removed this key's record before its tombstone (KAFKA-17306).
            records.pop(tombstone.key, None)
            if not records:
                # A later commit makes it a group of offsets alone (KAFKA-4704).
                del self.groups[tombstone.group_id]

    def classic_record(self, group_id: str) -> GroupMetadataRecord | None:
        # A group of offsets alone has no record.
        _, record = self.groups.get(group_id, {}).get(CLASSIC_GROUP_KEY, (None, None))
        return record if isinstance(record, GroupMetadataRecord) else None

    def has_consumer_group(self, group_id: str) -> bool:
        """Return whether the log has records of a group with this id that is not classic."""
        records = self.groups.get(group_id, {})
        # Without records it has offsets alone, which makes it classic.
        return bool(records) and CLASSIC_GROUP_KEY not in records

    def snapshot(self) -> Iterator[tuple[int, Record]]:
        """Return the fewest records that rebuild it, with their log offsets, in order."""
        found: list[tuple[int, Record]] = list(self.group_records())
        for topics in self.offsets.committed_records().values():
            found += [entry for partitions in topics.values() for entry in partitions.values()]
        for keys in self.offsets.transactions.values():
            found += keys.values()
        # By offset, so that a replay meets records as in the log.
        return iter(sorted(found, key=lambda entry: entry[0]))

    def group_records(self) -> Iterator[LoggedGroupRecord]:
        for records in self.groups.values():
            yield from records.values()

    def facts(self) -> dict[str, object]:
        """Return all of it as plain values that compare equal for equal states."""
        return {
            "groups": self.groups,
            "committed": self.offsets.committed_records(),
            "transactions": self.offsets.transactions,
        }


_APPLY: dict[type, Callable[[HardState, Any, int], None]] = {
    CommitRecords: HardState.apply_commit,
    OffsetCommitRecord: lambda hard, record, log_offset: hard.apply_commit(
        CommitRecords((topic_of_record(record),)), log_offset
    ),
    OffsetTombstone: lambda hard, record, log_offset: hard.offsets.apply_tombstones((record,)),
    GroupTombstone: HardState._forget,
    TransactionMarker: lambda hard, record, log_offset: hard.offsets.apply_marker(record),
    # Unknown types are skipped, as in Kafka (KAFKA-14869).
    OpaqueRecord: lambda hard, record, log_offset: None,
}
"""Effects of records other than a group's."""
