"""Requests about the cluster: who answers which."""

from __future__ import annotations

from collections.abc import Callable

from groupcoord.broker.answering import answers
from groupcoord.broker.cluster.administration import (
    answer_alter_partition_reassignments,
    answer_alter_replica_log_dirs,
    answer_describe_cluster,
    answer_describe_log_dirs,
    answer_describe_quorum,
    answer_elect_leaders,
    answer_list_partition_reassignments,
    answer_membership,
)
from groupcoord.broker.cluster.features import answer_update_features
from groupcoord.broker.cluster.metadata import answer_describe_topic_partitions
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.configs.administered import Administered
from groupcoord.broker.configs.client_metrics import Telemetry
from groupcoord.broker.connection import Connection
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.work import Work
from groupcoord.core.messages import Node
from groupcoord.core.router.authorization import Permissions
from groupcoord.wire import WireResponse
from groupcoord.wire.cluster_messages import (
    AddRaftVoter,
    AlterPartitionReassignments,
    AlterReplicaLogDirs,
    DescribeCluster,
    DescribeLogDirs,
    DescribeQuorum,
    DescribeTopicPartitions,
    ElectLeaders,
    ListPartitionReassignments,
    MembershipRequest,
    RemoveRaftVoter,
    UnregisterBroker,
    UnregisterController,
    UpdateFeatures,
)
from groupcoord.wire.config_messages import (
    AlterClientQuotas,
    DescribeClientQuotas,
    GetTelemetrySubscriptions,
    PushTelemetry,
)


class ClusterRequests:
    """Answers what administrators ask of the cluster.

    Args:
        data: the topics and what they hold.
        nodes: the nodes, and who leads what.
        node_of: returns the node as a connection's client is told of it.
        permissions_of: returns what a connection's client may do.
        administered: what administrators have set.
    """

    def __init__(
        self,
        data: TopicData,
        nodes: Nodes,
        node_of: Callable[[Connection], Node],
        permissions_of: Callable[[Connection], Permissions],
        administered: Administered,
    ) -> None:
        self._administered = administered
        self._telemetry = Telemetry(administered.client_metrics, data.clock)
        self._data = data
        self._nodes = nodes
        self._node_of = node_of
        self._permissions_of = permissions_of

    @answers(DescribeCluster)
    def describe_cluster(self, connection: Connection, request: DescribeCluster) -> WireResponse | None:
        """Describe the nodes."""
        return answer_describe_cluster(
            request,
            self._nodes.leadership,
            self._data.topics.cluster_id,
            self._permissions_of(connection),
            connection.nodes,
        )

    @answers(DescribeTopicPartitions)
    def describe_topic_partitions(
        self, connection: Connection, request: DescribeTopicPartitions
    ) -> Work[WireResponse | None]:
        """Describe topics, a limited number of partitions at a time."""
        return answer_describe_topic_partitions(
            request, self._data.topics, self._nodes.leadership, self._permissions_of(connection)
        )

    @answers(DescribeLogDirs)
    def describe_log_dirs(self, connection: Connection, request: DescribeLogDirs) -> Work[WireResponse | None]:
        """Tell where logs are, and how large."""
        return answer_describe_log_dirs(request, self._data, self._permissions_of(connection))

    @answers(ElectLeaders)
    def elect_leaders(self, connection: Connection, request: ElectLeaders) -> Work[WireResponse | None]:
        """Let the preferred nodes lead again."""
        return answer_elect_leaders(request, self._nodes, self._data.topics, self._permissions_of(connection))

    @answers(AlterPartitionReassignments)
    def alter_partition_reassignments(
        self, connection: Connection, request: AlterPartitionReassignments
    ) -> Work[WireResponse | None]:
        """Say where partitions shall be."""
        return answer_alter_partition_reassignments(
            request, self._nodes, self._data.topics, self._permissions_of(connection)
        )

    @answers(ListPartitionReassignments)
    def list_partition_reassignments(
        self, connection: Connection, request: ListPartitionReassignments
    ) -> Work[WireResponse | None]:
        """List partitions that are on their way."""
        return answer_list_partition_reassignments(request, self._permissions_of(connection))

    @answers(DescribeQuorum)
    def describe_quorum(self, connection: Connection, request: DescribeQuorum) -> Work[WireResponse | None]:
        """Describe the quorum of controllers."""
        return answer_describe_quorum(
            request, self._node_of(connection), self._data.clock.now_ms(), self._permissions_of(connection)
        )

    @answers(AlterReplicaLogDirs)
    def alter_replica_log_dirs(self, connection: Connection, request: AlterReplicaLogDirs) -> Work[WireResponse | None]:
        """Say in which folder logs shall be."""
        return answer_alter_replica_log_dirs(request, self._data.topics, self._permissions_of(connection))

    @answers(UnregisterBroker, UnregisterController, AddRaftVoter, RemoveRaftVoter)
    def change_membership(self, connection: Connection, request: MembershipRequest) -> WireResponse | None:
        """Say who shall belong to the cluster."""
        return answer_membership(
            request,
            self._node_of(connection),
            self._nodes.leadership.node_ids,
            self._data.topics.cluster_id,
            self._permissions_of(connection),
        )

    @answers(UpdateFeatures)
    def update_features(self, connection: Connection, request: UpdateFeatures) -> Work[WireResponse | None]:
        """Say which levels features shall have."""
        node_id, features = self._node_of(connection).node_id, self._administered.features
        response = yield from answer_update_features(request, features, node_id, self._permissions_of(connection))
        for coordinator in self._nodes.coordinators.values():
            coordinator.serve(features.served_protocols(coordinator.config))
        return response

    @answers(DescribeClientQuotas)
    def describe_client_quotas(
        self, connection: Connection, request: DescribeClientQuotas
    ) -> Work[WireResponse | None]:
        """Tell quotas."""
        return self._administered.quotas.answer_describe(request, self._permissions_of(connection))

    @answers(AlterClientQuotas)
    def alter_client_quotas(self, connection: Connection, request: AlterClientQuotas) -> Work[WireResponse | None]:
        """Change quotas."""
        return self._administered.quotas.answer_alter(request, self._permissions_of(connection))

    @answers(GetTelemetrySubscriptions)
    def get_telemetry_subscriptions(
        self, connection: Connection, request: GetTelemetrySubscriptions
    ) -> WireResponse | None:
        """Tell a client which metrics are wanted."""
        return self._telemetry.answer_subscriptions(request, connection)

    @answers(PushTelemetry)
    def push_telemetry(self, connection: Connection, request: PushTelemetry) -> WireResponse | None:
        """Take a client's metrics."""
        return self._telemetry.answer_push(request, connection)

    def disconnected(self, connection: Connection) -> None:
        """Forget a connection that was closed."""
        self._telemetry.disconnected(connection)
