"""What a coordinator lives among, in random tests: the topics of a cluster, and a log that breaks in every way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from groupcoord.core.records import Record
from groupcoord.log_store import AppendTimedOutError, LogRecord, LogStore, StorageError, Ticket


class Topics:
    """Topics that come and go: each creation has a new id."""

    def __init__(self, **partition_counts: int) -> None:
        self.partition_counts: dict[str, int] = {}
        self.ids: dict[str, UUID] = {}
        self.gone: list[UUID] = []
        self._last_id = 0
        for name, count in partition_counts.items():
            self.create(name, count)

    def create(self, name: str, partition_count: int) -> None:
        """Create a topic."""
        self._last_id += 1
        self.partition_counts[name], self.ids[name] = partition_count, UUID(int=self._last_id)

    def delete(self, name: str) -> UUID:
        """Delete a topic and return the id that it had."""
        del self.partition_counts[name]
        self.gone.append(self.ids.pop(name))
        return self.gone[-1]

    def partition_count(self, name: str) -> int | None:
        """See :class:`groupcoord.TopicResolver`."""
        return self.partition_counts.get(name)

    def topic_id(self, name: str) -> UUID | None:
        """See :class:`groupcoord.TopicResolver`."""
        return self.ids.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        """See :class:`groupcoord.TopicResolver`."""
        return next((name for name, known in self.ids.items() if known == topic_id), None)


class Line:
    """The line between a coordinator and its log: it remembers what passes, and may break.

    Attributes:
        appended: every record that the coordinator asked the log to write, in order.
        loses_answer: the log writes the next append, and the coordinator never learns of it.
        breaks_after: the next read ends with an error after that many records.
    """

    def __init__(self, store: LogStore) -> None:
        self.store = store
        self.appended: list[Record] = []
        self.loses_answer = False
        self.breaks_after: int | None = None

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        """See :meth:`groupcoord.LogStore.append`."""
        self.appended += [entry.record for entry in records]
        base_offset = self.store.append(partition, ticket, records)
        if self.loses_answer and base_offset is not None:
            self.loses_answer = False
            raise AppendTimedOutError("no answer in time")
        return base_offset

    def read(self, partition: int) -> Iterator[LogRecord]:
        """See :meth:`groupcoord.LogStore.read`."""
        breaks_after, self.breaks_after = self.breaks_after, None
        for count, record in enumerate(self.store.read(partition)):
            if count == breaks_after:
                break
            yield record
        if breaks_after is not None:
            raise StorageError("the disk is broken")

    def mend(self) -> None:
        """Break no more."""
        self.loses_answer, self.breaks_after = False, None
