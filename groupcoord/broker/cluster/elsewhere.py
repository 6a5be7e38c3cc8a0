"""What a node that is a process of its own has not: partitions that other processes lead, and how these are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.cluster.neighbours import Asker, Neighbours, Question
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.core.consumer_protocol import TopicPartition


class LedElsewhere:
    """Knows which partitions other processes lead, and asks each of these for what it leads.

    Args:
        neighbours: the processes.
        leadership: who leads what.
        topics: the topics that exist.
    """

    def __init__(self, neighbours: Neighbours, leadership: Leadership, topics: TopicRegistry) -> None:
        self._neighbours = neighbours
        self._leadership = leadership
        self._topics = topics

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return those of some partitions that others lead, and who. What is gone nobody does."""
        found = {}
        for partition in partitions:
            topic = self._topics.get(partition.topic)
            if topic is not None and topic.has_partition(partition.partition):
                node_id = self._leadership.leader(topic, partition.partition).node_id
                if node_id != self._neighbours.node_id:
                    found[partition] = node_id
        return found

    def ask(
        self,
        leaders: Mapping[TopicPartition, int],
        request_for: Callable[[Mapping[str, list[int]]], Any],
        take: Callable[[list[TopicPartition], Any], None],
    ) -> None:
        """Ask each of some leaders once.

        Args:
            leaders: the partitions, and who leads each.
            request_for: makes the request about partitions, given by topic.
            take: takes the partitions that a leader was asked about, and what it answers; None if it is gone.
        """
        for node_id in sorted(set(leaders.values())):
            led = [partition for partition, leader_id in leaders.items() if leader_id == node_id]
            topics: dict[str, list[int]] = {}
            for name, index in led:
                topics.setdefault(name, []).append(index)
            question = Question(request_for(topics), Asker(self._neighbours.node_id))
            self._neighbours.ask(node_id, question, partial(take, led))
