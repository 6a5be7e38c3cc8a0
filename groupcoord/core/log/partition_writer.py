"""How records get to the log of one partition: appends in flight, and the hard state that they become."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from groupcoord.core.groups.group import Group
from groupcoord.core.log.append_queue import AppendQueue
from groupcoord.core.log.hard_state import HardState
from groupcoord.core.log.records import CommitRecords, Record
from groupcoord.core.outputs import Append, Continuation, Effects
from groupcoord.core.replies import Reply
from groupcoord.errors import InvariantError


class PartitionWriter(AppendQueue[Append]):
    """Numbers appends, keeps them in order until they are answered, and applies what became durable.

    Attributes:
        hard: what the log says.
        last_durable: the number of the newest append that is durable.
        unseen: append number → groups that were made after the append before it, and that readers don't see yet.
    """

    def __init__(self, partition: int, effects: Effects, first_number: int) -> None:
        super().__init__(partition, first_number)
        self.hard = HardState()
        self.last_durable = first_number - 1
        self.unseen: dict[int, list[Group]] = {}
        self._pending = self.hard.offsets.pending
        self._effects = effects

    def begin(self, records: Sequence[Record], continuation: Continuation, held: Iterable[Reply] = ()) -> Append:
        """Ask for ``records`` to be made durable together; a commit is pending until then.

        Args:
            records: at least one.
            continuation: what follows when the log has answered.
            held: the answers that wait for it.

        Returns:
            The append, which may still hold further answers.
        """
        number = self.next_number
        self.next_number = number + 1
        if type(records) is CommitRecords:
            self._pending[number] = records
        append = Append(self._partition, number, records, continuation, [*held])
        self.in_flight.append(append)
        self._effects.appends.append(append)
        return append

    def acknowledge(self, number: int, base_offset: int) -> list[Append]:
        """Apply every append up to ``number``, whose first record lies at ``base_offset``.

        Returns:
            These appends, in order. Nothing for a late answer to an append from before the last load.

        Raises:
            StoreContractError: the append was already answered or never made, or an offset went back.
        """
        in_flight = self.in_flight
        if in_flight and in_flight[0].number == number and base_offset >= self.next_log_offset:  # nearly always
            answered = [in_flight[0]]
        else:
            answered, base_offset = self.answered(number, base_offset)
            if not answered:
                return answered
        hard, unseen = self.hard, self.unseen
        self.last_durable = number
        for entry in answered:
            in_flight.popleft()
            if unseen:
                unseen.pop(entry.number, None)
            records = entry.records
            if type(records) is CommitRecords:
                self._pending.pop(entry.number, None)
                hard.apply_commit(records, base_offset)
                base_offset += records.record_count
                continue
            hard.apply_all(records, base_offset)
            base_offset += len(records)
        self.next_log_offset = base_offset
        return answered

    def fail(self, number: int) -> Append | None:
        """Drop the oldest append, which was refused.

        Returns:
            The append. None for a late answer to an append from before the last load.

        Raises:
            StoreContractError: ``number`` isn't the oldest unanswered append.
        """
        entry = self.refused(number)
        if entry is not None:
            self._pending.pop(number, None)
        return entry

    def load(self, record: Record | CommitRecords, log_offset: int) -> None:
        """Apply a record that a load found in the log, or those of a commit that lie there from ``log_offset`` on.

        Raises:
            StoreContractError: it lies before one that came earlier.
        """
        self.check_loaded(log_offset)
        if type(record) is CommitRecords:  # as a rule
            self.hard.apply_commit(record, log_offset)
            self.next_log_offset = log_offset + record.record_count
        else:
            self.hard.apply(record, log_offset)
            self.next_log_offset = log_offset + 1

    def check(self) -> None:
        """Prove that appends in flight are in order, and that pending commits are among them.

        Raises:
            InvariantError: they are not.
        """
        super().check()
        self.hard.offsets.check()
        numbers = [entry.number for entry in self.in_flight]
        if not self.hard.offsets.pending.keys() <= set(numbers):
            raise InvariantError(f"pending commits {list(self.hard.offsets.pending)} but in flight are {numbers}")
