"""Broker of one node without sockets: bytes in, bytes out, time injected.

:class:`Broker` runs what :class:`~groupcoord.broker.parts.Parts` makes, which also has the dispatch table.
"""

from __future__ import annotations

from types import GeneratorType
from typing import Any, TypeVar

from groupcoord.broker.connection import Connection
from groupcoord.broker.parts import Parts
from groupcoord.broker.work import Token, Work, deliver_replies
from groupcoord.core.messages import Node
from groupcoord.core.router.authorization import Principal
from groupcoord.log_store import AbandonableStore, CompactingStore, close_store
from groupcoord.wire import WireResponse

ConnectionT = TypeVar("ConnectionT", bound=Connection)


class Broker(Parts):
    """Running broker of one node. What is not given is created in memory; without ``authorize`` or ``security`` all is
    allowed.

    >>> from groupcoord import Config, ManualClock, MemoryLogStore
    >>> broker = Broker(config=Config(), clock=ManualClock(), log_store=MemoryLogStore())
    >>> connection = broker.connect("/127.0.0.1")

    Feed bytes with :meth:`Connection.receive_data`. Afterwards, and after :meth:`tick`, call :meth:`run_turn` as long
    as it returns True, and send the output of the connections that :meth:`take_dirty` returns. All calls must come from
    one thread.

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

    Attributes:
        coordinator: the group coordinator, which takes the requests without a handler.
        decode_large: decodes a large frame for a client's host, with its refusal if it has too many entries.
        dirty: connections with output, for :meth:`take_dirty`.
        start_job: runs a job, in place by default, or in another thread.
        interceptor: sees requests before they are handled, and responses; None by default.
        transactions: the transaction coordinator.
        share_requests: share sessions, and the share-partitions that the node leads.

    Raises:
        LoadError: no log partition can be read. If some can, the others are logged.
        TransactionLogError: the directory of the transaction log can't be read.
    """

    @property
    def node(self) -> Node:
        """The node's id, and its address for clients."""
        return self._node

    @node.setter
    def node(self, node: Node) -> None:
        # Set again after binding, when the port of a listener on port 0 is known.
        self._node = self.coordinator.node = node
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
        principal, max_bytes = self.principal_of(client_host), self.config.socket_request_max_bytes
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
        timed = self.timed
        for part in timed if self.interceptor is None else (*timed, self.interceptor):
            own_ms = part.next_deadline_ms()
            if own_ms is not None and (deadline_ms is None or own_ms < deadline_ms):
                deadline_ms = own_ms
        return deadline_ms

    def tick(self) -> None:
        """Run everything that is due."""
        now_ms = self.clock.now_ms()
        timed = self.timed
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
        self.transactions.reload_failed()
        self.loading.retry()
        self.share.reload_failed()
        self.reload_shared()
        self.data.maintain()
        self.share_requests.partitions.report_omitted()
        self.notices.report()
        self.deliver_replies()

    def close(self) -> None:
        """Close the coordinator, and the storage unless nodes share it. Waiting requests are not answered."""
        self._stop_waking()
        self.coordinator.close()
        self.notices.report(ends=True)
        if self.owns_storage:
            self.data.close()
            close_store(self.log_store)

    def abandon(self) -> None:
        """Close files as a killed process does, for tests. Shared state and memory stay as they are."""
        self._stop_waking()
        if not self.owns_storage:
            return
        if isinstance(self.log_store, AbandonableStore):
            self.log_store.abandon()
        self.data.all_logs.abandon()

    def _stop_waking(self) -> None:
        for part in self.wakers:
            # In place and by equality: others share the list, and each access makes a new bound method.
            part.on_earlier[:] = [call for call in part.on_earlier if call != self.wake_earlier]

    # ------------------------------------------------------------ for connections

    def submit(self, request: Any, token: Token, principal: Principal) -> None:
        """Pass a request to the group coordinator; the token gets the response, now or later."""
        self.coordinator.submit(request, token, principal)
        deliver_replies(self.coordinator)

    def connection_type(self, usual: type[ConnectionT]) -> type[ConnectionT]:
        """Return the class of a new connection, by default the usual one."""
        return usual

    def handle(self, connection: Connection, request: Any) -> None:
        """Handle a decoded request; its connection gets the response, now or later."""
        handler = self._handlers.get(type(request))
        if handler is None:
            coordinator = self.coordinator
            # Inlines `submit`: every heartbeat and commit passes here.
            coordinator.submit(request, connection, connection.principal)
            deliver_replies(coordinator)
            return
        response: Any = handler(connection, request)
        if type(response) is GeneratorType:
            work: Work[WireResponse | None] = response
            try:
                awaited = next(work)
            # Most handlers end at once.
            except StopIteration as done:
                response = done.value
            else:
                connection.answer_when_done(work, awaited)
                return
        if response is not None:  # None: it comes later, was sent already, or is not expected
            connection.answer(response)

    def take_dirty(self) -> list[Connection]:
        """Return the connections that have output or must be closed, each once, and clear the list."""
        dirty, self.dirty = self.dirty, []
        return dirty

    def run_turn(self) -> bool:
        """Handle waiting requests, of one connection after the other, for some milliseconds.

        Returns:
            True if more are waiting.
        """
        return self.turns.run()

    def handle_waiting(self) -> None:
        """Handle all waiting requests, however long it takes: for hosts without other work."""
        while self.turns.run():
            pass

    def disconnected(self, connection: Connection) -> None:
        """Release what is kept for a closed connection."""
        self.fetch_requests.disconnected(connection)
        self.share_requests.disconnected(connection)
        self.telemetry.disconnected(connection)
        if self.interceptor is not None:
            self.interceptor.disconnected(connection)


make_broker = Broker
"""The class, under the name that hosts call."""
