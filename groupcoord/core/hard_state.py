"""What a restart would know: a fold over the records of one log partition."""

from __future__ import annotations

from collections.abc import Iterator

from groupcoord.core.offsets.cache import OffsetCache
from groupcoord.core.records import (
    GroupMetadataRecord,
    GroupTombstone,
    OffsetCommitRecord,
    OffsetTombstone,
    PlainCommits,
    Record,
    TransactionMarker,
)


class HardState:
    """Changes only in :meth:`apply` (and its form for whole commits): the same for live traffic, loading and checks.

    Attributes:
        groups: group id → its last record; None for a group that only has (or had) offsets.
        group_log_offsets: group id → where its last record lies, for those that have one.
        offsets: committed offsets and open transactions.
        opaque_count: records of unknown kinds that were passed over.
    """

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadataRecord | None] = {}
        self.group_log_offsets: dict[str, int] = {}
        self.offsets = OffsetCache()
        self.opaque_count = 0

    def apply(self, record: Record | PlainCommits, log_offset: int) -> None:
        """Take over one durable record, found at ``log_offset``, or one plain commit, found from there on."""
        match record:
            case PlainCommits():
                self.apply_plain_commits(record, log_offset)
            case OffsetCommitRecord():
                self.groups.setdefault(record.group_id, None)
                self.offsets.apply_commit(record, log_offset)
            case GroupMetadataRecord():
                self.groups[record.group_id] = record
                self.group_log_offsets[record.group_id] = log_offset
            case OffsetTombstone():
                self.offsets.apply_tombstone(record)
            case GroupTombstone():
                self.groups.pop(record.group_id, None)
                self.group_log_offsets.pop(record.group_id, None)
            case TransactionMarker():
                self.offsets.apply_marker(record)
            case _:
                self.opaque_count += 1

    def apply_plain_commits(self, commits: PlainCommits, log_offset: int) -> None:
        """Take over one plain commit, found from ``log_offset`` on: :meth:`apply` for each record, in one pass."""
        self.groups.setdefault(commits.topics[0].like.group_id, None)
        self.offsets.apply_plain_commits(commits, log_offset)

    def group_records(self) -> Iterator[tuple[int, GroupMetadataRecord]]:
        """Return the last record of each group that has one, with its log offset."""
        for group_id, log_offset in self.group_log_offsets.items():
            record = self.groups[group_id]
            assert record is not None
            yield log_offset, record

    def facts(self) -> dict[str, object]:
        """Return all of it as plain values that compare equal for equal states."""
        return {
            "groups": self.groups,
            "committed": self.offsets.committed_records(),
            "transactions": self.offsets.transactions,
        }
