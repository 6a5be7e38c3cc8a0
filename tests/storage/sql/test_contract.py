"""Both databases keep the contract of log stores: at once and in batches, closed, abandoned, taken over, compacted."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from groupcoord import LogStore
from groupcoord.storage.stores import SqliteLogStore, SqlLogStore
from groupcoord.testing import CoordinatorMachine, check_log_store
from groupcoord.testing.contracts.faulty_store import Answer

from .batched import AnsweredStore
from .conftest import OpenLog


class Logs:
    """Opens new logs, and those again that were opened before."""

    def __init__(self, open_log: OpenLog) -> None:
        self._open_log = open_log
        self._numbers = itertools.count()
        self._opened: dict[int, int] = {}
        self._replaced: list[SqlLogStore] = []

    def new(self) -> SqlLogStore:
        return self._open(next(self._numbers))

    def close_and_open(self, store: SqlLogStore) -> SqlLogStore:
        """Return the same log, after an orderly end."""
        store.close()
        return self._open(self._opened.pop(id(store)))

    def take_over(self, store: SqlLogStore) -> SqlLogStore:
        """Return the same log for a second owner, while the first doesn't know it yet."""
        self.close()
        self._replaced.append(store)
        return self._open(self._opened[id(store)])

    def close(self) -> None:
        while self._replaced:
            self._replaced.pop().close()

    def _open(self, number: int) -> SqlLogStore:
        store = self._open_log(number)
        self._opened[id(store)] = number
        return store


@pytest.mark.parametrize("again", [Logs.close_and_open, Logs.take_over], ids=["closed", "taken over"])
def test_the_contract(open_log: OpenLog, again: Callable[[Logs, SqlLogStore], SqlLogStore]) -> None:
    """Acknowledged records are present, in order; compaction does not change the loaded state."""
    logs = Logs(open_log)
    check_log_store(logs.new, reopen=lambda store: again(logs, store), compact=SqlLogStore.compact)
    logs.close()


def test_the_contract_in_batches(open_log: OpenLog) -> None:
    """A store that writes what waits together answers in order, and has everything that it has answered for."""
    numbers = itertools.count()
    opened: dict[int, int] = {}

    def make() -> AnsweredStore:
        return reopened(next(numbers))

    def reopened(number: int) -> AnsweredStore:
        store = AnsweredStore(open_log(number, min_cleanable_ratio=1.0))  # not by itself
        opened[id(store)] = number
        return store

    def crash(store: AnsweredStore) -> AnsweredStore:
        store.abandon()
        return reopened(opened.pop(id(store)))

    check_log_store(make, reopen=crash, compact=AnsweredStore.compact, settle=AnsweredStore.settle)


class SqliteMachine(CoordinatorMachine):
    """Random lives over a store that batches; a killed process leaves the file as it is."""

    def make_log_store(self) -> LogStore:
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name, "groups.sqlite")
        return AnsweredStore(SqliteLogStore(self._path, lease_ms=1))

    def settle_log_store(self, log_store: LogStore) -> list[Answer]:
        """Return what came of an append."""
        assert isinstance(log_store, AnsweredStore)
        return log_store.settle()

    def crash_log_store(self, log_store: LogStore) -> LogStore:
        """Return what the next process opens; it compacts at once."""
        assert isinstance(log_store, AnsweredStore)
        log_store.abandon()
        store = AnsweredStore(SqliteLogStore(self._path, lease_ms=1))
        store.compact()
        return store

    def check_acknowledged(self) -> None:
        """Committed offsets that were deleted or replaced may be absent from a compacted log."""

    def teardown(self) -> None:
        """Check that everything comes to rest, which closes the store, and tidy up."""
        super().teardown()
        self._folder.cleanup()


class TestSqliteMachine(SqliteMachine.TestCase):  # type: ignore[name-defined,misc]
    """A few lives."""

    settings = settings(max_examples=15, stateful_step_count=20)
