"""Current leaders in the answers to Fetch, Produce, ShareFetch and ShareAcknowledge (KIP-951, KIP-932).

A client that asked a node that does not lead a partition, or asked with an old leader epoch, is told the leader, its
epoch and its address. Source: ``KafkaApis`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve

from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.core.messages import Node
from groupcoord.errors import ErrorCode
from groupcoord.wire.broker_messages import CurrentLeader, FetchResponse, MetadataBroker, ProduceResponse
from groupcoord.wire.share_messages import ShareAcknowledgeResponse, ShareFetchResponse

MISDIRECTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class CurrentLeaders:
    """Adds the current leader to each partition that failed because another node leads it, or with another epoch.

    Args:
        leadership: the leaders.
        data: the topics.
    """

    def __init__(self, leadership: Leadership, data: TopicData) -> None:
        self._leadership = leadership
        self._data = data

    def add_to_fetch(self, response: FetchResponse, told: Mapping[int, Node] | None) -> FetchResponse:
        """Return an answer to Fetch with current leaders.

        Args:
            response: the answer.
            told: the nodes' addresses for this client; None if they are the same for all.
        """
        topics, endpoints = self._with_leaders(response.topics, told)
        return response if topics is None else evolve(response, topics=topics, node_endpoints=endpoints)

    def add_to_produce(self, response: ProduceResponse, told: Mapping[int, Node] | None) -> ProduceResponse:
        """Return an answer to Produce with current leaders."""
        topics, endpoints = self._with_leaders(response.topics, told)
        return response if topics is None else evolve(response, topics=topics, node_endpoints=endpoints)

    def add_to_share_fetch(self, response: ShareFetchResponse, told: Mapping[int, Node] | None) -> ShareFetchResponse:
        """Return an answer to ShareFetch with current leaders."""
        topics, endpoints = self._with_leaders(response.responses, told)
        return response if topics is None else evolve(response, responses=topics, node_endpoints=endpoints)

    def add_to_share_acknowledge(
        self, response: ShareAcknowledgeResponse, told: Mapping[int, Node] | None
    ) -> ShareAcknowledgeResponse:
        """Return an answer to ShareAcknowledge with current leaders."""
        topics, endpoints = self._with_leaders(response.responses, told)
        return response if topics is None else evolve(response, responses=topics, node_endpoints=endpoints)

    def _with_leaders(
        self, topics: Iterable[Any], told: Mapping[int, Node] | None
    ) -> tuple[tuple[Any, ...] | None, tuple[MetadataBroker, ...]]:
        """Return topics with current leaders, and the addresses of these; None if no partition needs one."""
        leader_ids: set[int] = set()
        changed = []
        for topic in topics:
            if any(partition.error_code in MISDIRECTED for partition in topic.partitions):
                partitions = tuple(
                    partition._replace(current_leader=self._leader(topic, partition.partition_index, leader_ids))
                    if partition.error_code in MISDIRECTED
                    else partition
                    for partition in topic.partitions
                )
                changed.append(topic._replace(partitions=partitions))
            else:
                changed.append(topic)
        if not leader_ids:
            return None, ()
        brokers = (MetadataBroker(*node) for node in self._leadership.brokers(told) if node.node_id in leader_ids)
        return tuple(changed), tuple(brokers)

    def _leader(self, topic: Any, index: int, leader_ids: set[int]) -> CurrentLeader:
        known = self._data.find(getattr(topic, "name", None), topic.topic_id)
        if known is None:
            return CurrentLeader()
        leader = self._leadership.leader(known, index)
        leader_ids.add(leader.node_id)
        return CurrentLeader(*leader)
