"""Appends to a log partition that the log store has not answered yet, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from groupcoord.errors import StoreContractError


class Appended(Protocol):
    """An append: records that go into the log together, under a number."""

    number: int
    records: Sequence[Any]


A = TypeVar("A", bound=Appended)


class AppendQueue(Generic[A]):
    """Numbers appends, and keeps them in order until they are answered.

    Args:
        partition: the log partition.
        first_number: of the first append; earlier ones were from before the last load.

    Attributes:
        in_flight: unanswered appends, oldest first.
        next_log_offset: every later record lies at or after it.
        next_number: of the next append.
    """

    def __init__(self, partition: int, first_number: int) -> None:
        self.in_flight: deque[A] = deque()
        self.next_log_offset = 0
        self.next_number = first_number
        self._first_number = first_number
        self._partition = partition

    def answered(self, number: int, base_offset: int) -> tuple[list[A], int]:
        """Return every append up to ``number``, whose first record lies at ``base_offset``, and where the first lies.

        They are in flight until each is taken out. Nothing for a late answer to an append from before the last load.

        Raises:
            StoreContractError: the append was already answered or never made, or an offset went back.
        """
        if number < self._first_number:
            return [], base_offset
        in_flight = self.in_flight
        if in_flight and in_flight[0].number == number:  # nearly always
            answered = [in_flight[0]]
        else:
            answered = [entry for entry in in_flight if entry.number <= number]
            if not answered or answered[-1].number != number:
                raise StoreContractError(f"log partition {self._partition}: append {number} is not in flight")
            for entry in answered[:-1]:
                base_offset -= len(entry.records)
        if base_offset < self.next_log_offset:
            raise StoreContractError(
                f"log partition {self._partition}: append {number} was acknowledged at offset {base_offset}, "
                f"but the log already reached {self.next_log_offset}"
            )
        return answered, base_offset

    def refused(self, number: int) -> A | None:
        """Take out the oldest append, which was refused.

        Returns:
            The append. None for a late answer to an append from before the last load.

        Raises:
            StoreContractError: ``number`` isn't the oldest unanswered append.
        """
        if number < self._first_number:
            return None
        if not self.in_flight or self.in_flight[0].number != number:
            raise StoreContractError(f"log partition {self._partition}: append {number} failed out of turn")
        return self.in_flight.popleft()

    def check_loaded(self, log_offset: int) -> None:
        """Check that a record which a load finds lies behind those that came earlier.

        Raises:
            StoreContractError: it doesn't.
        """
        if log_offset < self.next_log_offset:
            raise StoreContractError(
                f"log partition {self._partition}: record at offset {log_offset} after {self.next_log_offset - 1}"
            )
