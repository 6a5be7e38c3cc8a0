"""Broker of one node without sockets: bytes in, bytes out, time injected.

:func:`make_broker` builds one from :class:`~groupcoord.broker.parts.Parts`, which also has the dispatch table.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.cluster.nodes import Administered, Nodes
from groupcoord.broker.configs.definitions import GroupConfigs
from groupcoord.broker.connection import Connection, Dispatcher
from groupcoord.broker.parts import Parts
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.security.principals import ANONYMOUS
from groupcoord.broker.security.security import Security
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.transactions.log import ProducerIds
from groupcoord.broker.work import deliver_replies
from groupcoord.clock import Clock
from groupcoord.config import Config
from groupcoord.coordinator.group_coordinator import random_member_id, random_uuid
from groupcoord.core.messages import Node
from groupcoord.core.router.authorization import Authorize, Principal
from groupcoord.log_store import AbandonableStore, CompactingStore, LogStore, close_store

if TYPE_CHECKING:
    from groupcoord.storage.data_directory import DataDirectory

DEFAULT_NODE = Node(1, "127.0.0.1", 9092)


def anonymous(client_host: str) -> Principal:
    """Return the principal of connections without a log-in."""
    return ANONYMOUS


class Broker(Dispatcher):
    """Running broker of one node, made by :func:`make_broker`.

    >>> from groupcoord import ManualClock, MemoryLogStore
    >>> broker = make_broker(config=Config(), clock=ManualClock(), log_store=MemoryLogStore())
    >>> connection = broker.connect("/127.0.0.1")

    Feed bytes with :meth:`Connection.receive_data`. Afterwards, and after :meth:`tick`, call :meth:`run_turn` as long
    as it returns True, and send the output of the connections that :meth:`take_dirty` returns. All calls must come from
    one thread.

    Attributes:
        coordinator: the group coordinator.
        data: the logs of topics.
        transactions: the transaction coordinator.
        nodes: the nodes of the server.
        share_requests: share sessions, and the share-partitions that the node leads.
        parts: all parts.
    """

    def __init__(self, parts: Parts) -> None:
        # Only the request types of the second table are used.
        super().__init__(
            parts.turns, parts.handlers(), parts.coordinator, frozenset(parts.handlers_in_steps), parts.authorize
        )
        self.parts = parts
        self.config, self.clock, self.log_store = parts.config, parts.clock, parts.log_store
        self.topics, self.data, self.nodes = parts.topics, parts.data, parts.nodes
        self.group_configs, self.security = parts.group_configs, parts.security
        self.transactions, self.share_requests = parts.transactions, parts.share_requests
        self._is_woken = True
        self._seen_advances = -1
        # Looked up at each call, since the host replaces start_job later.
        parts.dead_letters.start_job = lambda job: self.start_job(job)
        # Appended, not assigned: nodes of one process have common transaction and share coordinators.
        for part in parts.wakers:
            part.on_earlier.append(self.wake_earlier)
        self.deliver_replies()

    @property
    def node(self) -> Node:
        """The node's id, and its address for clients."""
        return self.parts.node

    @node.setter
    def node(self, node: Node) -> None:
        # Set again after binding, when the port of a listener on port 0 is known.
        self.parts.node = self.coordinator.node = node
        self.nodes.leadership.update(node)

    # ------------------------------------------------------------ for the host

    def connect(self, client_host: str, listener: str = "") -> Connection:
        """Return a new connection.

        Args:
            client_host: the client's address in Kafka's form: ``/127.0.0.1``.
            listener: the name of its listener, if there are several.
        """
        # The next turn is short, so that more waiting connections are accepted.
        self.turns.has_newcomer = True
        principal, max_bytes = self.parts.principal_of(client_host), self.config.socket_request_max_bytes
        return self.security.connect(self, listener, client_host, principal, max_bytes)

    def compact_some(self) -> bool:
        """Compact a portion of ``__consumer_offsets`` and of topics, as their settings demand.

        Returns:
            True if there is more to compact now.

        Raises:
            LogStoreError: the disk failed; the log partition is loaded again.
        """
        now_ms = self.clock.now_ms()
        has_more = self.data.compact_some(now_ms)
        store = self.log_store
        # Both get their portion in each call, whether or not the other has more.
        return (isinstance(store, CompactingStore) and store.compact_some(now_ms)) or has_more

    def wake_earlier(self) -> None:
        """Note that the deadline of a part may have come nearer."""
        self._is_woken, self._seen_advances = True, -1

    def nearer_deadline_ms(self) -> int | None:
        """Return a deadline that may have come nearer since the last call, or None. Cheap enough for each request."""
        advances = self.coordinator.timer_advances
        # Nearly always: a heartbeat only postpones its session's timer.
        if advances == self._seen_advances:
            return None
        self._seen_advances = advances
        # Only the coordinator's timers have moved, so the other parts need no look.
        if not self._is_woken:
            return self.coordinator.next_deadline_ms()
        self._is_woken = False
        return self.next_deadline_ms()

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next :meth:`tick` in milliseconds of the clock; None if no timer runs."""
        deadline_ms = self.coordinator.next_deadline_ms()
        timed = self.parts.timed
        for part in timed if self.interceptor is None else (*timed, self.interceptor):
            own_ms = part.next_deadline_ms()
            if own_ms is not None and (deadline_ms is None or own_ms < deadline_ms):
                deadline_ms = own_ms
        return deadline_ms

    def tick(self) -> None:
        """Run everything that is due."""
        now_ms = self.clock.now_ms()
        timed = self.parts.timed
        for part in timed if self.interceptor is None else (*timed, self.interceptor):
            part.tick(now_ms)
        # Its timers complete joins and expire sessions; responses wait in it until delivered.
        self.coordinator.tick()
        self.deliver_replies()

    def deliver_replies(self) -> None:
        """Send the coordinator's responses; needed after appends that the log store acknowledges later."""
        deliver_replies(self.coordinator)

    def reload_failed(self) -> None:
        """Load failed log partitions again, and do what is due once a second: log lines, shared documents, checks of
        files.

        The pause before the next attempt doubles with each failure, up to a minute.
        """
        parts = self.parts
        self.transactions.reload_failed()
        parts.loading.retry()
        parts.share.reload_failed()
        parts.reload_shared()
        self.data.maintain()
        self.share_requests.partitions.report_omitted()
        parts.notices.report()
        self.deliver_replies()

    def reload_shared(self) -> None:
        """Reload documents that other nodes of a cluster may have written, sooner than :meth:`reload_failed`."""
        self.parts.reload_shared()

    def close(self) -> None:
        """Close the coordinator, and the storage unless nodes share it. Waiting requests are not answered."""
        self._stop_waking()
        self.coordinator.close()
        self.parts.notices.report(ends=True)
        if self.parts.owns_storage:
            self.data.close()
            close_store(self.log_store)

    def abandon(self) -> None:
        """Close files as a killed process does, for tests. Shared state and memory stay as they are."""
        self._stop_waking()
        if not self.parts.owns_storage:
            return
        if isinstance(self.log_store, AbandonableStore):
            self.log_store.abandon()
        self.data.all_logs.abandon()

    def _stop_waking(self) -> None:
        for part in self.parts.wakers:
            # In place and by equality: others share the list, and each access makes a new bound method.
            part.on_earlier[:] = [call for call in part.on_earlier if call != self.wake_earlier]

    # ------------------------------------------------------------ for connections

    def disconnected(self, connection: Connection) -> None:
        self.parts.fetch_requests.disconnected(connection)
        self.share_requests.disconnected(connection)
        self.parts.telemetry.disconnected(connection)
        if self.interceptor is not None:
            self.interceptor.disconnected(connection)


def make_broker(
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
    broker_type: Callable[[Parts], Broker] = Broker,
) -> Broker:
    """Return a broker. What is not given is created in memory; without ``authorize`` or ``security`` all is allowed.

    Args:
        config, clock, log_store: the settings, the clock, the store of ``__consumer_offsets``.
        topics, group_configs, administered: the topics, the configs of groups, what else administrators have set.
        node: the node's id, and its address for clients.
        new_member_id, new_uuid: return ids of members of classic groups, by a prefix, and of consumer groups.
        producer_ids, topic_directory: the producer ids, and the directory of topics. Store them with ``log_store``.
        data: open logs of topics, in place of ``topic_directory``.
        authorize: the authorizer, called where Kafka calls its own.
        principal_of: returns the principal of a new connection, by the client's host in Kafka's form.
        security: listeners and log-in; one listener without log-in by default.
        nodes: the nodes of the server, if there are several; their creator closes shared storage.
        now_s: a monotonic clock in seconds, which measures the cost of requests.
        broker_type: the class of the broker.

    Raises:
        LoadError: no log partition can be read. If some can, the others are logged.
        TransactionLogError: the directory of the transaction log can't be read.
    """
    # Not `or`: an empty registry has length 0, and is false.
    topics = TopicRegistry() if topics is None else topics
    security = security or Security(clock)
    parts = Parts(
        config=config,
        clock=clock,
        log_store=log_store,
        topics=topics,
        group_configs=group_configs or GroupConfigs(config),
        administered=administered or Administered(),
        node=node,
        nodes=nodes or Nodes(Leadership((node,)), topics),
        owns_storage=nodes is None,
        data=data or TopicData(config, clock, topics, topic_directory),
        producer_ids=producer_ids or ProducerIds(),
        security=security,
        authorize=authorize or security.authorize,
        principal_of=principal_of,
        new_member_id=new_member_id,
        new_uuid=new_uuid,
        now_s=now_s,
    )
    return broker_type(parts)
