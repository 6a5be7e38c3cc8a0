"""The form that many answers share: topics by name, and in each what became of its partitions."""

from collections.abc import Sequence
from typing import Any, Protocol

from groupcoord.wire.pacing import paced
from groupcoord.wire.schema import Values


class _Partition(Protocol):
    def _asdict(self) -> dict[str, Any]: ...


class TopicOfPartitions(Protocol):
    """What a response has for a topic."""

    @property
    def name(self) -> str | None:
        """The topic's name; None where topics are named by id, which these answers never do."""

    @property
    def partitions(self) -> Sequence[_Partition]:
        """One named tuple each, with fields as the schema calls them."""


def topic_values(topics: Sequence[TopicOfPartitions]) -> list[Values]:
    """Return the values of topics as schemas call them: ``name`` and ``partitions``."""
    return [
        {"name": topic.name, "partitions": [partition._asdict() for partition in paced(topic.partitions)]}
        for topic in paced(topics)
    ]
