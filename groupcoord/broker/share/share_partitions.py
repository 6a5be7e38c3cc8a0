"""Share-partitions that a broker leads (KIP-932): acquired records, reads from the log, and state writes.

A share-partition is soft state: the first fetch of a share group creates it from the state of the share coordinator.
It is dropped when the leader changes or the coordinator fences it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from groupcoord.broker.log_lines import RateLimitedLogger
from groupcoord.broker.records.list_offsets import find_time
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.share.coordination import Persister
from groupcoord.broker.share.dead_letters import DeadLetters
from groupcoord.broker.topics.registry import Topic
from groupcoord.broker.work import do_whole
from groupcoord.config.group_settings import EARLIEST, AutoOffsetReset, ShareGroupSettings
from groupcoord.core.messages.share_state import (
    ReadShareGroupState,
    ReadStateResult,
    StateTopicToRead,
    StateTopicToWrite,
    StateToRead,
    StateToWrite,
    WriteShareGroupState,
)
from groupcoord.core.share_partition.in_flight import (
    Acknowledgement,
    Acquired,
    LogBatch,
    RefusedAcknowledgementError,
    Run,
    Wanted,
)
from groupcoord.core.share_partition.partition import SharePartition, StateWrite, UnknownStateError
from groupcoord.core.share_state.records import NO_START_OFFSET, SharePartitionKey
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import FailedLogError, TopicLogError
from groupcoord.wire.share_messages import AcquiredRecords

if TYPE_CHECKING:
    from groupcoord.records.batches import Batch
    from groupcoord.storage.log.index import AbortedTransaction
    from groupcoord.storage.log.memory_log import PartitionLog


logger = logging.getLogger("groupcoord.host")

Done = Callable[[ErrorCode], None]
SettingsOf = Callable[[str], ShareGroupSettings]

_FENCED = frozenset(
    (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Errors of the share coordinator that mean a newer leader or state."""

# Members do not know state epochs, so fencing looks like a change of leaders.
_TRANSLATION = {
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


def for_member(error_code: ErrorCode) -> ErrorCode:
    return _TRANSLATION.get(error_code, ErrorCode.UNKNOWN_SERVER_ERROR)


class LedPartition:
    """Share-partition that this broker leads.

    Attributes:
        records: its records in flight; None until its state is read.
        error_code: why it can't be used, or NONE.
        waiting: the callbacks of waiting fetches.
        lock_ms: the deadline of its next timer, or None.
        is_burying: whether dead letters are being sent.
    """

    def __init__(self, key: SharePartitionKey, topic: Topic, log: PartitionLog, leader_epoch: int) -> None:
        self.key = key
        self.topic = topic
        self.log = log
        self.records: SharePartition | None = None
        self.state_epoch = 0
        self.leader_epoch = leader_epoch
        self.error_code = ErrorCode.NONE
        self.waiting: dict[Callable[[], None], None] = {}
        self.lock_ms: int | None = None
        self.is_burying = False

    def wake(self) -> None:
        for wake in list(self.waiting):
            wake()


class SharePartitions:
    """Share-partitions that a broker leads."""

    def __init__(
        self, data: TopicData, persister: Persister, settings_of: SettingsOf, dead_letters: DeadLetters
    ) -> None:
        self._data = data
        self._persister = persister
        self.settings_of = settings_of
        self._led: dict[SharePartitionKey, LedPartition] = {}
        self._watched: dict[PartitionLog, dict[SharePartitionKey, LedPartition]] = {}
        self._lines = RateLimitedLogger(logger)
        self.dead_letters = dead_letters

    def report_omitted(self) -> None:
        self._lines.report(self._now_s())
        self.dead_letters.report_omitted()

    def _now_s(self) -> float:
        return self._data.clock.now_ms() / 1_000

    # ------------------------------------------------------------ lookup

    def lead(self, key: SharePartitionKey, topic: Topic) -> LedPartition | ErrorCode:
        """Return the share-partition of an existing partition, or an error; its records may not be known yet."""
        try:
            log, leader_epoch = self._data.log_with_epoch(topic, key.partition)
        except FailedLogError as error:
            self._drop_key(key)
            return error.error_code
        if log is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        led = self._led.get(key)
        if led is not None and led.log is log and led.leader_epoch == leader_epoch:
            return led
        # Another leader may have written the state.
        self._drop_key(key)
        led = LedPartition(key, topic, log, leader_epoch)
        # An error that comes at once drops it again.
        self._led[key] = led
        keys = self._watched.setdefault(log, {})
        if not keys:
            log.watchers[self._log_changed] = None
        keys[key] = led
        self._read_state(led)
        return led

    def known(self, key: SharePartitionKey) -> LedPartition | None:
        """Return a share-partition with known records, or None."""
        led = self._led.get(key)
        return None if led is None or led.records is None or led.log.is_closed else led

    def current(self, key: SharePartitionKey) -> LedPartition | None:
        """Return a share-partition with known records that this broker still leads, or None."""
        led = self.known(key)
        return led if led is not None and self.is_usable(led) else None

    def is_usable(self, led: LedPartition) -> bool:
        """Return whether a share-partition is valid and still led here; drop it otherwise."""
        if led.error_code is ErrorCode.NONE and not self._is_current(led):
            self._drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return led.error_code is ErrorCode.NONE

    def _is_current(self, led: LedPartition) -> bool:
        if led.log.is_closed:
            return False
        try:
            return self._data.log_with_epoch(led.topic, led.key.partition) == (led.log, led.leader_epoch)
        except FailedLogError:
            return False

    def all(self) -> list[LedPartition]:
        return [led for led in self._led.values() if self._is_current(led)]

    def close(self) -> None:
        for log in self._watched:
            log.watchers.pop(self._log_changed, None)

    def forget_group(self, group_id: str) -> None:
        for key in [key for key in self._led if key.group_id == group_id]:
            self._drop_key(key)

    def _drop_key(self, key: SharePartitionKey) -> None:
        led = self._led.get(key)
        if led is not None:
            self._drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _drop(self, led: LedPartition, error_code: ErrorCode) -> None:
        # A late response may concern a replaced share-partition.
        if self._led.get(led.key) is not led:
            return
        del self._led[led.key]
        keys = self._watched[led.log]
        del keys[led.key]
        if not keys:
            del self._watched[led.log]
            led.log.watchers.pop(self._log_changed, None)
        led.error_code = error_code
        led.wake()

    def _log_changed(self, log: PartitionLog) -> None:
        for led in list(self._watched.get(log, {}).values()):
            if log.is_closed:
                self._drop(led, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif led.waiting:
                led.wake()

    # ------------------------------------------------------------ the share coordinator

    def _submit(self, request: ReadShareGroupState | WriteShareGroupState, on_result: Callable[[Any], None]) -> None:
        self._persister.ask(request, lambda response: on_result(response.results[0].partitions[0]))

    def _read_state(self, led: LedPartition) -> None:
        group_id, topic_id, index = led.key
        entry = StateTopicToRead(topic_id, (StateToRead(index, led.leader_epoch),))
        self._submit(ReadShareGroupState(group_id, (entry,)), partial(self._begin, led))

    def _begin(self, led: LedPartition, state: ReadStateResult) -> None:
        if state.error_code is not ErrorCode.NONE:
            self._drop(led, for_member(state.error_code))
            return
        start_offset = state.start_offset
        if start_offset == NO_START_OFFSET:
            settings = self.settings_of(led.key.group_id)
            try:
                # As in Kafka, not written before an acknowledgement.
                start_offset = start_offset_of(settings.auto_offset_reset, led.log, self._data.clock.now_ms())
            except TopicLogError as error:
                self._drop(led, error.error_code)
                return
        led.state_epoch = state.state_epoch
        end_offset = led.log.end_offset
        try:
            # Batches beyond the log's end are dropped, as those offsets may be reused. Any client with CLUSTER_ACTION
            # may have written an invalid state.
            led.records = SharePartition(
                start_offset,
                [
                    batch._replace(last_offset=min(batch.last_offset, end_offset - 1))
                    for batch in state.state_batches
                    if batch.first_offset < end_offset
                ],
            )
        except UnknownStateError as error:
            message = "the state of %s can't be used: %s"
            self._lines.log(logging.ERROR, "unusable state", self._now_s(), message, led.key.text, error)
            self._drop(led, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        # As in Kafka the count decides, since the state has no reason for archiving.
        limit = self.settings_of(led.key.group_id).delivery_count_limit
        for run in led.records.archiving():
            run.state.is_rejected = run.state.count < limit
        # After a failover nothing shows whether dead letters were sent.
        self._bury(led)
        led.wake()

    def write(self, led: LedPartition, write: StateWrite, done: Done | None = None) -> None:
        group_id, topic_id, index = led.key
        entry = StateToWrite(
            index,
            led.state_epoch,
            led.leader_epoch,
            write.start_offset,
            write.batches,
            write.delivery_complete_count,
        )
        request = WriteShareGroupState(group_id, (StateTopicToWrite(topic_id, (entry,)),))
        self._submit(request, lambda result: self._written(led, write, done, result.error_code))

    def _written(self, led: LedPartition, write: StateWrite, done: Done | None, error_code: ErrorCode) -> None:
        assert led.records is not None, "nothing is written before something is known"
        if error_code is ErrorCode.NONE:
            led.records.written(write)
        else:
            led.records.refused(write)
        if done is not None:
            done(ErrorCode.NONE if error_code is ErrorCode.NONE else for_member(error_code))
        if error_code in _FENCED:
            self._drop(led, for_member(error_code))
            return
        if error_code is ErrorCode.NONE:
            self._bury(led)
        # Kafka does so only if the start offset has moved.
        led.wake()

    def _bury(self, led: LedPartition) -> None:
        records = led.records
        # Later ones follow when these are sent, so each is sent once.
        dead = [] if records is None or led.is_burying else records.archiving()
        if records is not None and dead:
            led.is_burying = True
            group_id, _, index = led.key
            settings, done = self.settings_of(group_id), partial(self._buried, led, records, dead)
            self.dead_letters.send(group_id, led.topic, index, led.log, dead, settings, done)

    def _buried(self, led: LedPartition, records: SharePartition, dead: Sequence[Run]) -> None:
        led.is_burying = False
        if self._led.get(led.key) is led:  # the new leader sends them again
            self.write(led, records.archive(dead))

    # ------------------------------------------------------------ members

    def acknowledge(
        self, led: LedPartition, member_id: str, acknowledgements: Sequence[Acknowledgement], done: Done
    ) -> None:
        assert led.records is not None, "what is acknowledged was fetched"
        settings, now_ms = self.settings_of(led.key.group_id), self._data.clock.now_ms()
        try:
            write = led.records.acknowledge(member_id, acknowledgements, settings, now_ms)
        except RefusedAcknowledgementError as error:
            done(error.error_code)
            return
        # Renewals and offsets below the start offset are not stored (KIP-1222).
        if write is None:
            done(ErrorCode.NONE)
        else:
            self.write(led, write, done)

    def release(self, led: LedPartition, member_id: str) -> None:
        if led.records is not None:
            write = led.records.release(member_id, self.settings_of(led.key.group_id))
            if write is not None:
                self.write(led, write)

    # ------------------------------------------------------------ time

    def watch_locks(self, led: LedPartition) -> None:
        lock_ms = None if led.records is None else led.records.next_lock_ms()
        # The timer is set again when it expires.
        if lock_ms is not None and (led.lock_ms is None or lock_ms < led.lock_ms):
            led.lock_ms = lock_ms
            self.dead_letters.timers.add(lock_ms, partial(self._lock_expires, led))

    def _lock_expires(self, led: LedPartition) -> None:
        led.lock_ms = None
        # Locks are not stored.
        if self._led.get(led.key) is not led:
            return
        if self._is_current(led):
            self.expire_locks(led, self._data.clock.now_ms())
        else:
            self._drop(led, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def expire_locks(self, led: LedPartition, now_ms: int, until_ms: int | None = None) -> None:
        """Release records with locks that expire by a time, by default now."""
        if led.records is not None:
            write = led.records.expire_locks(self.settings_of(led.key.group_id), now_ms, until_ms)
            self.watch_locks(led)
            if write is not None:
                self.write(led, write)


def start_offset_of(policy: AutoOffsetReset, log: PartitionLog, now_ms: int) -> int:
    if policy.duration_ms is not None:
        # Blocks once for each new share-partition.
        found = do_whole(find_time(log, now_ms - policy.duration_ms))
        return log.end_offset if found is None else found.offset
    return log.start_offset if policy == EARLIEST else log.end_offset


READ_COMMITTED = "read_committed"


class ReadRecords(NamedTuple):
    """Records read for a member; ``record_count`` counts acquired ones, including aborted ones."""

    records: bytes = b""
    acquired: tuple[AcquiredRecords, ...] = ()
    size_bytes: int = 0
    record_count: int = 0


NOTHING_READ = ReadRecords()


def end_of(led: LedPartition, settings: ShareGroupSettings) -> int:
    return led.log.last_stable_offset if settings.isolation_level == READ_COMMITTED else led.log.end_offset


def acquirable_bytes(led: LedPartition, settings: ShareGroupSettings) -> int | None:
    """Return the number of bytes from the first available record on; None if no record is available."""
    records = led.records
    if records is None:
        return None
    # Retention may remove records that were never acquired.
    records.log_starts_at(led.log.start_offset)
    if not records.can_acquire(settings):
        return None
    offset, end_offset = records.next_fetch_offset(), end_of(led, settings)
    return led.log.readable_bytes(offset, end_offset) if offset < end_offset else None


def read_and_acquire(
    led: LedPartition, wanted: Wanted, settings: ShareGroupSettings, max_bytes: int, now_ms: int, *, takes_first: bool
) -> ReadRecords:
    """Read records, and acquire them for a member. ``takes_first`` ignores ``max_bytes`` for the first batch."""
    from groupcoord.records.batches import TruncatedBatchError, iter_batches

    records = led.records
    assert records is not None, "only what is known is read"
    is_committed = settings.isolation_level == READ_COMMITTED
    end_offset = end_of(led, settings)
    # Batches behind the last wanted record matter only if compaction left a gap before them.
    for stop in (min(records.last_wanted(wanted.max_records) + 1, end_offset), end_offset):
        found = led.log.read(
            records.next_fetch_offset(), stop, max_bytes, takes_first=takes_first, lists_aborted=is_committed
        )
        if found.parts:
            break
    data = b"".join(found.parts)
    batches = []
    try:
        for batch in iter_batches(data, check_crc=False):
            batches.append(batch)
    except TruncatedBatchError:
        pass  # truncated by the limit
    if not batches:
        return NOTHING_READ
    in_log = [LogBatch(batch.base_offset, batch.next_offset - 1) for batch in batches]
    acquired = records.acquire(wanted, in_log, settings, now_ms)
    if not acquired:
        return NOTHING_READ
    # Aborted records used up the limit, too.
    count = sum(entry.last - entry.first + 1 for entry in acquired)
    first, last = acquired[0].first, acquired[-1].last
    # Clients skip records that are not acquired.
    sent = [batch for batch in batches if batch.next_offset > first and batch.base_offset <= last]
    if is_committed and found.aborted:
        aborted = _aborted_ranges(batches, found.aborted)
        # KIP-932: records of aborted transactions are archived without delivery.
        records.archive_unseen(_overlaps(acquired, aborted))
        acquired = _without(acquired, aborted)
    whole = data[sent[0].position : sent[-1].position + sent[-1].size_bytes] if sent else b""
    acquired_records = tuple(AcquiredRecords(*entry) for entry in acquired)
    return ReadRecords(whole, acquired_records, len(whole), count)


def _aborted_ranges(batches: Sequence[Batch], transactions: Sequence[AbortedTransaction]) -> list[tuple[int, int]]:
    ranges = []
    for batch in batches:
        # In Kafka, control records are acquired, and clients skip them.
        if batch.is_control or not batch.is_transactional:
            continue
        for transaction in transactions:
            if (
                transaction.producer_id == batch.producer_id
                and transaction.first_offset <= batch.base_offset <= transaction.last_offset
            ):
                ranges.append((batch.base_offset, batch.next_offset - 1))
                break
    return ranges


def _overlaps(acquired: Sequence[Acquired], ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [
        (max(first, entry.first), min(last, entry.last))
        for entry in acquired
        for first, last in ranges
        if first <= entry.last and last >= entry.first
    ]


def _without(acquired: Sequence[Acquired], ranges: Sequence[tuple[int, int]]) -> list[Acquired]:
    """Return acquired records without some ranges, which are in order."""
    left = []
    for entry in acquired:
        begin = entry.first
        for first, last in ranges:
            if last < begin or first > entry.last:
                continue
            if first > begin:
                left.append(Acquired(begin, first - 1, entry.delivery_count))
            begin = last + 1
        if begin <= entry.last:
            left.append(Acquired(begin, entry.last, entry.delivery_count))
    return left
