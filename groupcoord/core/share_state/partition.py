"""Log partition of ``__share_group_state``: handling of requests, and appends and replay of its records.

Rules, their order and messages are those of ``ShareCoordinatorShard`` of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast
from uuid import UUID

from attrs import evolve

from groupcoord.config import Config
from groupcoord.core.fast_construct import define
from groupcoord.core.log.log_partition import AppendQueue, Continuation, Effects, LogPartition
from groupcoord.core.messages import Reply, Token
from groupcoord.core.messages.request import RefusedError
from groupcoord.core.messages.share_state import (
    ReadStateResult,
    ShareStateRequest,
    ShareStateResponse,
    StateRequest,
    StateResult,
    StateSummary,
    StateToDelete,
    StateToInitialize,
    StateToRead,
    StateToWrite,
    state_message,
)
from groupcoord.core.refusals import for_client
from groupcoord.core.share_state.records import (
    NO_START_OFFSET,
    UNKNOWN_COUNT,
    SharePartitionKey,
    ShareSnapshot,
    ShareState,
    ShareStateRecord,
    ShareStates,
    ShareTombstone,
    ShareUpdate,
    StateBatch,
    merge_batches,
)
from groupcoord.core.timers import TimerQueue
from groupcoord.errors import ErrorCode, InvariantError

StateEntry = StateToInitialize | StateToRead | StateToWrite | StateToDelete
AnyResult = StateResult | ReadStateResult | StateSummary
HasPartition = Callable[[SharePartitionKey], bool]
"""Returns whether a topic has a partition."""

BATCHES_MAX = 10_000
"""Maximum number of batches of a share-partition: the most records that can be locked in one."""

OVERDUE = for_client(ErrorCode.REQUEST_TIMED_OUT)
"""Error of requests that waited for the log too long."""

SNAPSHOTS_AT_ONCE = 100
"""Maximum number of rewritten snapshots per append."""

_NEGATIVE_PARTITION = "The partition id cannot be a negative number."
_NEGATIVE_LEADER_EPOCH = "The leader epoch cannot be a negative number."
_NEGATIVE_STATE_EPOCH = "The state epoch cannot be a negative number."
_UNINITIALIZED = "{} operation on uninitialized share partition not allowed."


class StateQuestion(NamedTuple):
    """Request about one share-partition.

    Attributes:
        entry: the entry of the request.
        refusal: the class of its results.
        token: returned with the result.
    """

    key: SharePartitionKey
    entry: StateEntry
    refusal: type[AnyResult]
    token: Token

    def refuse(self, error_code: ErrorCode, message: str | None) -> AnyResult:
        return self.refusal(self.key.partition, error_code, message)


@define(eq=False)
class WhenStateWritten(Continuation):
    """Records of these share-partitions in flight."""

    keys: tuple[SharePartitionKey, ...]

    def on_durable(self, context: StatePartition, now_ms: int) -> None:
        context.go_on(self.keys, now_ms)

    def on_refused(self, context: StatePartition, error_code: ErrorCode, now_ms: int) -> None:
        context.go_on(self.keys, now_ms)

    def on_overdue(self, context: StatePartition, error_code: ErrorCode, now_ms: int) -> None:
        context.refuse_later(self.keys)


def _check_size(known: tuple[StateBatch, ...], entry: StateToWrite) -> None:
    # A changed batch adds at most two: itself, and the rest of one that it splits. The exact number is costly.
    if len(known) + 2 * len(entry.state_batches) > BATCHES_MAX:
        start_offset = entry.start_offset
        if (
            len(entry.state_batches) > BATCHES_MAX
            or len(merge_batches(known, entry.state_batches, start_offset)) > BATCHES_MAX
        ):
            raise RefusedError(ErrorCode.INVALID_REQUEST, "The share-partition would have too many batches.")


class StatePartition(LogPartition):
    """States of one log partition; outputs go to ``effects``.

    Attributes:
        pruned_offset: offset before which the log was deleted, or is being deleted.
    """

    def __init__(
        self,
        index: int,
        *,
        config: Config,
        effects: Effects,
        timers: TimerQueue,
        has_partition: HasPartition,
        first_append: int = 0,
    ) -> None:
        self.index = index
        self.hard = ShareStates()
        timeout_ms = config.share_coordinator_write_timeout_ms
        self.writer = AppendQueue(index, effects, timers, timeout_ms, first_append, self.hard)
        self.pruned_offset = 0
        self._config = config
        self._context = self
        self._effects = effects
        self._timers = timers
        self._has_partition = has_partition
        self._waiting: dict[SharePartitionKey, deque[StateQuestion]] = {}  # for each with an append in flight
        self._forgotten: set[SharePartitionKey] = set()  # to delete after the append in flight
        self._overdue: set[SharePartitionKey] = set()  # with overdue appends

    # ------------------------------------------------------------ questions

    def ask(self, question: StateQuestion, now_ms: int) -> None:
        # One append in flight for each share-partition, so that it builds on durable state. Summaries read the durable
        # state.
        if question.key in self._waiting and question.refusal is not StateSummary:
            # Behind an overdue append it would only time out as well.
            if question.key in self._overdue:
                self._refuse_question(question, OVERDUE)
            else:
                self._waiting[question.key].append(question)
            return
        try:
            record, result = self._draft(question, now_ms)
        except RefusedError as error:
            self._refuse_question(question, error.error_code, error.message)
            return
        if record is None:
            self._effects.reply(question.token, result)
        else:
            self._append((record,), (question.key,), (Reply(question.token, result),))

    def _append(
        self, records: Sequence[ShareStateRecord], keys: tuple[SharePartitionKey, ...], held: Iterable[Reply] = ()
    ) -> None:
        self.writer.begin(records, WhenStateWritten(keys), held)
        for key in keys:
            self._waiting[key] = deque()

    def _draft(self, question: StateQuestion, now_ms: int) -> tuple[ShareStateRecord | None, Any]:
        key, entry = question.key, question.entry
        # Before the entry's own checks, as in Kafka.
        if key.partition < 0:
            raise RefusedError(ErrorCode.INVALID_REQUEST, _NEGATIVE_PARTITION)
        known = self.hard.states.get(key)
        match entry:
            case StateToInitialize():
                return self._initialize(key, entry, known, now_ms)
            case StateToWrite():
                return self._write(key, entry, known, now_ms)
            case StateToRead() if question.refusal is StateSummary:
                return None, self._summarize(key, known)
            case StateToRead():
                return self._read(key, entry, known, now_ms)
        # The other case is StateToDelete.
        self._check_topic(key)
        # Kafka answers NONE without a record where there is no state.
        return None if known is None else ShareTombstone(key), StateResult(key.partition, ErrorCode.NONE)

    def _check_topic(self, key: SharePartitionKey) -> None:
        if not self._has_partition(key):
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _initialize(
        self, key: SharePartitionKey, entry: StateToInitialize, known: ShareState | None, now_ms: int
    ) -> tuple[ShareStateRecord, AnyResult]:
        if entry.state_epoch < 0:
            raise RefusedError(ErrorCode.INVALID_REQUEST, _NEGATIVE_STATE_EPOCH)
        # An equal state epoch is allowed, and empties the state.
        if known is not None and entry.state_epoch < known.snapshot.state_epoch:
            raise RefusedError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_topic(key)
        # An initialization discards batches; the leader epoch starts again.
        snapshot = ShareSnapshot(
            key,
            0 if known is None else known.snapshot.snapshot_epoch + 1,
            entry.state_epoch,
            0,
            entry.start_offset,
            now_ms,
            now_ms,
            # Without a start offset the lag is unknown, too.
            UNKNOWN_COUNT if entry.start_offset == NO_START_OFFSET else 0,
            (),
        )
        return snapshot, StateResult(key.partition, ErrorCode.NONE)

    def _write(
        self, key: SharePartitionKey, entry: StateToWrite, known: ShareState | None, now_ms: int
    ) -> tuple[ShareStateRecord, AnyResult]:
        # Kafka's order: negative numbers, initialization, leader epoch, state epoch, topic.
        if entry.leader_epoch < 0:
            raise RefusedError(ErrorCode.INVALID_REQUEST, _NEGATIVE_LEADER_EPOCH)
        if entry.state_epoch < 0:
            raise RefusedError(ErrorCode.INVALID_REQUEST, _NEGATIVE_STATE_EPOCH)
        state = self._initialized(known, entry.leader_epoch, "Write")
        # A higher state epoch is accepted, but not stored.
        if entry.state_epoch < state.snapshot.state_epoch:
            raise RefusedError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_topic(key)
        if any(batch.first_offset > batch.last_offset for batch in entry.state_batches):
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
        _check_size(state.snapshot.state_batches, entry)
        # Unlike reads, writes keep the leader epoch.
        record = self._change(state, entry, state.snapshot.leader_epoch, now_ms)
        return record, StateResult(key.partition, ErrorCode.NONE)

    def _read(
        self, key: SharePartitionKey, entry: StateToRead, known: ShareState | None, now_ms: int
    ) -> tuple[ShareStateRecord | None, AnyResult]:
        if entry.leader_epoch < 0:
            raise RefusedError(ErrorCode.INVALID_REQUEST, _NEGATIVE_LEADER_EPOCH)
        state = self._initialized(known, entry.leader_epoch, "Read")
        self._check_topic(key)
        snapshot = state.snapshot
        result = ReadStateResult(
            key.partition,
            ErrorCode.NONE,
            None,
            snapshot.state_epoch,
            snapshot.start_offset,
            snapshot.state_batches,
        )
        # Only a new leader's read is written, which fences earlier leaders.
        if entry.leader_epoch == snapshot.leader_epoch:
            return None, result
        # Keeps start offset and batches: only the leader epoch changes.
        nothing = StateToWrite(key.partition, 0, 0, NO_START_OFFSET, (), snapshot.delivery_complete_count)
        return self._change(state, nothing, entry.leader_epoch, now_ms), result

    def _initialized(self, known: ShareState | None, leader_epoch: int, verb: str) -> ShareState:
        if known is None:
            raise RefusedError(ErrorCode.INVALID_REQUEST, _UNINITIALIZED.format(verb))
        # A leader that was replaced must not change the state any more.
        if leader_epoch < known.snapshot.leader_epoch:
            raise RefusedError(ErrorCode.FENCED_LEADER_EPOCH)
        return known

    def _summarize(self, key: SharePartitionKey, known: ShareState | None) -> StateSummary:
        self._check_topic(key)
        if known is None:
            # Unlike a read, a summary of an uninitialized share-partition succeeds.
            return StateSummary(key.partition, ErrorCode.NONE, start_offset=NO_START_OFFSET)
        snapshot = known.snapshot
        return StateSummary(
            key.partition,
            ErrorCode.NONE,
            None,
            snapshot.state_epoch,
            snapshot.leader_epoch,
            snapshot.start_offset,
            snapshot.delivery_complete_count,
        )

    def _change(self, state: ShareState, entry: StateToWrite, leader_epoch: int, now_ms: int) -> ShareStateRecord:
        start_offset, count = state.moved(entry.start_offset, entry.delivery_complete_count)
        known = state.snapshot
        # An update holds changes alone; a load needs those since the last snapshot.
        if state.update_count < self._config.share_coordinator_snapshot_update_records_per_snapshot:
            changed = merge_batches((), entry.state_batches, start_offset)
            return ShareUpdate(known.key, known.snapshot_epoch, leader_epoch, start_offset, count, changed)
        return ShareSnapshot(
            known.key,
            known.snapshot_epoch + 1,
            known.state_epoch,
            leader_epoch,
            start_offset,
            now_ms,
            now_ms,
            count,
            merge_batches(known.state_batches, entry.state_batches, start_offset),
        )

    # ------------------------------------------------------------ time, and topics

    def snapshot_cold(self, now_ms: int) -> None:
        """Rewrite old snapshots, so that the log before them can be deleted."""
        interval_ms = self._config.share_coordinator_cold_partition_snapshot_interval_ms
        snapshots = [state.snapshot for state in self.hard.states.values()]
        # All snapshots are rewrites already.
        if all(snapshot.create_time_ms != snapshot.write_time_ms for snapshot in snapshots):
            return
        cold = [
            # The create time stays, which marks the snapshot as a rewrite.
            evolve(snapshot, snapshot_epoch=snapshot.snapshot_epoch + 1, write_time_ms=now_ms)
            for snapshot in snapshots
            if snapshot.key not in self._waiting and now_ms - snapshot.write_time_ms >= interval_ms
        ]
        for start in range(0, len(cold), SNAPSHOTS_AT_ONCE):
            together = cold[start : start + SNAPSHOTS_AT_ONCE]
            self._append(together, tuple(snapshot.key for snapshot in together))

    def topic_deleted(self, topic_id: UUID) -> None:
        # A state that is being initialized is not durable yet.
        for key in [key for key in (*self.hard.states, *self._waiting) if key.topic_id == topic_id]:
            if key in self._waiting:
                self._forgotten.add(key)
            else:
                self._append((ShareTombstone(key),), (key,))

    def take_prunable(self) -> int | None:
        """Return the offset before which the log may be deleted, or None if it is as before."""
        offset = self.hard.redundant_offset
        if offset <= self.pruned_offset:
            return None
        self.pruned_offset = offset
        return offset

    # ------------------------------------------------------------ the log's answers

    def refuse_later(self, keys: Iterable[SharePartitionKey]) -> None:
        """Fail the requests that wait for an overdue append, and later ones until its answer."""
        for key in keys:
            waiting = self._waiting[key]
            while waiting:
                self._refuse_question(waiting.popleft(), OVERDUE)
            self._overdue.add(key)

    def _refuse_question(self, question: StateQuestion, error_code: ErrorCode, message: str | None = None) -> None:
        refused: Any = question.refuse(error_code, message or state_message(error_code))
        self._effects.reply(question.token, refused)

    def go_on(self, keys: Iterable[SharePartitionKey], now_ms: int) -> None:
        """Handle the requests that waited for an append with records of these share-partitions."""
        for key in keys:
            self._overdue.discard(key)
            waiting = self._waiting.pop(key)
            if key in self._forgotten:
                self._forgotten.discard(key)
                # The append may have been the tombstone, or was refused.
                if key in self.hard.states:
                    self._append((ShareTombstone(key),), (key,))
            # Until one of them begins the next append.
            while waiting and key not in self._waiting:
                self.ask(waiting.popleft(), now_ms)
            if waiting:
                self._waiting[key].extend(waiting)

    # ------------------------------------------------------------ life cycle

    def unload(self, error_code: ErrorCode) -> None:
        for append in self.writer.in_flight:
            # The record may be in the log all the same; the next load decides.
            self.refuse_held(append, error_code)
        for waiting in self._waiting.values():
            for question in waiting:
                self._refuse_question(question, error_code)
        self._waiting.clear()
        self._timers.cancel(self.writer.timer)

    def check(self) -> None:
        """Raise InvariantError unless waiting requests have an append in flight, and all batches are in order."""
        self.writer.check()
        in_flight = {record.key for append in self.writer.in_flight for record in append.records}
        if in_flight != self._waiting.keys():
            raise InvariantError(f"appends are in flight for {in_flight}, questions wait for {self._waiting.keys()}")
        for key, state in self.hard.states.items():
            batches = state.snapshot.state_batches
            if merge_batches((), batches, state.snapshot.start_offset) != batches:
                raise InvariantError(f"the batches of {key} are not in order: {batches}")


TopicIdPartition = tuple[UUID, int]


def part_of(request: ShareStateRequest, wanted: set[TopicIdPartition]) -> ShareStateRequest:
    whole = cast(Any, request)
    topics = [
        topic._replace(
            partitions=tuple([entry for entry in topic.partitions if (topic.topic_id, entry.partition) in wanted])
        )
        for topic in whole.topics
    ]
    return cast(ShareStateRequest, evolve(whole, topics=tuple([topic for topic in topics if topic.partitions])))


def results_of(response: ShareStateResponse) -> dict[TopicIdPartition, AnyResult]:
    return {(topic.topic_id, result.partition): result for topic in response.results for result in topic.partitions}


def answer_of(request: ShareStateRequest, results: Mapping[TopicIdPartition, AnyResult]) -> ShareStateResponse:
    form = cast(StateRequest[Any], request)
    topics = [
        form.TOPIC_RESULT(topic.topic_id, tuple([results[topic.topic_id, p.partition] for p in topic.partitions]))
        for topic in form.topics
    ]
    return cast(ShareStateResponse, form.RESPONSE(tuple(topics)))
