"""A broker of one node without sockets: connections in, answers out, time injected.

Group and offset requests go to the :class:`~groupcoord.GroupCoordinator`, transactions to the
:class:`~groupcoord.broker.transactions.coordinator.TransactionCoordinator`; what else a consumer needs from a broker
(the APIs there are, metadata, what topics hold, topic administration) is answered here and in the files beside this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from groupcoord.broker.answering import Handler, answers, table_of
from groupcoord.broker.bounds import decode_bounded, handled_in_portions
from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.cluster.metadata import answer_api_versions
from groupcoord.broker.cluster.nodes import Nodes, deliver_replies
from groupcoord.broker.cluster.requests import ClusterRequests
from groupcoord.broker.cluster.shared_documents import SharedDocument, SharedDocuments
from groupcoord.broker.configs.administered import Administered
from groupcoord.broker.configs.describe_configs import Resources
from groupcoord.broker.configs.groups import GroupConfigs
from groupcoord.broker.connection import Connection, ConnectionT, DecodeLarge, Interceptor
from groupcoord.broker.groups.loading import Reloading
from groupcoord.broker.groups.requests import GroupRequests
from groupcoord.broker.log_lines import Notices
from groupcoord.broker.records.requests import DataRequests
from groupcoord.broker.records.topic_data import CurrentLeaders, TopicData
from groupcoord.broker.regexes import TopicMatcher
from groupcoord.broker.security.acls import AclRequests
from groupcoord.broker.security.security import LoginRequests
from groupcoord.broker.share.coordination import ServerShareHost, ShareCoordination, ShareStateRequests
from groupcoord.broker.share.dead_letters import DeadLetters
from groupcoord.broker.share.fetch import ShareRequests
from groupcoord.broker.topics.create_topics import TopicRequests
from groupcoord.broker.topics.registry import LateCreations, TopicRegistry, ensure_internal_topic
from groupcoord.broker.transactions.coordinator import TransactionCoordinator
from groupcoord.broker.transactions.log import ProducerIds
from groupcoord.broker.transactions.requests import NoTransactions, TransactionRequests, refuse_to_find
from groupcoord.broker.work import Job, Timed, Token, Turns, Wakes, Work, do_in_place
from groupcoord.clock import Clock
from groupcoord.config import Config, GroupType
from groupcoord.config.group_settings import served_protocols
from groupcoord.coordinator import GroupCoordinator
from groupcoord.coordinator.group_coordinator import random_member_id, random_uuid
from groupcoord.core.host_queries import CreateInternalTopics, ShareCoordinatorAnswered
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.messages import ConsumerGroupHeartbeat, Node
from groupcoord.core.router.authorization import Authorize, Permissions, Principal
from groupcoord.log_store import AbandonableStore, CompactingStore, LogStore, close_store
from groupcoord.wire import Answered, WireResponse
from groupcoord.wire.cluster_messages import ApiVersions

if TYPE_CHECKING:
    from groupcoord.broker.security.security import Security
    from groupcoord.storage.data_directory import DataDirectory

DEFAULT_NODE = Node(1, "127.0.0.1", 9092)

ANONYMOUS = "User:ANONYMOUS"
"""Kafka's principal of connections without a log-in."""


def anonymous(client_host: str) -> Principal:
    """Return the principal of every connection unless the host is told otherwise."""
    return ANONYMOUS


class Broker:
    """A node that Kafka clients can talk to, without its sockets.

    >>> from groupcoord import ManualClock, MemoryLogStore
    >>> broker = Broker(config=Config(), clock=ManualClock(), log_store=MemoryLogStore())
    >>> connection = broker.connect("/127.0.0.1")

    Feed bytes with :meth:`Connection.receive_data`. Afterwards, and after :meth:`tick`, call :meth:`run_turn` as long
    as it returns True, and send what the connections named by :meth:`take_dirty` have to say. Calls must come from one
    thread.

    Args:
        config: every limit and time-out.
        clock: where the time comes from.
        log_store: where ``__consumer_offsets`` is kept; all of it is loaded at once.
        topics: the topics that exist; an empty registry in memory by default.
        group_configs: the settings that groups have of their own; none, in memory, by default.
        administered: settings of brokers, quotas and subscriptions to metrics; none, in memory, by default.
        node: the node's id, and the address that clients are told.
        new_member_id: makes a member id from its prefix; random by default.
        new_uuid: makes ids for members that join a consumer group without one; random by default.
        producer_ids: gives ids to producers; in memory by default. Keep it together with ``log_store``.
        topic_directory: where what topics hold, and transactions, are kept; in memory by default. Keep it together with
            ``log_store``.
        data: what topics hold, where that is there already; it comes instead of ``topic_directory``.
        authorize: decides who may do what, asked wherever Kafka asks its authorizer; all is allowed if left out.
        principal_of: returns for whom a new connection speaks, by its client's host in Kafka's form; by default all
            are ``User:ANONYMOUS``.
        security: how clients log in, and by which listeners they come; one listener without log-in if left out.
        nodes: the nodes of the server, if this isn't the only one: whoever made them closes what they share.
        now_s: measures what requests cost, so that each connection gets its turn: a clock that never goes back, in
            seconds.

    Raises:
        LoadError: not one log partition can be read. If only some can't, they are logged and the others served.
        TransactionLogError: what is kept of transactions can't be read.

    Attributes:
        coordinator: the group coordinator.
        data: what topics hold.
        transactions: the transaction coordinator.
        nodes: what this node knows of the others.
        dirty: connections with output, for :meth:`take_dirty`.
        share_requests: the sessions of share consumers, and the share-partitions that are led.
        turns: connections whose requests wait to be handled, for :meth:`run_turn`.
        decode_large: decodes a large request, and refuses one that holds more entries than can be handled in one step.
        start_job: does what depends on nothing that the broker holds, or has it done and then says so in the broker's
            thread; at once if it is left as it is.
        interceptor: looks at requests before they are handled, and at answers; None: nobody does.
    """

    transactions: TransactionCoordinator
    _seen_advances = -1

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
        self.config = config
        self.clock = clock
        self.log_store = log_store
        self.topics = TopicRegistry() if topics is None else topics
        self.group_configs = GroupConfigs(config) if group_configs is None else group_configs
        self._administered = Administered() if administered is None else administered
        self.dirty: list[Connection] = []
        self.now_s, self.turns = now_s, Turns(now_s)
        self.start_job: Callable[[Job], None] = do_in_place
        self.interceptor: Interceptor | None = None
        self.security = security
        self._node = node
        self.nodes = nodes or Nodes(Leadership((node,)), self.topics)
        authorize = authorize or (None if security is None else security.authorize)
        self._authorize, self._principal_of = authorize, principal_of
        self.data = data or TopicData(config, clock, self.topics, topic_directory)
        self._shared_documents = self._make_shared_documents()
        self._notices = Notices(self.topics, now_s)
        self._topic_requests = self._make_topic_requests()
        self._ensure_offsets_topic()
        self._internal_topics = LateCreations(
            self.topics, clock.now_ms, self._create_internal_topics, lambda answer: self.coordinator.found_out(answer)
        )
        self.coordinator = GroupCoordinator(
            config=config,
            clock=clock,
            log_store=log_store,
            topics=self.topics,
            regexes=TopicMatcher(self.topics, authorize),
            **self.group_configs.for_coordinator(),
            create_internal_topics=self._internal_topics.ask,
            share=ServerShareHost(self.group_configs, self._share, self.data.whole, self._share_answered, self.turns),
            node=node,
            **self.nodes.owners(),
            new_member_id=new_member_id,
            new_uuid=new_uuid,
            authorize=authorize,
            verify_transaction=lambda request: self.transactions.verify_commit(request),
        )
        self._join_nodes()
        self._reloading = Reloading(self.coordinator, clock)
        self._reloading.load_all(self.nodes.led_log_partitions(node.node_id))
        self._producer_ids = ProducerIds() if producer_ids is None else producer_ids
        self._owns_storage = nodes is None
        self.transactions = self.nodes.transactions or self._own_transactions()
        self._handlers = self._make_handlers()
        self.decode_large: DecodeLarge = partial(decode_bounded, handled_in_portions(self._handlers))
        self.deliver_replies()

    @property
    def _share(self) -> ShareCoordination:
        """The share coordinator of all nodes."""
        return self.nodes.share_coordination(self.config, self.clock, self.data.whole, self._authorize)

    def _own_share_requests(self) -> ShareRequests:
        dead_letters = DeadLetters(self.data, self.nodes.topics_created, lambda job: self.start_job(job))
        settings_of = self.group_configs.share_settings_of
        leaders = CurrentLeaders(self.nodes.leadership, self.data)
        return ShareRequests(self.data, self._share.persister, settings_of, self._permissions, dead_letters, leaders)

    def _share_answered(self, found: ShareCoordinatorAnswered) -> None:
        """Pass on an answer of the share coordinator that was not available at once."""
        self.coordinator.found_out(found)
        self.deliver_replies()

    def _own_transactions(self) -> TransactionCoordinator:
        """Return the transaction coordinator of a node that is alone."""
        transactions = TransactionCoordinator(
            config=self.config,
            clock=self.clock,
            producer_ids=self._producer_ids,
            coordinator=self.coordinator,
            topics=self.topics,
            data=self.data,
        )
        transactions.recover()
        return transactions

    def _make_shared_documents(self) -> SharedDocuments | None:
        """Return the documents that the nodes of a cluster share; None if this server has them to itself."""
        if self.nodes.leadership.elects:
            return None
        administered = self._administered
        others: list[SharedDocument] = [
            *(self.group_configs, administered.brokers, administered.client_metrics),
            *(administered.quotas, administered.features),
        ]
        if self.security is not None:
            others += self.security.shared_documents()
        return SharedDocuments(self.topics, others)

    def reload_shared(self) -> None:
        """Reload what other nodes of a cluster may have written. Worth calling every second."""
        if self._shared_documents is None:
            return
        before = list(self.topics)
        self._shared_documents.reload()
        self._topic_requests.reloaded(before)
        self.coordinator.serve(self._administered.features.served_protocols(self.config))

    def _join_nodes(self) -> None:
        """Let the node's group coordinator be one of the cluster's."""
        self.coordinator.serve(self._administered.features.served_protocols(self.config))
        self.nodes.coordinators[self._node.node_id] = self.coordinator
        self.coordinator.on_durable = self.data.serve_offsets(self.log_store)

    def _ensure_offsets_topic(self) -> None:
        """Have the topic that the log store keeps."""
        topic = self.topics.get(OFFSETS_TOPIC)
        store_id = self.data.offsets_topic_id(topic, self.log_store)
        with self.topics.edit() as edit:
            ensure_internal_topic(edit, OFFSETS_TOPIC, self.config, store_id)

    def _make_topic_requests(self) -> TopicRequests:
        return TopicRequests(
            config=self.config,
            data=self.data,
            resources=Resources(
                self.config,
                self._node.node_id,
                self.topics,
                self.group_configs,
                self._administered.brokers,
                self._administered.client_metrics,
                self._advertised_listeners,
            ),
            nodes=self.nodes,
            notices=self._notices,
            permissions_of=self._permissions,
        )

    def _make_handlers(self) -> dict[type, Handler]:
        """Return the handler of each request type that doesn't go to the group coordinator as it is."""
        self._data_requests = DataRequests(
            self.data, self._permissions, self.transactions.verify_writer, self.nodes.leadership
        )
        self.share_requests = self._own_share_requests()
        self._login_requests = LoginRequests(self.security, self._permissions)
        parts: tuple[Wakes, ...] = (
            *(self._data_requests, self._share, self.share_requests),
            *(self.transactions, self._login_requests.refusals, self._internal_topics),
        )
        for part in parts:
            part.on_earlier.append(self.wake_earlier)
        self._wakers = parts
        self._timed: tuple[Timed, ...] = (parts[0], self.data, *parts[1:])
        self._cluster_requests = ClusterRequests(
            self.data, self.nodes, self._node_for, self._permissions, self._administered
        )
        acls = None if self.security is None else self.security.acls
        transaction_requests = TransactionRequests(
            self.coordinator, self.transactions, self.data, self.nodes, self._node.node_id, self._permissions
        )
        has_transactions = self.nodes.has_transactions
        table = table_of(
            self,
            self._topic_requests,
            self._data_requests,
            self._cluster_requests,
            self._login_requests,
            AclRequests(acls, self._permissions),
            transaction_requests if has_transactions else NoTransactions(),
            ShareStateRequests(self._share),
            self.share_requests,
            GroupRequests(
                self.coordinator,
                self._submit,
                self.topics,
                transaction_requests.prepare if has_transactions else refuse_to_find,
            ),
        )
        if GroupType.CONSUMER not in served_protocols(self.config):
            table[ConsumerGroupHeartbeat] = self._refuse_consumer_protocol
        if self._shared_documents is not None:
            self._shared_documents.retry_conflicts(table, self.reload_shared)
        return table

    def _advertised_listeners(self) -> str:
        """Return where clients find the node, as ``advertised.listeners`` says it."""
        told = "" if self.security is None else self.security.advertised_listeners(self._node.node_id)
        return told or f"PLAINTEXT://{self._node.host}:{self._node.port}"

    @property
    def node(self) -> Node:
        """The node's id, and the address that clients are told."""
        return self._node

    @node.setter
    def node(self, node: Node) -> None:
        self._node = self.coordinator.node = node
        self.nodes.leadership.update(node)

    # ------------------------------------------------------------ for the host

    def connect(self, client_host: str, listener: str = "") -> Connection:
        """Return a new connection.

        Args:
            client_host: where the client is, in Kafka's form: ``/127.0.0.1``.
            listener: the name of the listener that it came by, if there are several.
        """
        self.turns.has_newcomer = True
        principal, max_bytes = self._principal_of(client_host), self.config.socket_request_max_bytes
        if self.security is None:
            return self.connection_type(Connection)(self, client_host, principal, max_bytes)
        return self.security.connect(self, listener, client_host, principal, max_bytes)

    def connection_type(self, usual: type[ConnectionT]) -> type[ConnectionT]:
        """Return what :meth:`connect` makes of the usual type; one of its own if answers are looked at."""
        return usual

    def compact_some(self) -> bool:
        """Compact ``__consumer_offsets`` and what topics hold a little further, where their settings want it.

        Returns:
            True if it should soon be called again; False if all is clean enough for now.

        Raises:
            LogStoreError: the disk failed half way; the log partition is loaded again.
        """
        now_ms = self.clock.now_ms()
        has_more = self.data.compact_some(now_ms)
        store = self.log_store
        return (isinstance(store, CompactingStore) and store.compact_some(now_ms)) or has_more

    def take_dirty(self) -> list[Connection]:
        """Return the connections that have output or must be closed, each once, and forget them."""
        dirty, self.dirty = self.dirty, []
        return dirty

    def wake_earlier(self) -> None:
        """Have the next call of :meth:`may_wake_earlier` return True: a part's deadline may have come nearer."""
        self._seen_advances = -1

    def _stop_waking(self) -> None:
        """Have parts that other nodes go on using forget this node."""
        for part in self._wakers:
            part.on_earlier[:] = [call for call in part.on_earlier if call != self.wake_earlier]

    def may_wake_earlier(self) -> bool:
        """Tell whether :meth:`next_deadline_ms` may have come nearer since the last call, other than by :meth:`tick`.

        Cheap to ask for each request.
        """
        advances = self.coordinator.timer_advances
        if advances == self._seen_advances:
            return False
        self._seen_advances = advances
        return True

    def next_deadline_ms(self) -> int | None:
        """Return when :meth:`tick` is wanted at the latest, in milliseconds of the clock; None if nothing waits."""
        deadline_ms = self.coordinator.next_deadline_ms()
        for part in self._timed if self.interceptor is None else (*self._timed, self.interceptor):
            own_ms = part.next_deadline_ms()
            if own_ms is not None and (deadline_ms is None or own_ms < deadline_ms):
                deadline_ms = own_ms
        return deadline_ms

    def tick(self) -> None:
        """Time has passed: do everything that is due."""
        now_ms = self.clock.now_ms()
        for part in self._timed if self.interceptor is None else (*self._timed, self.interceptor):
            part.tick(now_ms)
        self.coordinator.tick()
        self.deliver_replies()

    def deliver_replies(self) -> None:
        """Pass on what the coordinator has answered, for a host whose log store acknowledges appends later."""
        deliver_replies(self.coordinator)

    def reload_failed(self) -> None:
        """Load the log partitions again that failed, as after a disk error of unknown outcome; log what goes wrong.

        Worth calling every second; one that fails again is left alone for longer each time, up to a minute.
        """
        self.transactions.tell()
        self._reloading.retry()
        self._share.reload_failed()
        self.reload_shared()
        self.data.look_after()
        self.share_requests.partitions.look_after()
        self._notices.report()
        self.deliver_replies()

    def close(self) -> None:
        """Close the coordinator, and all that is kept, unless others share it. Requests that wait are not answered."""
        self._stop_waking()
        self.coordinator.close()
        self._notices.report(ends=True)
        if self._owns_storage:
            self.data.close()
            close_store(self.log_store)

    def abandon(self) -> None:
        """Let go of files as a process does that is killed, for tests of what clients and the next start make of that.

        What is kept in memory is left as it is, as a disk would be; so is what the node shares with others.
        """
        self._stop_waking()
        if not self._owns_storage:
            return
        if isinstance(self.log_store, AbandonableStore):
            self.log_store.abandon()
        self.data.all_logs.abandon()

    # ------------------------------------------------------------ for connections

    def handle(self, connection: Connection, request: Any) -> None:
        """Handle one decoded request of a connection."""
        handler = self._handlers.get(type(request))
        if handler is None:
            self._submit(request, connection, connection.principal)
        else:
            response: Any = handler(connection, request)
            if type(response) is GeneratorType:
                work: Work[WireResponse | None] = response
                try:
                    awaited = next(work)
                except StopIteration as done:  # nearly always
                    response = done.value
                else:
                    connection.answer_when_done(work, awaited)
                    return
            if response is not None:  # else it waits, and so does the connection; or was given; or nothing is said
                connection.answer(response)

    def run_turn(self) -> bool:
        """Handle requests that wait, of one connection after the other, for some milliseconds.

        Returns:
            True if more are waiting.
        """
        return self.turns.run()

    def handle_waiting(self) -> None:
        """Handle all requests that wait, however long it takes: for hosts that look after nothing else meanwhile."""
        while self.turns.run():
            pass

    def disconnected(self, connection: Connection) -> None:
        """Forget a connection that was closed."""
        self._data_requests.waits.remove(connection)
        self.share_requests.disconnected(connection)
        self._cluster_requests.disconnected(connection)
        if self.interceptor is not None:
            self.interceptor.disconnected(connection)

    def _permissions(self, connection: Connection) -> Permissions:
        return Permissions(self._authorize, connection.principal)

    def _create_internal_topics(self, question: CreateInternalTopics) -> Mapping[str, str]:
        return self._topic_requests.create_internal_topics(question, Permissions(self._authorize, question.principal))

    def _node_for(self, connection: Connection) -> Node:
        """Return the node as the connection's client is told of it."""
        return self._node if connection.nodes is None else connection.nodes[self._node.node_id]

    # ------------------------------------------------------------ what is answered here

    @answers(Answered)
    def _already_answered(self, connection: Connection, request: Answered) -> WireResponse | None:
        return request.response

    @answers(ApiVersions)
    def _api_versions(self, connection: Connection, request: ApiVersions) -> WireResponse | None:
        connection.note_client_id()
        connection.software = request.client_software_name, request.client_software_version
        return answer_api_versions(
            request, self._node_for(connection), self.topics.cluster_id, self._administered.features
        )

    def _refuse_consumer_protocol(self, connection: Connection, request: ConsumerGroupHeartbeat) -> None:
        self._notices.protocol_is_off(connection, request)
        self._submit(request, connection, connection.principal)

    def _submit(self, request: Any, token: Token, principal: Principal) -> None:
        coordinator = self.coordinator
        coordinator.submit(request, token, principal)
        for replied, response in coordinator.take_replies():
            replied.answer(response)
