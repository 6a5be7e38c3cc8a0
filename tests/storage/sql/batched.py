"""Callbacks of a log store that answers later, without a coordinator."""

from __future__ import annotations

from groupcoord.log_store import LogStoreError, Ticket
from groupcoord.storage.stores import BatchingLogStore, SqlLogStore
from groupcoord.testing.contracts.faulty_store import Answer


class Answers:
    """Takes answers, and hands them out."""

    def __init__(self) -> None:
        self.taken: list[Answer] = []

    def appended(self, ticket: Ticket, base_offset: int) -> None:
        """Note it."""
        self.taken.append((ticket, base_offset))

    def append_failed(self, ticket: Ticket, error: LogStoreError) -> None:
        """Note it."""
        self.taken.append((ticket, error))

    def ownership_checked(self, error: LogStoreError | None = None) -> None:
        raise AssertionError(f"nobody has asked whose the log is: {error!r}")


class AnsweredStore(BatchingLogStore):
    """Batching store, with a collector of its answers."""

    def __init__(self, store: SqlLogStore) -> None:
        super().__init__(store)
        self.answers = Answers()
        self.answer_to(self.answers)

    def settle(self) -> list[Answer]:
        """Wait for all answers, and return them."""
        self.flush()
        found, self.answers.taken = self.answers.taken, []
        return found
