"""Log partition of ``__share_group_state``: handling of requests, and appends and replay of its records.

Rules, their order and messages are those of ``ShareCoordinatorShard`` of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast
from uuid import UUID

from attrs import evolve

from groupcoord.config import Config
from groupcoord.core.fast_construct import define
from groupcoord.core.log.append_queue import AppendQueue
from groupcoord.core.messages import Token
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


class StateAnswer(NamedTuple):
    """The result of a question."""

    token: Token
    result: AnyResult


@define(eq=False)
class StateAppend:
    """Append of ``records`` to a log partition, with its sequence number.

    Attributes:
        question: the request that waits for it, or None.
        keys: the share-partitions of the records.
    """

    partition: int
    number: int
    records: Sequence[ShareStateRecord]
    keys: tuple[SharePartitionKey, ...]
    question: StateQuestion | None = None
    result: AnyResult | None = None


class StateOutputs:
    """Outputs of handlers in order: results and appends."""

    def __init__(self) -> None:
        self.answers: list[StateAnswer] = []
        self.appends: deque[StateAppend] = deque()


def _check_size(known: tuple[StateBatch, ...], entry: StateToWrite) -> None:
    # A changed batch adds at most two: itself, and the rest of one that it splits. The exact number is costly.
    if len(known) + 2 * len(entry.state_batches) > BATCHES_MAX:
        start_offset = entry.start_offset
        if (
            len(entry.state_batches) > BATCHES_MAX
            or len(merge_batches(known, entry.state_batches, start_offset)) > BATCHES_MAX
        ):
            raise RefusedError(ErrorCode.INVALID_REQUEST, "The share-partition would have too many batches.")


class StatePartition:
    """States of one log partition; outputs go to ``outputs``.

    Attributes:
        pruned_offset: offset before which the log was deleted, or is being deleted.
        writer: appends in flight.
    """

    def __init__(
        self,
        index: int,
        *,
        config: Config,
        outputs: StateOutputs,
        has_partition: HasPartition,
        first_append: int = 0,
    ) -> None:
        self.index = index
        self.hard = ShareStates()
        self.writer: AppendQueue[StateAppend] = AppendQueue(index, first_append)
        self.pruned_offset = 0
        self._config = config
        self._outputs = outputs
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
            self._outputs.answers.append(StateAnswer(question.token, result))
        else:
            self._append((record,), (question.key,), question, result)

    def _append(
        self,
        records: Sequence[ShareStateRecord],
        keys: tuple[SharePartitionKey, ...],
        question: StateQuestion | None = None,
        result: AnyResult | None = None,
    ) -> None:
        number = self.writer.next_number
        self.writer.next_number += 1
        append = StateAppend(self.index, number, records, keys, question, result)
        self.writer.in_flight.append(append)
        self._outputs.appends.append(append)
        for key in keys:
            self._waiting[key] = deque()

    def _draft(self, question: StateQuestion, now_ms: int) -> tuple[ShareStateRecord | None, AnyResult]:
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
        told = known.snapshot
        return StateSummary(
            key.partition,
            ErrorCode.NONE,
            None,
            told.state_epoch,
            told.leader_epoch,
            told.start_offset,
            told.delivery_complete_count,
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

    def appended(self, number: int, base_offset: int, now_ms: int) -> None:
        """Handle durable appends up to ``number``; its first record lies at ``base_offset``."""
        answered, offset = self.writer.answered(number, base_offset)
        for append in answered:
            self.writer.in_flight.popleft()
            for record in append.records:
                self.hard.apply(record, offset)
                offset += 1
            self.writer.next_log_offset = offset
            # Snapshots and tombstones may have no request; an overdue request had its error.
            if append.question is not None and append.result is not None:
                self._outputs.answers.append(StateAnswer(append.question.token, append.result))
            self._go_on(append, now_ms)

    def append_failed(self, number: int, error_code: ErrorCode, now_ms: int) -> None:
        append = self.writer.refused(number)
        if append is not None:
            self._refuse(append, for_client(error_code))
            self._go_on(append, now_ms)

    def append_overdue(self, number: int) -> None:
        """Fail the requests that wait for append ``number``, which stays in flight, and later ones until its answer."""
        in_flight = self.writer.in_flight
        append = in_flight[number - in_flight[0].number]
        self._refuse(append, OVERDUE)
        # Its late answer must not be a second one.
        append.question = None
        for key in append.keys:
            waiting = self._waiting[key]
            while waiting:
                self._refuse_question(waiting.popleft(), OVERDUE)
            self._overdue.add(key)

    def _refuse(self, append: StateAppend, error_code: ErrorCode) -> None:
        if append.question is not None:
            self._refuse_question(append.question, error_code)

    def _refuse_question(self, question: StateQuestion, error_code: ErrorCode, message: str | None = None) -> None:
        refused = question.refuse(error_code, message or state_message(error_code))
        self._outputs.answers.append(StateAnswer(question.token, refused))

    def _go_on(self, append: StateAppend, now_ms: int) -> None:
        for key in append.keys:
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

    def replay(self, log_offset: int, record: Any) -> None:
        self.writer.check_loaded(log_offset)
        self.hard.apply(record, log_offset)
        self.writer.next_log_offset = log_offset + 1

    def unload(self, error_code: ErrorCode) -> None:
        for append in self.writer.in_flight:
            # The record may be in the log all the same; the next load decides.
            self._refuse(append, error_code)
        for waiting in self._waiting.values():
            for question in waiting:
                self._refuse_question(question, error_code)
        self._waiting.clear()

    def check(self) -> None:
        """Raise InvariantError unless waiting requests have an append in flight, and all batches are in order."""
        self.writer.check()
        in_flight = {key for append in self.writer.in_flight for key in append.keys}
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
