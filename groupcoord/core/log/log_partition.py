"""Log partition: outputs of handlers, the queue of appends in flight, their outcomes, and hard state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, ClassVar, NamedTuple

from groupcoord.core.fast_construct import maker
from groupcoord.core.groups.group import Group
from groupcoord.core.host_queries import Question
from groupcoord.core.log.records import (
    CLASSIC_GROUP_KEY,
    CommitRecords,
    GroupMetadataRecord,
    GroupRecord,
    GroupTombstone,
    LoggedGroupRecord,
    OffsetCommitRecord,
    OffsetTombstone,
    OpaqueRecord,
    Record,
    RecordsOfGroup,
    TransactionMarker,
    topic_of_record,
)
from groupcoord.core.messages import Reply, Response, Token
from groupcoord.core.offsets.cache import OffsetCache
from groupcoord.core.refusals import for_client, refused
from groupcoord.core.timers import Timer, TimerKey, TimerKind, TimerQueue
from groupcoord.errors import ErrorCode, InvariantError, LogStoreError, StoreContractError

_make_reply = maker(Reply)


class Continuation:
    """Consequence of an append apart from the responses that it holds (:attr:`Append.held`).

    It is small data, so that a core can be copied and printed. ``context`` is the log partition's
    :class:`~groupcoord.core.handler_context.HandlerContext`.
    """

    __slots__ = ()

    def on_durable(self, context: Any, now_ms: int) -> None:
        """Act on records that are in the log."""

    def on_refused(self, context: Any, error_code: ErrorCode, now_ms: int) -> None:
        """Handle an append that is not in the log; clients see ``error_code``."""

    def on_overdue(self, context: Any, error_code: ErrorCode, now_ms: int) -> None:
        """Handle an append without an outcome after ``offsets.commit.timeout.ms``."""

    def concerns(self, group: Group) -> bool:
        """Return whether the append makes this group exist."""
        return False

    def parked_tokens(self) -> list[Token]:
        return []


class Append(NamedTuple):
    """Append of ``records`` to a log partition, with its sequence number.

    Attributes:
        continuation: the consequence of the log store's answer.
        held: responses that are sent when the records are durable; after a failure or timeout, errors replace them.
    """

    partition: int
    number: int
    records: Sequence[Any]
    continuation: Continuation
    held: list[Reply]


_make_append = maker(Append)


class Effects:
    """Collects the outputs of handlers, in order."""

    # A fingerprint is taken between inputs, when only replies may be left.
    NOT_COUNTED = ("appends", "questions", "replies")

    __slots__ = ("appends", "questions", "replies")

    def __init__(self) -> None:
        # Deques, because the coordinator empties them while handlers add to them.
        self.questions: deque[Question] = deque()
        self.replies: list[Reply] = []
        self.appends: deque[Append] = deque()

    def reply(self, token: Token, response: Response | None) -> None:
        self.replies.append(_make_reply((token, response)))


AppendResult = int | LogStoreError
"""Result of an append: the offset of its first record, or the error."""


class AppendQueue:
    """Numbered appends in flight, in order, and their deadlines.

    A log store may refuse an append while earlier ones are unanswered. Its refusal then waits for its turn, and the
    append stays in flight: it can time out, and later ones go to the store. So answers are handled in the order of
    appends.

    Attributes:
        hard: the state that durable records add up to.
        next_log_offset: minimum offset of later records.
        refusals: number → error of a refused append that waits for its turn.
        timer: fires when an append may be overdue.
    """

    NOT_STATE: ClassVar[tuple[str, ...]] = ("_partition", "_timeout_ms")
    NOT_COUNTED = ("_deadlines", "_first_number", "next_log_offset", "timer")

    def __init__(
        self, partition: int, effects: Effects, timers: TimerQueue, timeout_ms: int, first_number: int, hard: Any
    ) -> None:
        self.hard = hard
        self.in_flight: deque[Append] = deque()
        self.next_log_offset = 0
        self.next_number = first_number
        self.refusals: dict[int, LogStoreError] = {}
        self.timer = Timer(TimerKey(TimerKind.APPEND, partition))
        self._deadlines: deque[tuple[int, int]] = deque()
        # Answers with lower numbers belong to an earlier load of the partition.
        self._first_number = first_number
        self._partition = partition
        self._effects = effects
        self._timers = timers
        self._timeout_ms = timeout_ms

    def begin(self, records: Sequence[Any], continuation: Continuation, held: Iterable[Reply] = ()) -> Append:
        """Ask for ``records`` to be made durable together."""
        number = self.next_number
        self.next_number = number + 1
        append = _make_append((self._partition, number, records, continuation, [*held]))
        self.in_flight.append(append)
        # The coordinator passes it to the log store after this input.
        self._effects.appends.append(append)
        return append

    def keeps(self, number: int, refusal: LogStoreError) -> bool:
        """Keep a refusal until its turn; return False if it is its turn now."""
        if not self.in_flight or self.in_flight[0].number >= number:
            return False
        self.refusals[number] = refusal
        return True

    def in_turn(self, number: int, answer: AppendResult) -> list[tuple[int, AppendResult]]:
        """Return the results in turn that an answer leads to, where refusals wait.

        Raises:
            StoreContractError: this append was refused before.
        """
        if number in self.refusals:
            raise StoreContractError(f"log partition {self._partition}: append {number} is answered twice")
        results: list[tuple[int, AppendResult]] = [(number, answer)]
        # An acknowledgement is cumulative, but does not cover refused appends.
        # A refusal waits, so the queue is not empty; a number that was never used fails later.
        if not isinstance(answer, LogStoreError) and number <= self.in_flight[-1].number:
            earlier = list(takewhile(lambda entry: entry.number < number, self.in_flight))
            # Backwards, because only the offset of the last append is known.
            for entry in reversed(earlier):
                refusal = self.refusals.get(entry.number)
                # Acknowledged appends lie back to back in the log; a refused one takes no offsets.
                answer -= len(entry.records) if refusal is None else 0
                results.append((entry.number, answer if refusal is None else refusal))
            results.reverse()
        # Their turn has come: nothing before them is unanswered.
        while (number := number + 1) in self.refusals:
            results.append((number, self.refusals[number]))
        return results

    def acknowledge(self, number: int, base_offset: int) -> list[Append]:
        """Apply and return every append up to ``number``; otherwise as :meth:`answered`."""
        answered, base_offset = self.answered(number, base_offset)
        for entry in answered:
            self.in_flight.popleft()
            for record in entry.records:
                self.hard.apply(record, base_offset)
                base_offset += 1
            self.next_log_offset = base_offset
        return answered

    def answered(self, number: int, base_offset: int) -> tuple[list[Append], int]:
        """Return every append up to ``number`` (at ``base_offset``), and the offset of the first record.

        They stay in flight.

        Raises:
            StoreContractError: the append was already answered or never made, or an offset went back.
        """
        # A late answer to an append from before the last load.
        if number < self._first_number:
            return [], base_offset
        answered = list(takewhile(lambda entry: entry.number <= number, self.in_flight))
        if not answered or answered[-1].number != number:
            raise StoreContractError(f"log partition {self._partition}: append {number} is not in flight")
        for entry in answered[:-1]:
            # The store names the last append's offset; earlier ones lie before it.
            base_offset -= len(entry.records)
        # A store that goes back has lost acknowledged records.
        if base_offset < self.next_log_offset:
            raise StoreContractError(
                f"log partition {self._partition}: append {number} was acknowledged at offset {base_offset}, "
                f"but the log already reached {self.next_log_offset}"
            )
        return answered, base_offset

    def refused(self, number: int) -> Append | None:
        """Remove and return the oldest append, which was refused.

        Raises:
            StoreContractError: ``number`` is not the oldest unanswered append.
        """
        if number < self._first_number:
            return None
        if not self.in_flight or self.in_flight[0].number != number:
            raise StoreContractError(f"log partition {self._partition}: append {number} failed out of turn")
        # Present if the refusal has waited for this turn.
        self.refusals.pop(number, None)
        return self.in_flight.popleft()

    def check(self) -> None:
        """Raise InvariantError unless appends are in order, and waiting refusals have earlier appends."""
        numbers = [entry.number for entry in self.in_flight]
        if numbers != sorted(set(numbers)) or not self.refusals.keys() <= set(numbers[1:]):
            raise InvariantError(f"appends {numbers} are in flight, refusals wait for {list(self.refusals)}")

    def load(self, record: Any, log_offset: int) -> None:
        """Apply a record of the log; raise StoreContractError if its offset lies before an earlier one."""
        if log_offset < self.next_log_offset:
            raise StoreContractError(
                f"log partition {self._partition}: record at offset {log_offset} after {self.next_log_offset - 1}"
            )
        self.hard.apply(record, log_offset)
        # As a rule the records of a commit are loaded together.
        self.next_log_offset = log_offset + (record.record_count if type(record) is CommitRecords else 1)

    # ------------------------------------------------------------ deadlines

    def wait_for(self, number: int, now_ms: int) -> None:
        """Register an append that is answered later."""
        # Keeps the queue short while no timer fires.
        self._drop_answered()
        deadline_ms = now_ms + self._timeout_ms
        # All have the same timeout, so deadlines are in the order of appends.
        self._deadlines.append((number, deadline_ms))
        # One timer for all: appends answered meanwhile are skipped when it fires.
        if self.timer.deadline_ms is None:
            self._timers.arm(self.timer, deadline_ms)

    def take_overdue(self, now_ms: int) -> list[Append]:
        """Return the appends that are overdue since the last call, oldest first."""
        self._drop_answered()
        overdue = []
        while self._deadlines and self._deadlines[0][1] <= now_ms:
            number, _ = self._deadlines.popleft()
            # Appends in flight have consecutive numbers.
            overdue.append(self.in_flight[number - self.in_flight[0].number])
        if self._deadlines:
            self._timers.arm(self.timer, self._deadlines[0][1])
        return overdue

    def _drop_answered(self) -> None:
        # Answers come in order, so every append before the oldest one is answered.
        oldest = self.in_flight[0].number if self.in_flight else self.next_number
        while self._deadlines and self._deadlines[0][0] < oldest:
            self._deadlines.popleft()


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


class PartitionWriter(AppendQueue):
    """Append queue of a log partition that applies durable appends to hard state.

    Attributes:
        last_durable: number of the last durable append.
        unseen: append number → groups added since the append before, which readers don't see yet.
    """

    NOT_STATE = ("_pending",)  # of the offsets

    hard: HardState

    def __init__(
        self, partition: int, effects: Effects, timers: TimerQueue, timeout_ms: int, first_number: int
    ) -> None:
        super().__init__(partition, effects, timers, timeout_ms, first_number, HardState())
        self.last_durable = first_number - 1
        self.unseen: dict[int, list[Group]] = {}
        self._pending = self.hard.offsets.pending

    def acknowledge(self, number: int, base_offset: int) -> list[Append]:
        in_flight = self.in_flight
        if in_flight and in_flight[0].number == number and base_offset >= self.next_log_offset:  # nearly always
            answered = [in_flight[0]]
        else:
            # Seldom: cumulative, late and invalid answers.
            answered, base_offset = self.answered(number, base_offset)
            if not answered:
                return answered
        # Applied before the responses leave, so that readers see what was acknowledged.
        hard, unseen = self.hard, self.unseen
        self.last_durable = number
        for entry in answered:
            in_flight.popleft()
            if unseen:
                # From here on readers see the groups that were added before this append.
                unseen.pop(entry.number, None)
            records = entry.records
            if type(records) is CommitRecords:
                self._pending.pop(entry.number, None)
                hard.apply_commit(records, base_offset)
                base_offset += records.record_count
                continue
            hard.apply_all(records, base_offset)
            # Other records, such as control records, may lie between appends, never inside one.
            base_offset += len(records)
        self.next_log_offset = base_offset
        return answered

    def check(self) -> None:
        super().check()
        self.hard.offsets.check()
        numbers = [entry.number for entry in self.in_flight]
        if not self.hard.offsets.pending.keys() <= set(numbers):
            raise InvariantError(f"pending commits {list(self.hard.offsets.pending)} but in flight are {numbers}")


class LogPartition:
    """Base of the log partitions that a coordinator serves: handles the outcomes of appends.

    Attributes:
        index: the number of the log partition.
        writer: its appends without an outcome.
    """

    index: int
    writer: AppendQueue
    _context: Any  # for continuations
    _effects: Effects

    def replay(self, log_offset: int, record: Any) -> None:
        self.writer.load(record, log_offset)

    def appended(self, number: int, base_offset: int, now_ms: int) -> None:
        """Handle that the appends up to ``number`` are durable; its first record lies at ``base_offset``."""
        for append in self.writer.acknowledge(number, base_offset):
            # The records are applied before their answers leave: a marker's offsets show with it (KAFKA-17507).
            self._effects.replies += append.held
            # After the replies, because the requests that it resumes came later.
            append.continuation.on_durable(self._context, now_ms)

    def append_failed(self, number: int, error_code: ErrorCode, now_ms: int) -> None:
        """Handle the refusal of append ``number``, which must be the oldest in flight."""
        # None for a refusal of an append from before the last load.
        append = self.writer.refused(number)
        if append is not None:
            self.revert(number, for_client(error_code), now_ms)
            self.refuse_held(append, error_code)
            append.continuation.on_refused(self._context, for_client(error_code), now_ms)

    def revert(self, number: int, error_code: ErrorCode, now_ms: int) -> None:
        """Revert soft state that belongs to no durable append, after append ``number`` was refused."""

    def on_append_timer(self, key: TimerKey, now_ms: int) -> None:
        error_code = ErrorCode.REQUEST_TIMED_OUT
        for append in self.writer.take_overdue(now_ms):
            # Clients see COORDINATOR_NOT_AVAILABLE, as for any failed append, though the records may still land.
            self.refuse_held(append, error_code)
            append.continuation.on_overdue(self._context, for_client(error_code), now_ms)

    def refuse_held(self, append: Append, append_error: ErrorCode) -> None:
        self._effects.replies += [refused(reply, append_error) for reply in append.held]
        # A late acknowledgement must not answer a second time.
        append.held.clear()
