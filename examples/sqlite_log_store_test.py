"""Tests of a log store of one's own: the contract, and random lives of groups over it.

``check_log_store`` goes through the contract clause by clause. ``CoordinatorMachine`` then lets consumers come, commit,
die and come back over the store while appends fail and the process is killed, and compares what the coordinator knows
with what the store has kept. ``docs/testing.md`` shows what that looks like when it finds something.

    pip install '.[testing]' pytest
    pytest examples/sqlite_log_store_test.py
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from hypothesis import settings
from sqlite_log_store import SqliteLogStore

from groupcoord import LogStore
from groupcoord.testing import CoordinatorMachine, check_log_store


def test_the_store_keeps_the_contract(tmp_path: Path) -> None:
    """A store that was closed and opened again has everything that it had acknowledged."""
    paths = (tmp_path / f"{number}.sqlite" for number in itertools.count())

    def reopen(store: SqliteLogStore) -> SqliteLogStore:
        store.close()
        return SqliteLogStore(store.path)

    check_log_store(lambda: SqliteLogStore(next(paths)), reopen=reopen)


class SqliteMachine(CoordinatorMachine):
    """Random lives over a file; a killed process leaves it as it is, and the next one opens it again."""

    def make_log_store(self) -> LogStore:
        """Return a store on a new file."""
        self._folder = tempfile.TemporaryDirectory()
        return SqliteLogStore(Path(self._folder.name, "groups.sqlite"))

    def crash_log_store(self, log_store: LogStore) -> LogStore:
        """Return what the next process opens: without a transaction that was not committed."""
        assert isinstance(log_store, SqliteLogStore)
        log_store.kill()
        return SqliteLogStore(log_store.path)

    def teardown(self) -> None:
        """Check that everything comes to rest, which closes the store, and tidy up."""
        super().teardown()
        self._folder.cleanup()


class TestSqliteMachine(SqliteMachine.TestCase):  # type: ignore[name-defined,misc]
    """A few lives, the same each time; a nightly run can afford more, and others."""

    settings = settings(max_examples=25, stateful_step_count=20, deadline=None, derandomize=True)
