"""Registry of the served APIs. A new one needs a request class, a response class and a row here.

Produce, Fetch, and commits and fetches of offsets have tables of their own: records are not copied, and offsets are
columns, since by kio's schemas a commit of 50 partitions takes 7 times as long to decode. Heartbeats are cached
(:mod:`.protocol`, :class:`.api.KeptAnswers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from groupcoord.core.messages import (
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResponse,
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DeleteGroups,
    DeleteGroupsResponse,
    DeleteShareGroupOffsets,
    DeleteShareGroupOffsetsResponse,
    DescribeGroups,
    DescribeGroupsResponse,
    DescribeShareGroupOffsets,
    DescribeShareGroupOffsetsResponse,
    FindCoordinator,
    FindCoordinatorResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    ListGroups,
    ListGroupsResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    ShareGroupDescribe,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
    StreamsGroupDescribe,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdate,
    StreamsGroupTopologyDescriptionUpdateResponse,
    SyncGroup,
    SyncGroupResponse,
    share_state as states,
)
from groupcoord.wire import (
    broker_messages as broker,
    cluster_messages as cluster,
    config_messages as configs,
    fetch,
    offset_commit,
    offset_fetch,
    produce,
    security_messages as security,
    share_messages as shares,
    transaction_messages as txn,
    version_differences as adapt,
)
from groupcoord.wire.api import NEVER_FLEXIBLE, Api, VersionRange
from groupcoord.wire.by_schema import Entries, by_schema

_TOPIC_NAMES = {
    "topic": "name",
    "topic_name": "name",
    "partition_indexes": "partitions",
    "partition_result": "partitions",
}
_FILTER_NAMES = {
    f"{name}_filter": name for name in ("resource_type", "resource_name", "pattern_type", "principal", "host")
}

_APIS = (
    produce.API,
    fetch.API,
    by_schema(2, broker.ListOffsets, broker.ListOffsetsResponse, (1, 11), 6, adapt_request=adapt.list_offsets),
    by_schema(3, broker.Metadata, broker.MetadataResponse, (0, 13), 9, adapt_request=adapt.metadata),
    offset_commit.API,
    offset_fetch.API,
    by_schema(
        *(10, FindCoordinator, FindCoordinatorResponse, (0, 6), 3),
        to_request=adapt.find_coordinator,
        to_values=adapt.found_coordinators,
    ),
    by_schema(
        *(11, JoinGroup, JoinGroupResponse, (0, 9), 6),
        true_from={"requires_known_member_id": 4, "supports_skip_assignment": 9},
        adapt_request=adapt.join_group,
        adapt_response=adapt.joined_group,
    ),
    by_schema(12, Heartbeat, HeartbeatResponse, (0, 4), 4),
    by_schema(
        *(13, LeaveGroup, LeaveGroupResponse, (0, 5), 4),
        to_request=adapt.leave_group,
        adapt_response=adapt.left_group,
    ),
    by_schema(14, SyncGroup, SyncGroupResponse, (0, 5), 4, adapt_request=adapt.sync_group),
    by_schema(
        *(15, DescribeGroups, DescribeGroupsResponse, (0, 6), 5),
        request_names={"groups": "group_ids"},
        entries=Entries("groups", adapt.described_group),
    ),
    by_schema(16, ListGroups, ListGroupsResponse, (0, 5), 3),
    by_schema(
        *(17, security.SaslHandshake, security.SaslHandshakeResponse, (0, 1), NEVER_FLEXIBLE),
        true_from={"uses_requests": 1},
    ),
    by_schema(
        *(18, cluster.ApiVersions, cluster.ApiVersionsResponse, (0, 5), 3),
        adapt_request=adapt.api_versions,
        adapt_response=adapt.served_apis,
        has_flexible_response_header=False,
    ),
    by_schema(19, broker.CreateTopics, broker.CreateTopicsResponse, (2, 7), 5),
    by_schema(20, broker.DeleteTopics, broker.DeleteTopicsResponse, (1, 6), 4, to_request=adapt.delete_topics),
    by_schema(21, broker.DeleteRecords, broker.DeleteRecordsResponse, (0, 2), 2),
    # Version 6 (two-phase commit, KIP-939) is not listed by a 4.4 broker.
    by_schema(22, txn.InitProducerId, txn.InitProducerIdResponse, (0, 5), 2, adapt_response=adapt.fenced_from(4)),
    by_schema(
        *(23, broker.OffsetForLeaderEpoch, broker.OffsetForLeaderEpochResponse, (2, 4), 4),
        request_names=_TOPIC_NAMES,
        response_names=_TOPIC_NAMES,
    ),
    by_schema(
        *(24, txn.AddPartitionsToTxn, txn.AddPartitionsToTxnResponse, (0, 5), 3),
        to_request=adapt.add_partitions_to_txn,
        to_values=adapt.added_partitions,
    ),
    by_schema(25, txn.AddOffsetsToTxn, txn.AddOffsetsToTxnResponse, (0, 4), 3, adapt_response=adapt.fenced_from(2)),
    by_schema(
        *(26, txn.EndTxn, txn.EndTxnResponse, (0, 5), 3),
        true_from={"bumps_epoch": 5},
        adapt_response=adapt.fenced_from(2),
    ),
    # The transaction version (2, KIP-1228) only concerns checks of partitions that hold data; it is ignored.
    by_schema(27, txn.WriteTxnMarkers, txn.WriteTxnMarkersResponse, (1, 2), 1, request_names=_TOPIC_NAMES),
    offset_commit.TXN_API,
    by_schema(
        *(29, security.DescribeAcls, security.DescribeAclsResponse, (1, 3), 2),
        request_names=_FILTER_NAMES,
        adapt_request=adapt.known_acls,
    ),
    by_schema(
        *(30, security.CreateAcls, security.CreateAclsResponse, (1, 3), 2),
        request_names={"resource_pattern_type": "pattern_type"},
        adapt_request=adapt.known_acls,
    ),
    by_schema(
        *(31, security.DeleteAcls, security.DeleteAclsResponse, (1, 3), 2),
        request_names=_FILTER_NAMES,
        adapt_request=adapt.known_acls,
    ),
    by_schema(32, configs.DescribeConfigs, configs.DescribeConfigsResponse, (1, 4), 4, entries=Entries("results")),
    by_schema(33, configs.AlterConfigs, configs.AlterConfigsResponse, (0, 2), 2),
    by_schema(
        *(34, cluster.AlterReplicaLogDirs, cluster.AlterReplicaLogDirsResponse, (1, 2), 2),
        response_names=_TOPIC_NAMES,
    ),
    by_schema(35, cluster.DescribeLogDirs, cluster.DescribeLogDirsResponse, (1, 5), 2, request_names=_TOPIC_NAMES),
    by_schema(36, security.SaslAuthenticate, security.SaslAuthenticateResponse, (0, 2), 2),
    by_schema(37, broker.CreatePartitions, broker.CreatePartitionsResponse, (0, 3), 2),
    by_schema(38, security.CreateDelegationToken, security.CreateDelegationTokenResponse, (1, 3), 2),
    by_schema(39, security.RenewDelegationToken, security.DelegationTokenResponse, (1, 2), 2),
    by_schema(40, security.ExpireDelegationToken, security.DelegationTokenResponse, (1, 2), 2),
    by_schema(41, security.DescribeDelegationToken, security.DescribeDelegationTokenResponse, (1, 3), 2),
    by_schema(42, DeleteGroups, DeleteGroupsResponse, (0, 3), 2, request_names={"groups_names": "group_ids"}),
    by_schema(
        *(43, cluster.ElectLeaders, cluster.ElectLeadersResponse, (0, 2), 2),
        request_names=_TOPIC_NAMES,
        response_names=_TOPIC_NAMES,
    ),
    by_schema(44, configs.IncrementalAlterConfigs, configs.AlterConfigsResponse, (0, 1), 1),
    by_schema(45, cluster.AlterPartitionReassignments, cluster.AlterPartitionReassignmentsResponse, (0, 1), 0),
    by_schema(
        *(46, cluster.ListPartitionReassignments, cluster.ListPartitionReassignmentsResponse, (0, 0), 0),
        request_names=_TOPIC_NAMES,
    ),
    by_schema(
        *(47, OffsetDelete, OffsetDeleteResponse, (0, 0), NEVER_FLEXIBLE),
        request_names={"partitions": "partition_indexes"},
    ),
    by_schema(48, configs.DescribeClientQuotas, configs.DescribeClientQuotasResponse, (0, 1), 1),
    by_schema(49, configs.AlterClientQuotas, configs.AlterClientQuotasResponse, (0, 1), 1),
    by_schema(50, security.DescribeUserScramCredentials, security.DescribeUserScramCredentialsResponse, (0, 0), 0),
    by_schema(51, security.AlterUserScramCredentials, security.AlterUserScramCredentialsResponse, (0, 0), 0),
    by_schema(
        *(55, cluster.DescribeQuorum, cluster.DescribeQuorumResponse, (0, 2), 0),
        request_names=_TOPIC_NAMES,
        response_names=_TOPIC_NAMES,
    ),
    by_schema(57, cluster.UpdateFeatures, cluster.UpdateFeaturesResponse, (0, 2), 0),
    by_schema(60, cluster.DescribeCluster, cluster.DescribeClusterResponse, (0, 2), 0),
    by_schema(
        *(61, txn.DescribeProducers, txn.DescribeProducersResponse, (0, 0), 0),
        request_names=_TOPIC_NAMES,
        response_names={"last_timestamp": "last_timestamp_ms"},
    ),
    by_schema(64, cluster.UnregisterBroker, cluster.MembershipResponse, (0, 0), 0),
    by_schema(
        *(65, txn.DescribeTransactions, txn.DescribeTransactionsResponse, (0, 0), 0),
        response_names=_TOPIC_NAMES,
        entries=Entries("transaction_states"),
    ),
    by_schema(
        *(66, txn.ListTransactions, txn.ListTransactionsResponse, (0, 2), 0),
        request_names={"duration_filter": "duration_filter_ms"},
    ),
    by_schema(
        *(68, ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse, (0, 1), 0),
        true_from={"requires_member_id": 1},
        is_repeated=lambda response: response.assignment is None,
    ),
    by_schema(69, ConsumerGroupDescribe, ConsumerGroupDescribeResponse, (0, 1), 0, entries=Entries("groups")),
    # Served but not listed, as by a broker without a metrics plugin (KIP-714).
    by_schema(
        *(71, configs.GetTelemetrySubscriptions, configs.GetTelemetrySubscriptionsResponse, (0, 0), 0),
        is_listed=False,
    ),
    by_schema(72, configs.PushTelemetry, configs.PushTelemetryResponse, (0, 0), 0, is_listed=False),
    by_schema(
        *(74, configs.ListConfigResources, configs.ListConfigResourcesResponse, (0, 1), 0),
        adapt_request=adapt.list_config_resources,
    ),
    by_schema(75, cluster.DescribeTopicPartitions, cluster.DescribeTopicPartitionsResponse, (0, 0), 0),
    by_schema(
        *(76, ShareGroupHeartbeat, ShareGroupHeartbeatResponse, (1, 1), 0),
        is_repeated=lambda response: response.assignment is None,
    ),
    by_schema(77, ShareGroupDescribe, ShareGroupDescribeResponse, (1, 1), 0, entries=Entries("groups")),
    by_schema(80, cluster.AddRaftVoter, cluster.MembershipResponse, (0, 1), 0),
    by_schema(81, cluster.RemoveRaftVoter, cluster.MembershipResponse, (0, 0), 0),
    by_schema(78, shares.ShareFetch, shares.ShareFetchResponse, (1, 2), 0),
    by_schema(79, shares.ShareAcknowledge, shares.ShareAcknowledgeResponse, (1, 2), 0),
    by_schema(83, states.InitializeShareGroupState, states.InitializeShareGroupStateResponse, (0, 0), 0),
    by_schema(84, states.ReadShareGroupState, states.ReadShareGroupStateResponse, (0, 0), 0),
    by_schema(85, states.WriteShareGroupState, states.WriteShareGroupStateResponse, (0, 1), 0),
    by_schema(86, states.DeleteShareGroupState, states.DeleteShareGroupStateResponse, (0, 0), 0),
    by_schema(87, states.ReadShareGroupStateSummary, states.ReadShareGroupStateSummaryResponse, (0, 1), 0),
    by_schema(
        *(88, StreamsGroupHeartbeat, StreamsGroupHeartbeatResponse, (0, 1), 0),
        response_names={"status_code": "code", "status_detail": "detail"},
        adapt_response=adapt.streams_group_heartbeat,
        is_repeated=lambda response: response.active_tasks is None,
    ),
    by_schema(89, StreamsGroupDescribe, StreamsGroupDescribeResponse, (0, 1), 0, entries=Entries("groups")),
    by_schema(90, DescribeShareGroupOffsets, DescribeShareGroupOffsetsResponse, (0, 1), 0, entries=Entries("groups")),
    by_schema(91, AlterShareGroupOffsets, AlterShareGroupOffsetsResponse, (0, 0), 0),
    by_schema(92, DeleteShareGroupOffsets, DeleteShareGroupOffsetsResponse, (0, 0), 0),
    by_schema(93, StreamsGroupTopologyDescriptionUpdate, StreamsGroupTopologyDescriptionUpdateResponse, (0, 0), 0),
    by_schema(94, cluster.UnregisterController, cluster.MembershipResponse, (0, 0), 0),
)

APIS: Mapping[int, Api] = MappingProxyType({api.key: api for api in _APIS})
"""Every API by its key."""

API_VERSIONS: Mapping[int, VersionRange] = MappingProxyType(
    {api.key: api.listed_versions for api in _APIS if api.is_listed}
)
"""Versions of every API that a broker lists, by API key."""
