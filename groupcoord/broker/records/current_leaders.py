"""Produce and Fetch tell a client that asked another node who leads a partition, and where that is (KIP-951)."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.core.messages import Node
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import (
    CurrentLeader,
    FetchedTopicData,
    FetchResponse,
    MetadataBroker,
    ProducedTopic,
    ProduceResponse,
)

MISDIRECTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class CurrentLeaders:
    """Adds to answers who leads what was asked in vain.

    Args:
        leadership: who leads what.
        data: the topics.
    """

    def __init__(self, leadership: Leadership, data: TopicData) -> None:
        self._leadership = leadership
        self._data = data

    def add_to_fetch(self, response: FetchResponse, told: Mapping[int, Node] | None) -> FetchResponse:
        """Return an answer to Fetch with the current leaders of what this node does not lead.

        Args:
            response: the answer.
            told: the addresses that the client is told, if these aren't the same for all.
        """
        found: dict[int, None] = {}
        topics = []
        for topic in response.topics:
            if any(partition.error_code in MISDIRECTED for partition in topic.partitions):
                partitions = tuple(
                    partition._replace(current_leader=self._leader(topic, partition.partition_index, found))
                    if partition.error_code in MISDIRECTED
                    else partition
                    for partition in topic.partitions
                )
                topics.append(topic._replace(partitions=partitions))
            else:
                topics.append(topic)
        if not found:
            return response
        return evolve(response, topics=tuple(topics), node_endpoints=self._endpoints(found, told))

    def add_to_produce(self, response: ProduceResponse, told: Mapping[int, Node] | None) -> ProduceResponse:
        """Return an answer to Produce with the current leaders of what this node does not lead."""
        found: dict[int, None] = {}
        topics = tuple(
            topic._replace(
                partitions=tuple(
                    partition._replace(current_leader=self._leader(topic, partition.partition_index, found))
                    if partition.error_code in MISDIRECTED
                    else partition
                    for partition in topic.partitions
                )
            )
            for topic in response.topics
        )
        return evolve(response, topics=topics, node_endpoints=self._endpoints(found, told)) if found else response

    def _leader(self, topic: FetchedTopicData | ProducedTopic, index: int, found: dict[int, None]) -> CurrentLeader:
        known = self._data.find(topic.name, topic.topic_id)
        if known is None:
            return CurrentLeader()
        leader = self._leadership.leader(known, index)
        found[leader.node_id] = None
        return CurrentLeader(*leader)

    def _endpoints(self, node_ids: dict[int, None], told: Mapping[int, Node] | None) -> tuple[MetadataBroker, ...]:
        return tuple(MetadataBroker(*node) for node in self._leadership.brokers(told) if node.node_id in node_ids)
