"""The histories of all groups of a log partition, from its batches.

A group's records lie among those of all others, and what a fold has to know beforehand (the names of topics, how far
compaction has come) may stand behind them. So the records of groups are gathered first, and of committed
offsets what tells that a member lived: the last one of each partition between two records of its group. Memory grows
with that, not with the number of commits; each group's rows are made when they are asked for.
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
    """Something that the log shows of a group.

    Attributes:
        group_id: the group.
        log_partition: where its records lie; None if that is not known.
        log_offset: of the record that shows it; of a row of kind ``group`` the last record that is about the group.
        log_timestamp_ms: of that record; None if it is not in the log any more.
        kind: one of :data:`KINDS`.
        values: by the names of the pipeline's table of this kind.
    """

    group_id: str
    log_partition: int | None
    log_offset: int
    log_timestamp_ms: int | None
    kind: str
    values: Row


class GroupRecord(NamedTuple):
    """A record of a group or of a member, as it lies in the log.

    Attributes:
        log_offset: where.
        timestamp_ms: when it was written.
        key: its bytes.
        value: its bytes; None: a tombstone.
        leader_epoch: of the log partition's leader that wrote it; None if it is not known.
    """

    log_offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None
    leader_epoch: int | None


class LastCommit(NamedTuple):
    """A committed offset that is no tombstone, as it lies in the log.

    Of those between two of a group's records the last one of each partition is enough.

    Attributes:
        log_offset: where.
        timestamp_ms: of the record.
        place: topic and partition; None: a transaction has it, and who commits in one may be gone when its marker
            comes.
    """

    log_offset: int
    timestamp_ms: int
    place: tuple[str, int] | None


class LogHistory:
    """Gathers the records of one log partition, and tells the history of each group.

    Call :meth:`begin_file` and :meth:`add` for what each file holds, in the order of the log, and :meth:`rows` at last.
    Who has decoded the records already calls :meth:`add_span` in place of the first, and :meth:`add_record`,
    :meth:`add_commit` and :meth:`name_topic` in place of the second.
    """

    def __init__(
        self,
        log_partition: int | None = None,
        *,
        group_ids: Container[str] | None = None,
        session_timeout_ms: int | None = None,
    ) -> None:
        self.log_partition = log_partition
        self._group_ids = group_ids
        self._session_timeout_ms = session_timeout_ms
        self._groups: dict[str, _Gathered] = {}
        self._files: list[_Span] = []
        self._file = _Span()

    def begin_file(self) -> None:
        """What is added from now on is of the next file: compaction works file by file."""
        if self._file.end >= 0:
            self._files.append(self._file)
        self._file = _Span()

    def add(self, sound: SoundBatch) -> None:
        """Take a batch."""
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
        """Take the account of a range that was read."""
        self._files.append(_Span(first, end, complete_from))

    def add_record(self, group_id: str, record: GroupRecord) -> None:
        """Take a record of a group or of a member."""
        group = self._group(group_id)
        if group is not None:
            group.add_record(record)

    def add_commit(self, group_id: str, commit: LastCommit) -> None:
        """Take a committed offset."""
        group = self._group(group_id)
        if group is not None:
            group.add_commit(commit)

    def name_topic(self, group_id: str, topic_id: UUID, topic: str) -> None:
        """Learn from a commit of a group what a topic is called."""
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
        """Yield the rows of one group after the other, in the order in which they appear in the log.

        Within a group they come as soon as they are certain: first what the log shows, then how it ends.
        """
        self.begin_file()
        spans = [(file.first, file.end, file.complete_from) for file in self._files]
        options = FoldOptions(self._session_timeout_ms, completeness(spans).complete_from)
        for group_id, gathered in self._groups.items():
            fold = GroupFold(group_id, self.log_partition, options)
            yield from _rows_of(fold, gathered)


@define
class _Span:
    """The batches of one file: their first offset, the one behind the last, and from where on none is missing."""

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
    """How far a log was read, and the offset from which on no record of it is missing.

    Compaction works from the start of a log, and leaves gaps. Bytes that can't be read leave a gap too.
    """

    end: int = 0
    complete_from: int = 0

    def behind(self, first: int, end: int, complete_from: int) -> Completeness:
        """Return the same behind the range that follows, as :meth:`LogHistory.add_span` takes it."""
        if complete_from != first:
            return Completeness(end, complete_from)
        return Completeness(end, self.complete_from if first == self.end else first)


def completeness(spans: Iterable[tuple[int, int, int]]) -> Completeness:
    """Return what ranges that were read come to, whatever their order."""
    found = Completeness()
    for span in sorted(spans):
        found = found.behind(*span)
    return found


@define
class _Gathered:
    """What the log holds of one group.

    Attributes:
        entries: its records, and the last commits between them.
        topic_names: by the topics' ids.
    """

    entries: list[GroupRecord | LastCommit] = field(factory=list)
    topic_names: dict[UUID, str] = field(factory=dict)
    _last_offset: int = -1
    # Where the last commit of each partition since the group's last record stands among the entries.
    _commits: dict[tuple[str, int] | None, int] = field(factory=dict)

    def add_record(self, record: GroupRecord) -> None:
        self.entries.append(record)
        self._commits.clear()
        self._last_offset = record.log_offset

    def add_commit(self, commit: LastCommit) -> None:
        if commit.log_offset <= self._last_offset:
            self._commits.clear()  # another copy of the log begins: what came before may belong behind this
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
    """Give a fold what comes next of its group."""
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
