"""Partitions of a topic, as records and messages of groups name them."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID


class TopicPartitions(NamedTuple):
    """Partitions of one topic: in a target assignment, a heartbeat or its answer.

    Attributes:
        topic_id: the topic.
        partitions: their numbers, as the assignor gave them.
    """

    topic_id: UUID
    partitions: tuple[int, ...]
