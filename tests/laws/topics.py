"""The topics of a cluster, for random tests."""

from __future__ import annotations

from uuid import UUID


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
