"""Requests about the cluster: who answers which."""

from __future__ import annotations

from collections.abc import Callable

from groupcoord.broker.answering import answers
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

    @answers(DescribeCluster, may_pause=True)
    def describe_cluster(self, connection: Connection, request: DescribeCluster) -> WireResponse | None:
        """Describe the nodes."""
        return answer_describe_cluster(
            request,
            self._nodes.leadership,
            self._data.topics.cluster_id,
            self._permissions_of(connection),
            connection.nodes,
        )

    @answers(DescribeTopicPartitions, may_pause=True)
    def describe_topic_partitions(
        self, connection: Connection, request: DescribeTopicPartitions
    ) -> WireResponse | None:
        """Describe topics, a limited number of partitions at a time."""
        return answer_describe_topic_partitions(
            request, self._data.topics, self._nodes.leadership, self._permissions_of(connection)
        )

    @answers(DescribeLogDirs, may_pause=True)
    def describe_log_dirs(self, connection: Connection, request: DescribeLogDirs) -> WireResponse | None:
        """Tell where logs are, and how large."""
        return answer_describe_log_dirs(request, self._data, self._permissions_of(connection))

    @answers(ElectLeaders, may_pause=True)
    def elect_leaders(self, connection: Connection, request: ElectLeaders) -> WireResponse | None:
        """Let the preferred nodes lead again."""
        return answer_elect_leaders(request, self._nodes, self._data.topics, self._permissions_of(connection))

    @answers(AlterPartitionReassignments, may_pause=True)
    def alter_partition_reassignments(
        self, connection: Connection, request: AlterPartitionReassignments
    ) -> WireResponse | None:
        """Say where partitions shall be."""
        return answer_alter_partition_reassignments(
            request, self._data.topics, self._nodes.leadership.node_ids, self._permissions_of(connection)
        )

    @answers(ListPartitionReassignments, may_pause=True)
    def list_partition_reassignments(
        self, connection: Connection, request: ListPartitionReassignments
    ) -> WireResponse | None:
        """List partitions that are on their way."""
        return answer_list_partition_reassignments(request, self._permissions_of(connection))

    @answers(DescribeQuorum, may_pause=True)
    def describe_quorum(self, connection: Connection, request: DescribeQuorum) -> WireResponse | None:
        """Describe the quorum of controllers."""
        return answer_describe_quorum(
            request, self._node_of(connection), self._data.clock.now_ms(), self._permissions_of(connection)
        )

    @answers(DescribeClientQuotas, may_pause=True)
    def describe_client_quotas(self, connection: Connection, request: DescribeClientQuotas) -> WireResponse | None:
        """Tell quotas."""
        return answer_describe_client_quotas(request, self._permissions_of(connection))
