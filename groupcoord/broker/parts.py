"""Parts of a broker, made in order, and the dispatch table of its requests.

Requests without a handler in the table go to the group coordinator as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

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
from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.cluster.metadata import (
    CLUSTER_DENIED,
    answer_api_versions,
    answer_describe_topic_partitions,
    answer_update_features,
)
from groupcoord.broker.cluster.nodes import Administered, Nodes, SharedDocuments
from groupcoord.broker.configs.client_metrics import Telemetry
from groupcoord.broker.configs.definitions import GroupConfigs
from groupcoord.broker.configs.requests import (
    Resources,
    answer_describe_configs,
    answer_list_config_resources,
)
from groupcoord.broker.connection import Connection, Handler, Interceptor
from groupcoord.broker.groups import GroupRequests, Reloading
from groupcoord.broker.log_lines import Notices
from groupcoord.broker.records.fetch import FetchRequests
from groupcoord.broker.records.list_offsets import (
    answer_delete_records,
    answer_list_offsets,
    answer_offset_for_leader_epoch,
)
from groupcoord.broker.records.topic_data import CurrentLeaders, TopicData
from groupcoord.broker.regexes import TopicMatcher
from groupcoord.broker.security.acls import answer_acl_request
from groupcoord.broker.security.principals import ANONYMOUS
from groupcoord.broker.security.security import Security, delegation_token_refusal
from groupcoord.broker.share.coordination import ServerShareHost
from groupcoord.broker.share.dead_letters import DeadLetters
from groupcoord.broker.share.fetch import ShareRequests
from groupcoord.broker.topics.create_topics import TopicRequests
from groupcoord.broker.topics.registry import CREATION_MS, TopicRegistry, ensure_internal_topic
from groupcoord.broker.transactions.log import ProducerIds
from groupcoord.broker.transactions.requests import (
    TransactionRequests,
    answer_describe_producers,
    refuse_transactions,
)
from groupcoord.broker.work import (
    Job,
    Timed,
    Timers,
    Turns,
    Work,
    decode_bounded,
    deliver_replies,
    do_in_place,
    run_in_executor,
)
from groupcoord.clock import Clock
from groupcoord.config import Config, GroupType
from groupcoord.config.group_settings import served_protocols
from groupcoord.coordinator import GroupCoordinator
from groupcoord.coordinator.group_coordinator import random_member_id, random_uuid
from groupcoord.core.host_queries import CreateInternalTopics, InternalTopicsCreated, ShareCoordinatorAnswered
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.messages import (
    ConsumerGroupHeartbeat,
    DeleteGroups,
    DescribeGroups,
    DescribeShareGroupOffsets,
    FindCoordinator,
    LeaveGroup,
    ListGroups,
    Node,
    OffsetDelete,
    OffsetFetch,
    TxnOffsetCommit,
)
from groupcoord.core.messages.request import Request
from groupcoord.core.messages.share_state import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    ReadShareGroupState,
    ReadShareGroupStateSummary,
    WriteShareGroupState,
)
from groupcoord.core.router.authorization import Authorize, Operation, Permissions, Principal
from groupcoord.core.router.request_router import DESCRIBED_KINDS
from groupcoord.errors import ErrorCode
from groupcoord.log_store import LogStore
from groupcoord.wire import Answered, WireResponse
from groupcoord.wire.broker_messages import (
    CreatePartitions,
    CreateTopics,
    DeleteRecords,
    DeleteTopics,
    Fetch,
    ListOffsets,
    Metadata,
    OffsetForLeaderEpoch,
    Produce,
)
from groupcoord.wire.cluster_messages import (
    AddRaftVoter,
    AlterPartitionReassignments,
    AlterReplicaLogDirs,
    ApiVersions,
    DescribeCluster,
    DescribeLogDirs,
    DescribeQuorum,
    DescribeTopicPartitions,
    ElectLeaders,
    ListPartitionReassignments,
    RemoveRaftVoter,
    UnregisterBroker,
    UnregisterController,
    UpdateFeatures,
)
from groupcoord.wire.config_messages import (
    AlterClientQuotas,
    AlterConfigs,
    DescribeClientQuotas,
    DescribeConfigs,
    GetTelemetrySubscriptions,
    IncrementalAlterConfigs,
    ListConfigResources,
    PushTelemetry,
)
from groupcoord.wire.security_messages import (
    AlterUserScramCredentials,
    CreateAcls,
    CreateDelegationToken,
    CreateDelegationTokenResponse,
    DeleteAcls,
    DescribeAcls,
    DescribeDelegationToken,
    DescribeUserScramCredentials,
    ExpireDelegationToken,
    RenewDelegationToken,
    SaslAuthenticate,
    SaslHandshake,
)
from groupcoord.wire.share_messages import ShareAcknowledge, ShareFetch
from groupcoord.wire.transaction_messages import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    DescribeProducers,
    DescribeTransactions,
    EndTxn,
    InitProducerId,
    ListTransactions,
    WriteTxnMarkers,
)

if TYPE_CHECKING:
    from groupcoord.broker.share.coordination import ShareCoordination
    from groupcoord.broker.transactions.coordinator import TransactionCoordinator
    from groupcoord.storage.data_directory import DataDirectory

DEFAULT_NODE = Node(1, "127.0.0.1", 9092)

SASL_IS_OVER = ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
"""Error after a log-in, and on listeners without one."""

Handlers = dict[type, Handler]


def anonymous(client_host: str) -> Principal:
    """Return the principal of connections without a log-in."""
    return ANONYMOUS


class Parts:
    """Everything that a broker runs, made from its settings. Its arguments are those of :class:`Broker`."""

    def __init__(
        self,
        *,
        config: Config,
        clock: Clock,
        log_store: LogStore,
        topics: TopicRegistry | None = None,
        group_configs: GroupConfigs | None = None,
        administered: Administered | None = None,
        node: Node = DEFAULT_NODE,
        new_member_id: Callable[[str], str] = random_member_id,
        new_uuid: Callable[[], str] = random_uuid,
        producer_ids: ProducerIds | None = None,
        topic_directory: DataDirectory | None = None,
        data: TopicData | None = None,
        authorize: Authorize | None = None,
        principal_of: Callable[[str], Principal] = anonymous,
        security: Security | None = None,
        nodes: Nodes | None = None,
        now_s: Callable[[], float] = perf_counter,
    ) -> None:
        self.security = security or Security(clock)
        self.authorize = authorize or self.security.authorize
        self.dirty: list[Connection] = []
        self.now_s, self.turns = now_s, Turns(now_s)
        self.start_job: Callable[[Job], None] = do_in_place
        self.interceptor: Interceptor | None = None
        self.config, self.clock, self.log_store = config, clock, log_store
        # Not `or`: an empty registry has length 0, and is false.
        self.topics = TopicRegistry() if topics is None else topics
        self.group_configs = group_configs or GroupConfigs(config)
        self.administered = administered or Administered()
        self._node = node
        self.owns_storage = nodes is None
        self.nodes = nodes or Nodes(Leadership((node,)), self.topics)
        self.data = data or TopicData(config, clock, self.topics, topic_directory)
        self.principal_of = principal_of
        self.notices = Notices(self.topics, now_s)
        self._make_administration()
        # The coordinator's owner functions look the topic up.
        store_id = self.data.offsets_topic_id(self.topics.get(OFFSETS_TOPIC), log_store)
        with self.topics.edit() as edit:
            ensure_internal_topic(edit, OFFSETS_TOPIC, config, store_id)
        self.late_topics = Timers()
        # ServerShareHost takes it.
        self.share = self.nodes.share_coordination(self.data.whole, self.authorize)
        self.coordinator = self._make_coordinator(new_member_id, new_uuid)
        self.loading = Reloading(self.coordinator, clock)
        # Transactions are recovered into loaded log partitions.
        self.loading.load_all(self.nodes.led_log_partitions(node.node_id))
        # Nodes of one process share it.
        self.transactions = self.nodes.transaction_coordinator(producer_ids or ProducerIds(), self.data.whole)
        self._make_requests()
        self._handlers = self._all_handlers()
        # Small frames can't hold many entries.
        self.decode_large = partial(decode_bounded, frozenset(self._handlers_in_steps))
        self.wake_earlier()
        # Appended, not assigned: nodes of one process have common transaction and share coordinators.
        for part in self.wakers:
            part.on_earlier.append(self.wake_earlier)
        deliver_replies(self.coordinator)

    # ------------------------------------------------------------ parts

    def _make_administration(self) -> None:
        administered = self.administered
        self.shared_documents: SharedDocuments | None = None
        if not self.nodes.leadership.elects:
            kept = (administered.brokers, administered.client_metrics, administered.quotas, administered.features)
            security = self.security.shared_documents()
            self.shared_documents = SharedDocuments(self.topics, (self.group_configs, *kept, *security))
        self.resources = Resources(
            self.config,
            self._node.node_id,
            self.topics,
            self.group_configs,
            administered.brokers,
            administered.client_metrics,
            self._advertised_listeners,
        )
        self.topic_requests = TopicRequests(self.data, self.resources, self.nodes, self.notices)

    def _make_requests(self) -> None:
        self.leaders = CurrentLeaders(self.nodes.leadership, self.data)
        self.fetch_requests = FetchRequests(self.data, self.leaders)
        # Looked up at each call, since the host replaces start_job later.
        self.dead_letters = DeadLetters(self.data, self.nodes.topics_created, lambda job: self.start_job(job))
        self.share_requests = ShareRequests(
            self.data,
            self.share.persister,
            self.group_configs.share_settings_of,
            self.dead_letters,
            self.leaders,
        )
        self.transaction_requests = (
            TransactionRequests(self.transactions, self.data, self.nodes, self._node.node_id)
            if self.nodes.has_transactions
            else None
        )
        self.telemetry = Telemetry(self.administered.client_metrics, self.clock)
        # Their deadlines may come nearer between two ticks; `on_earlier` has a callback for each node that shares them.
        self.wakers: tuple[Timers | ShareCoordination | TransactionCoordinator, ...] = (
            *(self.fetch_requests.timers, self.share, self.share_requests.timers),
            *(self.transactions, self.security.refusals, self.late_topics),
        )
        # TopicData is no waker: no request makes its retention due earlier.
        self.timed: tuple[Timed, ...] = (self.wakers[0], self.data, *self.wakers[1:])

    def _make_coordinator(self, new_member_id: Callable[[str], str], new_uuid: Callable[[], str]) -> GroupCoordinator:
        coordinator = GroupCoordinator(
            config=self.config,
            clock=self.clock,
            log_store=self.log_store,
            topics=self.topics,
            regexes=TopicMatcher(self.topics, self.authorize),
            consumer_group_settings=self.group_configs.settings_of,
            streams_group_settings=self.group_configs.streams_settings_of,
            create_internal_topics=self._create_internal_topics,
            share=ServerShareHost(self.group_configs, self.share, self.data.whole, self._share_answered, self.turns),
            node=self._node,
            owner=None if self.nodes.leadership.is_sole else self.nodes.coordinator_node,
            transaction_owner=None if self.nodes.leadership.is_sole else self.nodes.transaction_node,
            share_owner=self.nodes.share_node,
            new_member_id=new_member_id,
            new_uuid=new_uuid,
            authorize=self.authorize,
            # The transaction coordinator is made later.
            verify_transaction=lambda request: self.transactions.verify_commit(request),
        )
        coordinator.serve(self.administered.features.served_protocols(self.config))
        self.nodes.coordinators[self._node.node_id] = coordinator
        # None unless clients read a copy of the log's records.
        coordinator.on_durable = self.data.serve_offsets(self.log_store)
        return coordinator

    # ------------------------------------------------------------ called by parts

    def wake_earlier(self) -> None:
        """Note that the deadline of a part may have come nearer."""
        self._is_woken, self._seen_advances = True, -1

    def _node_for(self, connection: Connection) -> Node:
        return self._node if connection.nodes is None else connection.nodes[self._node.node_id]

    def _advertised_listeners(self) -> str:
        listeners = self.security.advertised_listeners(self._node.node_id)
        return listeners or f"PLAINTEXT://{self._node.host}:{self._node.port}"

    def _create_internal_topics(self, question: CreateInternalTopics) -> Mapping[str, str] | None:
        """Create topics, and return errors by name; None if one was deleted and they are created later."""
        # As in Kafka, with the principal of the client that sent the heartbeat (KIP-1071).
        permissions = Permissions(self.authorize, question.principal)
        create = partial(self.topic_requests.create_internal_topics, question, permissions)
        # As in Kafka, heartbeats in between report a missing topic.
        if not any(topic.name in self.topics.deleted for topic in question.topics):
            return create()
        self.late_topics.add(
            self.clock.now_ms() + CREATION_MS,
            lambda: self.coordinator.found_out(InternalTopicsCreated(question, create())),
        )
        return None

    def _share_answered(self, found: ShareCoordinatorAnswered) -> None:
        self.coordinator.found_out(found)
        # Not always within a dispatch, which would deliver them.
        deliver_replies(self.coordinator)

    def reload_shared(self) -> None:
        """Reload documents that other nodes of a cluster may have written, sooner than :meth:`Broker.reload_failed`."""
        if self.shared_documents is None:
            return
        before = list(self.topics)
        self.shared_documents.reload()
        self.topic_requests.reloaded(before)
        # Another process may have changed the level of a feature.
        self.coordinator.serve(self.administered.features.served_protocols(self.config))

    # ------------------------------------------------------------ dispatch table

    def _all_handlers(self) -> Handlers:
        table = self._handlers_at_once() | self._handlers_in_steps
        # Kafka refuses without a reason, so the server logs one.
        if GroupType.CONSUMER not in served_protocols(self.config):
            table[ConsumerGroupHeartbeat] = self._refuse_consumer_protocol
        if self.shared_documents is not None:
            self.shared_documents.retry_conflicts(table, self.reload_shared)
        return table

    @cached_property
    def _handlers_in_steps(self) -> Handlers:
        """Handlers that let other connections have their turn between two entries of a request."""
        topics, data, nodes, quotas = self.topics, self.data, self.nodes, self.administered.quotas
        requests, permitted = self.topic_requests, self._permitted
        share_states = (
            *(InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState),
            *(DeleteShareGroupState, ReadShareGroupStateSummary),
        )
        return {
            Metadata: requests.metadata,
            CreateTopics: permitted(requests.create),
            CreatePartitions: permitted(requests.create_partitions),
            DeleteTopics: permitted(requests.delete),
            **dict.fromkeys((IncrementalAlterConfigs, AlterConfigs), permitted(requests.alter_configs)),
            DescribeConfigs: permitted(answer_describe_configs, self.resources),
            DescribeTopicPartitions: permitted(answer_describe_topic_partitions, topics, nodes.leadership),
            Produce: self._produce,
            Fetch: self.fetch_requests.fetch,
            ListOffsets: permitted(answer_list_offsets, data),
            OffsetForLeaderEpoch: permitted(answer_offset_for_leader_epoch, data),
            DeleteRecords: permitted(answer_delete_records, data),
            **self._group_steps(),
            ShareFetch: self.share_requests.fetch,
            ShareAcknowledge: self.share_requests.acknowledge,
            **dict.fromkeys(share_states, self.share.answer),
            **self._transaction_steps(),
            UpdateFeatures: on_cluster(Operation.ALTER, self._update_features),
            ElectLeaders: on_cluster(Operation.ALTER, answer_elect_leaders, nodes, topics),
            AlterPartitionReassignments: on_cluster(
                Operation.ALTER, answer_alter_partition_reassignments, nodes, topics
            ),
            ListPartitionReassignments: permitted(answer_list_partition_reassignments),
            DescribeQuorum: lambda connection, request: on_cluster(
                Operation.DESCRIBE, answer_describe_quorum, self._node_for(connection), self.clock.now_ms()
            )(connection, request),
            DescribeLogDirs: on_cluster(Operation.DESCRIBE, answer_describe_log_dirs, data),
            AlterReplicaLogDirs: permitted(answer_alter_replica_log_dirs, topics),
            DescribeClientQuotas: on_cluster(Operation.DESCRIBE_CONFIGS, quotas.answer_describe),
            AlterClientQuotas: on_cluster(Operation.ALTER_CONFIGS, quotas.answer_alter),
            **dict.fromkeys((CreateAcls, DescribeAcls, DeleteAcls), permitted(answer_acl_request, self.security.acls)),
        }

    def _handlers_at_once(self) -> Handlers:
        """Return the handlers that take a whole request in one step; :mod:`groupcoord.broker.work` limits entries."""
        topics, nodes, transactions = self.topics, self.nodes, self.transaction_requests
        return {
            Answered: lambda connection, request: request.response,
            ApiVersions: self._api_versions,
            DescribeCluster: lambda connection, request: answer_describe_cluster(
                request, nodes.leadership, topics.cluster_id, connection.permissions, connection.nodes
            ),
            **dict.fromkeys(
                (UnregisterBroker, UnregisterController, AddRaftVoter, RemoveRaftVoter),
                lambda connection, request: on_cluster(
                    Operation.ALTER, answer_membership, self._node, nodes.leadership.node_ids, topics.cluster_id
                )(connection, request),
            ),
            ListConfigResources: on_cluster(Operation.DESCRIBE_CONFIGS, answer_list_config_resources, self.resources),
            GetTelemetrySubscriptions: self.telemetry.answer_subscriptions,
            PushTelemetry: self.telemetry.answer_push,
            **dict.fromkeys(
                (SaslHandshake, SaslAuthenticate), lambda connection, request: request.refused(*SASL_IS_OVER)
            ),
            AlterUserScramCredentials: on_cluster(
                Operation.ALTER, lambda request: self.security.credentials.answer_alter(request)
            ),
            DescribeUserScramCredentials: lambda connection, request: self.security.credentials.answer_describe(
                request, connection.permissions
            ),
            CreateDelegationToken: _refuse_new_token,
            **dict.fromkeys(
                (RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken),
                lambda connection, request: request.refused(delegation_token_refusal(connection)),
            ),
            TxnOffsetCommit: refuse_transactions if transactions is None else transactions.commit_offsets,
        }

    def _group_steps(self) -> Handlers:
        groups = GroupRequests(self.coordinator, self.topics, self.transaction_requests)
        return {
            FindCoordinator: groups.find_coordinators,
            OffsetFetch: groups.fetch_offsets,
            OffsetDelete: groups.delete_offsets,
            LeaveGroup: groups.leave,
            ListGroups: groups.list_groups,
            **dict.fromkeys((DescribeGroups, *DESCRIBED_KINDS), groups.describe_groups),
            DescribeShareGroupOffsets: groups.describe_share_offsets,
            DeleteGroups: groups.delete_groups,
        }

    def _transaction_steps(self) -> Handlers:
        steps: dict[type, Callable[..., Any]] = {
            InitProducerId: TransactionRequests.init_producer_id,
            AddPartitionsToTxn: TransactionRequests.add_partitions,
            AddOffsetsToTxn: TransactionRequests.add_offsets,
            EndTxn: TransactionRequests.end,
            WriteTxnMarkers: TransactionRequests.write_markers,
            ListTransactions: TransactionRequests.list,
            DescribeTransactions: TransactionRequests.describe,
        }
        if self.transaction_requests is None:
            return dict.fromkeys((*steps, DescribeProducers), refuse_transactions)
        handlers = {request: partial(handler, self.transaction_requests) for request, handler in steps.items()}
        return {**handlers, DescribeProducers: self._permitted(answer_describe_producers, self.data)}

    # ------------------------------------------------------------ handlers

    def _permitted(self, answer: Callable[..., Any], *arguments: Any) -> Handler:
        return lambda connection, request: answer(request, *arguments, connection.permissions)

    def _api_versions(self, connection: Connection, request: ApiVersions) -> WireResponse:
        connection.note_client_id()
        connection.software = request.client_software_name, request.client_software_version
        return answer_api_versions(
            request, self._node_for(connection), self.topics.cluster_id, self.administered.features
        )

    def _produce(self, connection: Connection, request: Produce) -> WireResponse | Work[WireResponse | None] | None:
        # A server may never read a batch.
        from groupcoord.broker.records.produce import handle_produce

        # A single node is never the wrong leader.
        leaders = None if self.nodes.leadership.is_sole else self.leaders
        handler = self._handlers[Produce] = partial(handle_produce, self.data, self.transactions.verify_writer, leaders)
        return handler(connection, request)

    def _refuse_consumer_protocol(self, connection: Connection, request: ConsumerGroupHeartbeat) -> None:
        """Log that the protocol is off, and submit the request, which fails."""
        self.notices.protocol_is_off(connection, request)
        connection.submit(request)

    def _update_features(self, request: UpdateFeatures) -> Work[WireResponse | None]:
        features = self.administered.features
        response = yield from answer_update_features(request, features, self._node.node_id)
        for coordinator in self.nodes.coordinators.values():
            coordinator.serve(features.served_protocols(coordinator.config))
        return response


def on_cluster(operation: Operation, answer: Callable[..., Any], *arguments: Any) -> Handler:
    """Return the handler of a request that needs permission for an operation on the cluster."""

    def handle(connection: Connection, request: Request[Any]) -> Any:
        if connection.permissions.on_cluster(operation):
            return answer(request, *arguments)
        return run_in_executor(request.refused, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_DENIED)

    return handle


def _refuse_new_token(connection: Connection, request: CreateDelegationToken) -> WireResponse:
    # Kafka names owner and requester in the response even though it refuses.
    kind, _, name = str(connection.principal).partition(":")
    owner = (request.owner_principal_type or kind, request.owner_principal_name or name)
    return CreateDelegationTokenResponse(delegation_token_refusal(connection), *owner, kind, name)
