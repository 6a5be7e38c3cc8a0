"""For each API, the answer that says nothing but an error: at the top, or at every entry that the request names.

That is the form in which a broker refuses a whole request, as Kafka's ``AbstractRequest.getErrorResponse`` makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

from attrs import evolve

from groupcoord.core.front.request_router import DESCRIBED_KINDS
from groupcoord.core.front.share_groups import (
    refuse_alteration,
    refuse_offset_deletion,
    refuse_offset_description,
    refuse_share_heartbeat,
)
from groupcoord.core.front.streams_groups import refuse_description_update, refuse_streams_heartbeat
from groupcoord.core.messages import (
    NO_NODE,
    AlterShareGroupOffsets,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DeletedGroup,
    DeleteGroups,
    DeleteGroupsResponse,
    DeleteShareGroupOffsets,
    DescribedGroup,
    DescribeGroups,
    DescribeGroupsResponse,
    DescribeShareGroupOffsets,
    FetchedGroup,
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    ListGroups,
    ListGroupsResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    ShareGroupHeartbeat,
    StreamsGroupHeartbeat,
    StreamsGroupTopologyDescriptionUpdate,
    SyncGroup,
    SyncGroupResponse,
    TopicResult,
    TopicToCommit,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.core.messages.commits import refused_partitions
from groupcoord.core.messages.fetches import FetchedTopic, GroupToFetch, without_offsets
from groupcoord.core.messages.share_state import ShareStateRequest
from groupcoord.core.records import ZERO_UUID
from groupcoord.core.share_state.requests import refuse_states
from groupcoord.errors import ErrorCode
from groupcoord.wire import API_VERSIONS, WireResponse
from groupcoord.wire import acl_messages as acls
from groupcoord.wire import broker_messages as broker
from groupcoord.wire import cluster_messages as cluster
from groupcoord.wire import config_messages as configs
from groupcoord.wire import feature_messages as features
from groupcoord.wire import login_messages as login
from groupcoord.wire import quota_messages as quotas
from groupcoord.wire import telemetry_messages as telemetry
from groupcoord.wire import transaction_messages as transactions
from groupcoord.wire.share_messages import ShareAcknowledge, ShareAcknowledgeResponse, ShareFetch, ShareFetchResponse

API_VERSIONS_KEY = 18

Refusal = Callable[[Any, ErrorCode], WireResponse]
T = TypeVar("T")


def _each(refused: Callable[[int, ErrorCode], T], topic: Any, error: ErrorCode) -> tuple[T, ...]:
    """Return an entry with the error for each partition that a request names below a topic."""
    return tuple(refused(partition.partition_index, error) for partition in topic.partitions)


def _commit_results(topics: tuple[TopicToCommit, ...], error: ErrorCode) -> tuple[TopicResult, ...]:
    return tuple(
        TopicResult(topic.name, topic.topic_id, refused_partitions(topic.columns.partition_indexes, error))
        for topic in topics
    )


def _named_results(topics: tuple[cluster.TopicPartitions, ...], error: ErrorCode) -> tuple[TopicResult, ...]:
    return tuple(
        TopicResult(topic.name, ZERO_UUID, refused_partitions(topic.partition_indexes, error)) for topic in topics
    )


def _without_offsets(group: GroupToFetch, error: ErrorCode) -> FetchedGroup:
    """Refuse a group; that offsets may still change is said of each partition, as Kafka does."""
    if error is not ErrorCode.UNSTABLE_OFFSET_COMMIT or group.topics is None:
        return FetchedGroup(group.group_id or "", error, ())
    topics = [FetchedTopic(t.name, t.topic_id, without_offsets(t.partition_indexes, error)) for t in group.topics]
    return FetchedGroup(group.group_id or "", ErrorCode.NONE, tuple(topics))


_OF_GROUPS: dict[type, Refusal] = {
    JoinGroup: lambda request, error: JoinGroupResponse(error, request.member_id),
    SyncGroup: lambda request, error: SyncGroupResponse(error),
    Heartbeat: lambda request, error: HeartbeatResponse(error),
    LeaveGroup: lambda request, error: LeaveGroupResponse(error),
    OffsetCommit: lambda request, error: OffsetCommitResponse(_commit_results(request.topics, error)),
    TxnOffsetCommit: lambda request, error: TxnOffsetCommitResponse(_commit_results(request.topics, error)),
    OffsetDelete: lambda request, error: OffsetDeleteResponse(error),
    OffsetFetch: lambda request, error: OffsetFetchResponse(
        tuple(_without_offsets(group, error) for group in request.groups)
    ),
    DescribeGroups: lambda request, error: DescribeGroupsResponse(
        tuple(DescribedGroup(group_id or "", error) for group_id in request.group_ids)
    ),
    ListGroups: lambda request, error: ListGroupsResponse(error),
    DeleteGroups: lambda request, error: DeleteGroupsResponse(
        tuple(DeletedGroup(group_id or "", error) for group_id in request.group_ids)
    ),
    FindCoordinator: lambda request, error: FindCoordinatorResponse(
        tuple(FoundCoordinator(key, NO_NODE, error) for key in request.keys)
    ),
    ConsumerGroupHeartbeat: lambda request, error: ConsumerGroupHeartbeatResponse(error),
    **{request: kind.refuse for request, kind in DESCRIBED_KINDS.items()},
    ShareGroupHeartbeat: refuse_share_heartbeat,
    DescribeShareGroupOffsets: refuse_offset_description,
    AlterShareGroupOffsets: refuse_alteration,
    DeleteShareGroupOffsets: refuse_offset_deletion,
    ShareFetch: lambda request, error: ShareFetchResponse(error),
    ShareAcknowledge: lambda request, error: ShareAcknowledgeResponse(error),
    **dict.fromkeys(get_args(ShareStateRequest), refuse_states),
    StreamsGroupHeartbeat: refuse_streams_heartbeat,
    StreamsGroupTopologyDescriptionUpdate: refuse_description_update,
}

# ---------------------------------------------------------------- topics and what they hold


def _refuse_api_versions(request: features.ApiVersions, error: ErrorCode) -> features.ApiVersionsResponse:
    tells_range = error is ErrorCode.UNSUPPORTED_VERSION  # of this API alone, so that clients can ask again (KIP-511)
    known = features.ServedApi(API_VERSIONS_KEY, *API_VERSIONS[API_VERSIONS_KEY])
    return features.ApiVersionsResponse(error, (known,) if tells_range else ())


def _refuse_fetch(request: broker.Fetch, error: ErrorCode) -> broker.FetchResponse:
    """Refuse each partition that is named; a request of a session that names none is refused as a whole."""
    topics = tuple(
        broker.FetchedTopicData(topic.name, topic.topic_id, _each(broker.FetchedPartitionData, topic, error))
        for topic in request.topics
    )
    return broker.FetchResponse(ErrorCode.NONE if topics else error, 0, topics)


_OF_TOPICS: dict[type, Refusal] = {
    features.ApiVersions: _refuse_api_versions,
    broker.CreateTopics: lambda request, error: broker.CreateTopicsResponse(
        tuple(broker.CreatedTopic(topic.name, error) for topic in request.topics)
    ),
    broker.CreatePartitions: lambda request, error: broker.CreatePartitionsResponse(
        tuple(broker.CreatedPartitions(topic.name, error) for topic in request.topics)
    ),
    broker.DeleteTopics: lambda request, error: broker.DeleteTopicsResponse(
        tuple(broker.DeletedTopic(topic.name, topic.topic_id, error) for topic in request.topics)
    ),
    broker.Fetch: _refuse_fetch,
    broker.Produce: lambda request, error: broker.ProduceResponse(
        tuple(
            broker.ProducedTopic(topic.name, topic.topic_id, _each(broker.ProducedPartition, topic, error))
            for topic in request.topics
        )
    ),
    broker.ListOffsets: lambda request, error: broker.ListOffsetsResponse(
        tuple(
            broker.ListedOffsetsTopic(topic.name, _each(broker.ListedOffsetsPartition, topic, error))
            for topic in request.topics
        )
    ),
    broker.OffsetForLeaderEpoch: lambda request, error: broker.OffsetForLeaderEpochResponse(
        tuple(
            broker.LeaderEpochEnds(
                topic.topic, tuple(broker.LeaderEpochEnd(one.partition, error) for one in topic.partitions)
            )
            for topic in request.topics
        )
    ),
    broker.DeleteRecords: lambda request, error: broker.DeleteRecordsResponse(
        tuple(
            broker.DeletedRecordsTopic(topic.name, _each(broker.DeletedRecordsPartition, topic, error))
            for topic in request.topics
        )
    ),
}

# ---------------------------------------------------------------- settings


def _altered(resources: tuple[configs.ResourceToAlter, ...], error: ErrorCode) -> tuple[configs.AlteredResource, ...]:
    return tuple(
        configs.AlteredResource(error, None, resource.resource_type, resource.resource_name) for resource in resources
    )


_OF_CONFIGS: dict[type, Refusal] = {
    configs.DescribeConfigs: lambda request, error: configs.DescribeConfigsResponse(
        tuple(
            configs.DescribedConfigs(error, None, resource.resource_type, resource.resource_name)
            for resource in request.resources
        )
    ),
    configs.IncrementalAlterConfigs: lambda request, error: configs.IncrementalAlterConfigsResponse(
        _altered(request.resources, error)
    ),
    configs.AlterConfigs: lambda request, error: configs.AlterConfigsResponse(_altered(request.resources, error)),
    configs.ListConfigResources: lambda request, error: configs.ListConfigResourcesResponse(error),
}

# ---------------------------------------------------------------- the cluster


def _refuse_elections(request: cluster.ElectLeaders, error: ErrorCode) -> cluster.ElectLeadersResponse:
    topics = tuple(
        cluster.ElectedTopic(topic.topic, tuple(cluster.ElectedPartition(index, error) for index in topic.partitions))
        for topic in request.topic_partitions or ()
    )
    return cluster.ElectLeadersResponse(error, topics)


def _refuse_reassignments(
    request: cluster.AlterPartitionReassignments, error: ErrorCode
) -> cluster.AlterPartitionReassignmentsResponse:
    topics = tuple(
        cluster.ReassignedTopic(topic.name, _each(cluster.ReassignedPartition, topic, error))
        for topic in request.topics
    )
    return cluster.AlterPartitionReassignmentsResponse(topics, error)


def _refuse_moves(request: cluster.AlterReplicaLogDirs, error: ErrorCode) -> cluster.AlterReplicaLogDirsResponse:
    named = (topic for folder in request.dirs for topic in folder.topics)
    return cluster.AlterReplicaLogDirsResponse(
        tuple(
            cluster.MovedTopic(topic.name, tuple(cluster.MovedPartition(index, error) for index in topic.partitions))
            for topic in named
        )
    )


_OF_THE_CLUSTER: dict[type, Refusal] = {
    cluster.DescribeCluster: lambda request, error: cluster.DescribeClusterResponse(error),
    cluster.DescribeTopicPartitions: lambda request, error: cluster.DescribeTopicPartitionsResponse(
        tuple(cluster.TopicPartitionsDescription(error, name) for name in request.topics)
    ),
    cluster.DescribeLogDirs: lambda request, error: cluster.DescribeLogDirsResponse(error_code=error),
    cluster.ElectLeaders: _refuse_elections,
    cluster.AlterPartitionReassignments: _refuse_reassignments,
    cluster.ListPartitionReassignments: lambda request, error: cluster.ListPartitionReassignmentsResponse(error),
    cluster.DescribeQuorum: lambda request, error: cluster.DescribeQuorumResponse(error),
    cluster.AlterReplicaLogDirs: _refuse_moves,
    cluster.UnregisterBroker: lambda request, error: cluster.MembershipResponse(error),
    cluster.UnregisterController: lambda request, error: cluster.MembershipResponse(error),
    cluster.AddRaftVoter: lambda request, error: cluster.MembershipResponse(error),
    cluster.RemoveRaftVoter: lambda request, error: cluster.MembershipResponse(error),
    features.UpdateFeatures: lambda request, error: features.UpdateFeaturesResponse(error),
    quotas.DescribeClientQuotas: lambda request, error: quotas.DescribeClientQuotasResponse(error),
    quotas.AlterClientQuotas: lambda request, error: quotas.AlterClientQuotasResponse(
        tuple(quotas.AlteredQuotas(error, None, entry.entity) for entry in request.entries)
    ),
    telemetry.GetTelemetrySubscriptions: lambda request, error: telemetry.GetTelemetrySubscriptionsResponse(error),
    telemetry.PushTelemetry: lambda request, error: telemetry.PushTelemetryResponse(error),
}

# ---------------------------------------------------------------- transactions

_OF_TRANSACTIONS: dict[type, Refusal] = {
    transactions.InitProducerId: lambda request, error: transactions.InitProducerIdResponse(error),
    transactions.AddPartitionsToTxn: lambda request, error: transactions.AddPartitionsToTxnResponse(
        tuple(
            transactions.AddedPartitions(asked.transactional_id, _named_results(asked.topics, error))
            for asked in request.transactions
        )
    ),
    transactions.AddOffsetsToTxn: lambda request, error: transactions.AddOffsetsToTxnResponse(error),
    transactions.EndTxn: lambda request, error: transactions.EndTxnResponse(error),
    transactions.WriteTxnMarkers: lambda request, error: transactions.WriteTxnMarkersResponse(
        tuple(
            transactions.WrittenMarker(marker.producer_id, _named_results(marker.topics, error))
            for marker in request.markers
        )
    ),
    transactions.DescribeTransactions: lambda request, error: transactions.DescribeTransactionsResponse(
        tuple(
            transactions.DescribedTransaction(error, transactional_id) for transactional_id in request.transactional_ids
        )
    ),
    transactions.ListTransactions: lambda request, error: transactions.ListTransactionsResponse(error),
    transactions.DescribeProducers: lambda request, error: transactions.DescribeProducersResponse(
        tuple(
            transactions.DescribedPartitions(
                topic.name, tuple(transactions.DescribedPartition(index, error) for index in topic.partition_indexes)
            )
            for topic in request.topics
        )
    ),
}

# ---------------------------------------------------------------- log-in and permissions


def _refuse_changes(
    request: login.AlterUserScramCredentials, error: ErrorCode
) -> login.AlterUserScramCredentialsResponse:
    deleted, upserted = (entry.name for entry in request.deletions), (entry.name for entry in request.upsertions)
    users = dict.fromkeys([*deleted, *upserted])
    return login.AlterUserScramCredentialsResponse(tuple(login.AlteredUser(user, error) for user in users))


_OF_SECURITY: dict[type, Refusal] = {
    login.SaslHandshake: lambda request, error: login.SaslHandshakeResponse(error),
    login.SaslAuthenticate: lambda request, error: login.SaslAuthenticateResponse(error),
    login.AlterUserScramCredentials: _refuse_changes,
    login.DescribeUserScramCredentials: lambda request, error: login.DescribeUserScramCredentialsResponse((), error),
    login.CreateDelegationToken: lambda request, error: login.CreateDelegationTokenResponse(error),
    login.RenewDelegationToken: lambda request, error: login.DelegationTokenResponse(error),
    login.ExpireDelegationToken: lambda request, error: login.DelegationTokenResponse(error),
    login.DescribeDelegationToken: lambda request, error: login.DescribeDelegationTokenResponse(error),
    acls.DescribeAcls: lambda request, error: acls.DescribeAclsResponse((), error),
    acls.CreateAcls: lambda request, error: acls.CreateAclsResponse((acls.AclResult(error),) * len(request.creations)),
    acls.DeleteAcls: lambda request, error: acls.DeleteAclsResponse(
        (acls.DeletedAcls((), error),) * len(request.filters)
    ),
}

REFUSALS: dict[type, Refusal] = {
    **_OF_GROUPS,
    **_OF_TOPICS,
    **_OF_CONFIGS,
    **_OF_THE_CLUSTER,
    **_OF_TRANSACTIONS,
    **_OF_SECURITY,
}
"""What refuses a request of each type."""


def refuse_topics(response: broker.MetadataResponse, error: ErrorCode) -> broker.MetadataResponse:
    """Return an answer to Metadata with an error at each topic, and the nodes as they are.

    An answer without nodes would be about the cluster, and clients pass it over.
    """
    topics = tuple(evolve(topic, error_code=error, partitions=()) for topic in response.topics)
    return evolve(response, topics=topics)


def refuse(request: object, error: ErrorCode) -> WireResponse | None:
    """Return the answer to a request that carries an error and nothing else.

    None for Metadata, whose answer has to name the nodes all the same: see :func:`refuse_topics`.
    """
    refusal = REFUSALS.get(type(request))
    return None if refusal is None else refusal(request, error)
