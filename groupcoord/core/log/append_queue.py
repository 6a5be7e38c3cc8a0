"""Outputs of handlers, the queue of appends in flight, and the writer that applies durable appends to hard state."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from groupcoord.core.fast_construct import maker
from groupcoord.core.groups.group import Group
from groupcoord.core.host_queries import Question
from groupcoord.core.log.hard_state import HardState
from groupcoord.core.log.records import CommitRecords, Record
from groupcoord.core.messages import Reply, Response, Token
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

    @property
    def suspended(self) -> Sequence[Group]:
        """Groups with requests and timers that wait for the log's answer."""
        return ()

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
    records: Sequence[Record]
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


class NumberedAppend(Protocol):
    """Records of one append to a log partition, with its sequence number."""

    @property
    def partition(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def records(self) -> Sequence[Any]: ...


A = TypeVar("A", bound=NumberedAppend)

AppendResult = int | LogStoreError
"""Result of an append: the offset of its first record, or the error."""


class AppendQueue(Generic[A]):
    """Numbered appends in flight, in order.

    A log store may refuse an append while earlier ones are unanswered. Its refusal then waits for its turn, and the
    append stays in flight: it can time out, and later ones go to the store. So answers are handled in the order of
    appends.

    Attributes:
        next_log_offset: minimum offset of later records.
        refusals: number → error of a refused append that waits for its turn.
    """

    NOT_STATE = ("_partition",)
    NOT_COUNTED = ("_first_number", "next_log_offset")

    def __init__(self, partition: int, first_number: int) -> None:
        self.in_flight: deque[A] = deque()
        self.next_log_offset = 0
        self.next_number = first_number
        self.refusals: dict[int, LogStoreError] = {}
        # Answers with lower numbers belong to an earlier load of the partition.
        self._first_number = first_number
        self._partition = partition

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

    def answered(self, number: int, base_offset: int) -> tuple[list[A], int]:
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

    def refused(self, number: int) -> A | None:
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

    def check_loaded(self, log_offset: int) -> None:
        """Raise StoreContractError if the offset of a loaded record lies before an earlier one."""
        if log_offset < self.next_log_offset:
            raise StoreContractError(
                f"log partition {self._partition}: record at offset {log_offset} after {self.next_log_offset - 1}"
            )


class PartitionWriter(AppendQueue[Append]):
    """Append queue of a log partition that applies durable appends to hard state.

    Attributes:
        last_durable: number of the last durable append.
        unseen: append number → groups added since the append before, which readers don't see yet.
    """

    NOT_STATE = ("_pending",)  # of the offsets

    def __init__(self, partition: int, effects: Effects, first_number: int) -> None:
        super().__init__(partition, first_number)
        self.hard = HardState()
        self.last_durable = first_number - 1
        self.unseen: dict[int, list[Group]] = {}
        self._pending = self.hard.offsets.pending
        self._effects = effects

    def begin(self, records: Sequence[Record], continuation: Continuation, held: Iterable[Reply] = ()) -> Append:
        """Ask for ``records`` to be made durable together."""
        number = self.next_number
        self.next_number = number + 1
        # A pending commit shields its partitions from expiry, and deletions cover it.
        if type(records) is CommitRecords:
            self._pending[number] = records
        append = _make_append((self._partition, number, records, continuation, [*held]))
        self.in_flight.append(append)
        # The coordinator passes it to the log store after this input.
        self._effects.appends.append(append)
        return append

    def acknowledge(self, number: int, base_offset: int) -> list[Append]:
        """Apply and return every append up to ``number``; otherwise as :meth:`answered`."""
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

    def fail(self, number: int) -> Append | None:
        entry = self.refused(number)
        if entry is not None:
            self._pending.pop(number, None)
        return entry

    def load(self, record: Record | CommitRecords, log_offset: int) -> None:
        self.check_loaded(log_offset)
        if type(record) is CommitRecords:  # as a rule
            self.hard.apply_commit(record, log_offset)
            self.next_log_offset = log_offset + record.record_count
        else:
            self.hard.apply(record, log_offset)
            self.next_log_offset = log_offset + 1

    def check(self) -> None:
        super().check()
        self.hard.offsets.check()
        numbers = [entry.number for entry in self.in_flight]
        if not self.hard.offsets.pending.keys() <= set(numbers):
            raise InvariantError(f"pending commits {list(self.hard.offsets.pending)} but in flight are {numbers}")
