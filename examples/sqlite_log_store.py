"""A log store of one's own: everything durable in one SQLite file.

A log store has two methods. This one keeps the coordinator's records as rows; one append is one transaction, so its
records are there together or not at all. The program runs a group, is "killed" (it never says goodbye), opens the
file again and finds the group and its offsets where they were. A ready store over SQLite, which compacts and has one
owner at a time, is in ``groupcoord.storage.stores``.

    pip install .
    python examples/sqlite_log_store.py [FILE]
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from groupcoord import Config, GroupCoordinator, LogRecord, Ticket
from groupcoord.log_store import RecordTooLargeError, StorageError
from groupcoord.messages import (
    DescribeGroups,
    GroupToFetch,
    JoinGroup,
    JoinProtocol,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    SyncAssignment,
    SyncGroup,
    TopicToCommit,
)

SCHEMA = """
CREATE TABLE IF NOT EXISTS log (
    log_partition INTEGER, log_offset INTEGER, timestamp_ms INTEGER, key BLOB NOT NULL, value BLOB,
    producer_id INTEGER, producer_epoch INTEGER, is_control INTEGER,
    PRIMARY KEY (log_partition, log_offset)
) WITHOUT ROWID
"""


class SqliteLogStore:
    """Keeps the records of ``__consumer_offsets`` in one SQLite file.

    Args:
        path: the file; created if need be.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._database = sqlite3.connect(path)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(SCHEMA)

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int:
        """Write ``records`` in one transaction; the answer is given at once, so the ticket isn't needed.

        Raises:
            RecordTooLargeError: a record has no bytes in Kafka's format; nothing was written.
            StorageError: SQLite refused, and has rolled back.
        """
        try:
            rows = [(record.timestamp_ms, *record.encoded(), *origin_of(record)) for record in records]
        except ValueError as error:
            raise RecordTooLargeError(str(error)) from error
        try:
            with self._database as database:  # commits, or rolls back when anything in here raises
                database.execute("BEGIN IMMEDIATE")
                return self._insert(partition, rows)
        except sqlite3.Error as error:
            raise StorageError(str(error)) from error

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Return the records of a log partition in the order in which they were appended.

        Raises:
            StorageError: SQLite can't read the file.
        """
        columns = "log_offset, timestamp_ms, key, value, producer_id, producer_epoch, is_control"
        query = f"SELECT {columns} FROM log WHERE log_partition = ? ORDER BY log_offset"
        try:
            for offset, timestamp_ms, key, value, producer_id, epoch, is_control in self._database.execute(
                query, (partition,)
            ):
                yield LogRecord.from_bytes(
                    key,
                    value,
                    offset=offset,
                    timestamp_ms=timestamp_ms,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    is_control=bool(is_control),
                )
        except sqlite3.Error as error:
            raise StorageError(str(error)) from error

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def kill(self) -> None:
        """Let go of the file as a killed process does: what was not committed is rolled back."""
        self._database.close()

    def _insert(self, partition: int, rows: list[tuple[object, ...]]) -> int:
        """Put rows behind those of a log partition; return the offset of the first."""
        query = "SELECT coalesce(max(log_offset) + 1, 0) FROM log WHERE log_partition = ?"
        base_offset: int = self._database.execute(query, (partition,)).fetchone()[0]
        placed = [(partition, offset, *row) for offset, row in enumerate(rows, base_offset)]
        self._database.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?)", placed)
        return base_offset


def origin_of(record: LogRecord) -> tuple[int, int, bool]:
    """Return what says where a record comes from, apart from its key and value."""
    return record.producer_id, record.producer_epoch, record.is_control


# ---------------------------------------------------------------- a program that uses it


def start(path: Path) -> GroupCoordinator:
    """Return a coordinator over the file, with everything loaded that is in it."""
    config = Config(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=4)
    coordinator = GroupCoordinator(config=config, log_store=SqliteLogStore(path))
    coordinator.load_all()
    return coordinator


def first_life(path: Path) -> None:
    """A member joins, is given two partitions, and commits."""
    coordinator = start(path)
    protocols = (JoinProtocol("range", b""),)
    coordinator.submit(JoinGroup("billing", protocols=protocols, client_id="worker", requires_known_member_id=False))
    coordinator.tick()  # the initial rebalance delay, here 0 ms, is over
    (joined,) = (reply.response for reply in coordinator.take_replies())
    shares = (SyncAssignment(joined.member_id, b"orders 0 1"),)
    synced = coordinator.call(SyncGroup("billing", joined.generation_id, joined.member_id, assignments=shares))
    offsets = (OffsetToCommit(0, 42), OffsetToCommit(1, 1337, committed_metadata="half way"))
    coordinator.call(
        OffsetCommit("billing", (TopicToCommit("orders", offsets),), joined.generation_id, joined.member_id)
    )
    print(f"before: generation {joined.generation_id}, assignment {synced.assignment.decode()!r}, offsets 42 and 1337")


def second_life(path: Path) -> None:
    """A new process reads the file: the group is stable, the member has its assignment, the offsets are there."""
    coordinator = start(path)
    (group,) = coordinator.call(DescribeGroups(("billing",))).groups
    (member,) = group.members
    print(f"after: {group.group_state}, {member.client_id} has {member.member_assignment.decode()!r}")
    (fetched,) = coordinator.call(OffsetFetch((GroupToFetch("billing"),))).groups
    for topic in fetched.topics:
        for offset in topic.partitions:
            print(
                f"after: {topic.name}-{offset.partition_index} at {offset.committed_offset} {offset.metadata}".rstrip()
            )
    coordinator.check()


def main() -> None:
    """Live twice over one file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder, "groups.sqlite")
        first_life(path)
        second_life(path)


if __name__ == "__main__":
    main()
