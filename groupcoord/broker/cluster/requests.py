"""Requests about the cluster: who answers which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groupcoord.broker.cluster.administration import (
    answer_alter_partition_reassignments,
    answer_describe_client_quotas,
    answer_describe_cluster,
    answer_describe_quorum,
    answer_elect_leaders,
    answer_list_partition_reassignments,
)
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.connection import Connection
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.descriptions import answer_describe_log_dirs, answer_describe_topic_partitions
from groupcoord.core.front.authorization import Permissions
from groupcoord.core.messages import Node
from groupcoord.wire import WireResponse
from groupcoord.wire.cluster_messages import (
    AlterPartitionReassignments,
    DescribeClientQuotas,
    DescribeCluster,
    DescribeLogDirs,
    DescribeQuorum,
    DescribeTopicPartitions,
    ElectLeaders,
    ListPartitionReassignments,
)

CLUSTER_REQUESTS = (
    AlterPartitionReassignments,
    DescribeClientQuotas,
    DescribeCluster,
    DescribeLogDirs,
    DescribeQuorum,
    DescribeTopicPartitions,
    ElectLeaders,
    ListPartitionReassignments,
)
"""These change nothing, or one thing after the other, so they can be answered in portions."""


class ClusterRequests:
    """Answers what administrators ask of the cluster.

    Args:
        data: the topics and what they hold.
        nodes: the nodes, and who leads what.
        node_of: returns the node as a connection's client is told of it.
        permissions_of: returns what a connection's client may do.
    """

    def __init__(
        self,
        data: TopicData,
        nodes: Nodes,
        node_of: Callable[[Connection], Node],
        permissions_of: Callable[[Connection], Permissions],
    ) -> None:
        self._data = data
        self._nodes = nodes
        self._node_of = node_of
        self._permissions_of = permissions_of

    def handlers(self) -> dict[type, Callable[[Connection, Any], WireResponse | None]]:
        """Return what answers each request."""
        return dict.fromkeys(CLUSTER_REQUESTS, self._answer)

    def _answer(self, connection: Connection, request: Any) -> WireResponse | None:
        permissions, topics, nodes = self._permissions_of(connection), self._data.topics, self._nodes
        leadership = nodes.leadership
        match request:
            case DescribeCluster():
                return answer_describe_cluster(request, leadership, topics.cluster_id, permissions, connection.nodes)
            case DescribeTopicPartitions():
                return answer_describe_topic_partitions(request, topics, leadership, permissions)
            case DescribeLogDirs():
                return answer_describe_log_dirs(request, self._data, permissions)
            case ElectLeaders():
                return answer_elect_leaders(request, nodes, topics, permissions)
            case AlterPartitionReassignments():
                return answer_alter_partition_reassignments(request, topics, leadership.node_ids, permissions)
            case ListPartitionReassignments():
                return answer_list_partition_reassignments(request, permissions)
            case DescribeQuorum():
                return answer_describe_quorum(
                    request, self._node_of(connection), self._data.clock.now_ms(), permissions
                )
        return answer_describe_client_quotas(request, permissions)
