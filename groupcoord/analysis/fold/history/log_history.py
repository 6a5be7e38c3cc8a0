"""Histories of all groups of a log partition, from its batches.

Facts needed by a fold (topic names, the extent of compaction) may follow its records. So group records are collected
first, with the last commit of each partition between two of them as a sign of life.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

from attrs import define, field

from groupcoord.analysis.fold.history.group_fold import FoldOptions, GroupFold
from groupcoord.analysis.fold.history.rows import (
    DUPLICATE,
    EPOCH,
    GENERATION,
    GROUP,
    MEMBER,
    MEMBERSHIP,
    MOVE,
    REBALANCE,
    REVOCATION,
    Row,
)
from groupcoord.core.log.records import ZERO_UUID, OffsetCommitRecord
from groupcoord.records.batches import Batch
from groupcoord.records.codec import decode_record
from groupcoord.records.salvage import SoundBatch
from groupcoord.records.typed import group_id_of, parse_key, parse_record
from groupcoord.schema.engine import uuid_text

KINDS = (GENERATION, MEMBER, REBALANCE, DUPLICATE, EPOCH, MEMBERSHIP, MOVE, REVOCATION, GROUP)
"""Kinds of rows: the last is the group as a coordinator that loads the log would find it."""

_OFFSET_KEYS = (b"\x00\x00", b"\x00\x01")
_NO_LEADER_EPOCH = -1


class HistoryRow(NamedTuple):
    """A row of a group's history.

    Attributes:
        log_partition: of its records; None if unknown.
        log_offset: of the record that shows it; for kind ``group`` the group's last record.
        log_timestamp_ms: of that record; None if it was compacted.
        values: the columns of the pipeline's table of this kind.
    """

    group_id: str
    log_partition: int | None
    log_offset: int
    log_timestamp_ms: int | None
    kind: str
    values: Row


class GroupRecord(NamedTuple):
    """A record of a group or of a member.

    Attributes:
        value: its value; None for a tombstone.
        leader_epoch: leader epoch of its batch; None if unknown.
    """

    log_offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None
    leader_epoch: int | None


class LastCommit(NamedTuple):
    """A committed offset, the last of its partition between two of the group's records.

    Attributes:
        log_offset: its offset in the log.
        place: topic and partition; None in a transaction, since the member may be gone before the marker.
    """

    log_offset: int
    timestamp_ms: int
    place: tuple[str, int] | None


@define(eq=False)
class LogHistory:
    """Collects the records of one log partition, and yields the history of each group.

    Call :meth:`begin_file` and :meth:`add` for the batches of each file in log order, then :meth:`rows`. For decoded
    records call :meth:`add_span` instead of the first, and :meth:`add_record`, :meth:`add_commit` and
    :meth:`name_topic` instead of the second.
    """

    log_partition: int | None = None
    _group_ids: Container[str] | None = field(default=None, kw_only=True)
    _session_timeout_ms: int | None = field(default=None, kw_only=True)
    _groups: dict[str, _Gathered] = field(init=False, factory=dict)
    _files: list[_Span] = field(init=False, factory=list)
    _file: _Span = field(init=False, factory=lambda: _Span())

    def begin_file(self) -> None:
        """Start the next file: compaction works file by file."""
        if self._file.end >= 0:
            self._files.append(self._file)
        self._file = _Span()

    def add(self, sound: SoundBatch) -> None:
        batch = sound.batch
        self._file.add(batch)
        if batch.is_control:
            return
        leader_epoch = None if batch.leader_epoch == _NO_LEADER_EPOCH else batch.leader_epoch
        is_transactional = batch.is_transactional
        for log_offset, timestamp_ms, key, value in sound.records:
            if key is None:
                continue
            if key[:2] in _OFFSET_KEYS:
                if value is not None:
                    self._add_commit(log_offset, timestamp_ms, key, value, is_transactional)
            elif (parsed := parse_key(key)) is not None:
                self.add_record(group_id_of(parsed[1]), GroupRecord(log_offset, timestamp_ms, key, value, leader_epoch))

    def add_span(self, first: int, end: int, complete_from: int) -> None:
        """Add the account of a range."""
        self._files.append(_Span(first, end, complete_from))

    def add_record(self, group_id: str, record: GroupRecord) -> None:
        group = self._group(group_id)
        if group is not None:
            group.add_record(record)

    def add_commit(self, group_id: str, commit: LastCommit) -> None:
        group = self._group(group_id)
        if group is not None:
            group.add_commit(commit)

    def name_topic(self, group_id: str, topic_id: UUID, topic: str) -> None:
        """Add a topic's name from a commit of the group."""
        group = self._group(group_id)
        if group is not None:
            group.topic_names[topic_id] = topic

    def _add_commit(self, log_offset: int, timestamp_ms: int, key: bytes, value: bytes, is_transactional: bool) -> None:
        record = decode_record(key, value)
        if not isinstance(record, OffsetCommitRecord):
            return
        if record.topic_id is not ZERO_UUID:
            self.name_topic(record.group_id, record.topic_id, record.topic)
        place = None if is_transactional else (record.topic, record.partition)
        self.add_commit(record.group_id, LastCommit(log_offset, timestamp_ms, place))

    def _group(self, group_id: str) -> _Gathered | None:
        group = self._groups.get(group_id)
        if group is None and (self._group_ids is None or group_id in self._group_ids):
            group = self._groups[group_id] = _Gathered()
        return group

    def rows(self) -> Iterator[HistoryRow]:
        """Yield the rows of each group, in order of first appearance in the log."""
        self.begin_file()
        spans = [(file.first, file.end, file.complete_from) for file in self._files]
        options = FoldOptions(self._session_timeout_ms, completeness(spans).complete_from)
        for group_id, gathered in self._groups.items():
            fold = GroupFold(group_id, self.log_partition, options)
            yield from _rows_of(fold, gathered)


@define
class _Span:
    first: int = -1
    end: int = -1
    complete_from: int = -1

    def add(self, batch: Batch) -> None:
        if self.end < 0:
            self.first = self.end = self.complete_from = batch.base_offset
        if batch.base_offset > self.end:
            self.complete_from = batch.base_offset
        if batch.record_count != batch.last_offset_delta + 1:
            self.complete_from = batch.next_offset
        self.end = batch.next_offset


class Completeness(NamedTuple):
    """End of a log, and the offset from which on no record is missing: compaction and corrupt bytes leave gaps."""

    end: int = 0
    complete_from: int = 0

    def behind(self, first: int, end: int, complete_from: int) -> Completeness:
        if complete_from != first:
            return Completeness(end, complete_from)
        return Completeness(end, self.complete_from if first == self.end else first)


def completeness(spans: Iterable[tuple[int, int, int]]) -> Completeness:
    found = Completeness()
    for span in sorted(spans):
        found = found.behind(*span)
    return found


@define
class _Gathered:
    """Collected records of one group, and the last commits between them."""

    entries: list[GroupRecord | LastCommit] = field(factory=list)
    topic_names: dict[UUID, str] = field(factory=dict)
    _last_offset: int = -1
    # Indexes in ``entries`` of the last commit of each partition since the group's last record.
    _commits: dict[tuple[str, int] | None, int] = field(factory=dict)

    def add_record(self, record: GroupRecord) -> None:
        self.entries.append(record)
        self._commits.clear()
        self._last_offset = record.log_offset

    def add_commit(self, commit: LastCommit) -> None:
        if commit.log_offset <= self._last_offset:
            self._commits.clear()  # a second copy of the log begins: earlier entries may belong after this one
        self._last_offset = commit.log_offset
        index = self._commits.setdefault(commit.place, len(self.entries))
        if index < len(self.entries):
            self.entries[index] = commit
        else:
            self.entries.append(commit)


def _rows_of(fold: GroupFold, gathered: _Gathered) -> Iterator[HistoryRow]:
    for topic_id, topic in gathered.topic_names.items():
        fold.name_topic(uuid_text(topic_id.bytes), topic)
    times_ms: dict[int, int] = {}
    for entry in sorted(gathered.entries, key=itemgetter(0)):
        times_ms[entry.log_offset] = entry.timestamp_ms
        feed_fold(fold, entry)
        yield from _taken(fold, times_ms)
    fold.finish()
    yield from _taken(fold, times_ms)


def feed_fold(fold: GroupFold, entry: GroupRecord | LastCommit) -> None:
    if isinstance(entry, LastCommit):
        if entry.place is None:
            fold.exists(entry.log_offset)
        else:
            fold.committed(entry.log_offset, entry.timestamp_ms, *entry.place)
    elif entry.log_offset > fold.last_offset:  # damaged logs, and two copies of one, hold a record twice
        record = parse_record(entry.key, entry.value)
        if record is not None:
            fold.apply(entry.log_offset, entry.timestamp_ms, record, entry.leader_epoch)


def _taken(fold: GroupFold, times_ms: dict[int, int]) -> Iterator[HistoryRow]:
    for kind, row in fold.take_rows():
        log_offset = row.get("log_offset", fold.last_offset)
        yield HistoryRow(fold.group_id, fold.log_partition, log_offset, times_ms.get(log_offset), kind, row)
