"""Server that is one of several nodes with a shared log: each coordinates the groups of the log partitions it owns.

:mod:`groupcoord.cluster` decides on ownership and take-overs. This module publishes the owners to clients as leaders of
``__consumer_offsets``. Records of topics are not kept.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any, NamedTuple, TypeVar

from groupcoord.broker.broker import Broker
from groupcoord.broker.cluster.leadership import NOBODY, Leader, Leadership
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.connection import Connection
from groupcoord.broker.records.topic_data import NodeData
from groupcoord.broker.work import Token
from groupcoord.clock import Clock
from groupcoord.cluster.documents import SlotDocuments
from groupcoord.cluster.membership import BEAT_MS, DEAD_MS, Announcement
from groupcoord.cluster.replica import Participant, ReplicaStatus
from groupcoord.cluster.slot_log import SlotLog
from groupcoord.config.settings import INT32_MAX
from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.messages import Node
from groupcoord.core.router.authorization import Principal
from groupcoord.errors import GroupcoordError
from groupcoord.host.node_servers import Sockets
from groupcoord.host.opening import Storage
from groupcoord.host.server import Server, advertised
from groupcoord.storage.log.settings import LEADER_EPOCH

logger = logging.getLogger("groupcoord.host")

T = TypeVar("T")


class NodeIdTakenError(GroupcoordError):
    """Another live node has the same id."""


class NodeAddress(NamedTuple):
    """Address of a node in its announcements: its id, and host and port by listener name, or ``""`` for a single
    listener.
    """

    node_id: int
    listeners: Mapping[str, tuple[str, int]]

    def encoded(self) -> str:
        return json.dumps({"node_id": self.node_id, "listeners": self.listeners})

    @classmethod
    def decoded(cls, address: str) -> NodeAddress | None:
        """Parse an announced address; None if the announcing replica has no listeners for clients."""
        try:
            said = json.loads(address)
            listeners = {str(name): (str(host), int(port)) for name, (host, port) in said["listeners"].items()}
            return cls(int(said["node_id"]), listeners) if listeners else None
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def node(self, listener: str) -> Node:
        return Node(self.node_id, *self.listeners.get(listener, next(iter(self.listeners.values()))))


class LeasedBroker(Broker):
    """Broker with a lease on its log partitions.

    Attributes:
        has_told: whether a response about groups was made during the lease, and may be unsent.
    """

    has_told = False

    def handle(self, connection: Connection, request: Any) -> None:
        # Requests to the group coordinator need the lease.
        if type(request) not in self._handlers:
            self._note_lease()
        super().handle(connection, request)

    def submit(self, request: Any, token: Token, principal: Principal) -> None:
        self._note_lease()
        super().submit(request, token, principal)

    def _note_lease(self) -> None:
        self.has_told = self.has_told or not self.coordinator.is_lease_over

    def deliver_replies(self) -> None:
        # The delivery may last longer than the lease.
        before, may_tell = len(self.dirty), not self.coordinator.is_lease_over
        super().deliver_replies()
        self.has_told = self.has_told or (may_tell and len(self.dirty) > before)


class ClusterServer(Server):
    """Sockets of such a node. Responses that were not sent during the lease are discarded."""

    def __init__(self, broker: LeasedBroker, socks: Sockets) -> None:
        super().__init__(broker, socks=socks)
        self._node = broker

    def flush(self) -> None:
        node = self._node
        if node.has_told and node.coordinator.is_lease_over:
            # Others may have answered while the process was paused. A disconnected client retries.
            for connection in node.take_dirty():
                self.cut_off(connection)
        super().flush()
        node.has_told = False


class ClusterNode:
    """A node: a server, and its share of the log."""

    def __init__(
        self,
        storage: Storage,
        documents: SlotDocuments,
        clock: Clock,
        node: Node,
        sockets: Sockets,
        new_slot_log: Callable[[], AbstractAsyncContextManager[SlotLog]],
        *,
        dead_ms: int = DEAD_MS,
        beat_ms: int = BEAT_MS,
    ) -> None:
        self._dead_ms, self._beat_ms = dead_ms, beat_ms
        self._documents = documents
        self._new_slot_log = new_slot_log
        self._security = storage.security
        self._leadership = Leadership((node,), owners=self._leader)
        self._participant: Participant | None = None
        self._known: dict[str, NodeAddress] = {}
        broker = storage.broker(
            LeasedBroker,
            clock=clock,
            node=node,
            nodes=Nodes(self._leadership, storage.topics),
            data=NodeData(storage.data, self._leadership, node.node_id),
        )
        assert isinstance(broker, LeasedBroker)
        self.server = ClusterServer(broker, sockets)
        self.coordinator = broker.coordinator
        own = {
            listener.name: advertised(node, listener, _port(sockets, listener.name), 0)
            for listener in storage.security.listeners
        } or {"": node}
        self._address = NodeAddress(node.node_id, {name: (node.host, node.port) for name, node in own.items()})
        self._stack = AsyncExitStack()
        self._loop: asyncio.AbstractEventLoop

    # ------------------------------------------------------------ life cycle

    async def start(self) -> None:
        """Serve clients, and start to take log partitions over.

        Raises:
            NodeIdTakenError: another node has the same id.
            LayoutError: the log has another number of log partitions.
            SlotLogError: the engine failed.
        """
        slot_log = await self._stack.enter_async_context(self._new_slot_log())
        address, dead_ms, beat_ms = self._address.encoded(), self._dead_ms, self._beat_ms
        participant = Participant(self, slot_log, address, dead_ms=dead_ms, beat_ms=beat_ms)
        participant.on_heard = self._heard
        await self._find_id_free(slot_log, participant)
        self._participant = participant
        self._stack.push_async_callback(self.server.stop)
        await self.server.start()
        self._loop = asyncio.get_running_loop()
        self._documents.on_changed = self._look_soon
        # Before the server: others take over while it still answers.
        self._stack.push_async_callback(participant.close)
        await participant.start()

    async def _find_id_free(self, slot_log: SlotLog, participant: Participant) -> None:
        """Wait until no other node has this id, which the previous process may still seem to have."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + 2 * self._dead_ms / 1000
        # Others assign it nothing yet.
        content = participant.sharing.announcement(leaves=True)
        while True:
            beats = await slot_log.beat(participant.node_id, content)
            # A killed process seems alive for a while.
            said = [Announcement.decoded(beat.content) for beat in beats if beat.age_ms < self._dead_ms]
            others = [NodeAddress.decoded(one.address) for one in said if not one.leaves]
            taken = [one for one in others if one is not None and one.node_id == self._address.node_id]
            if not taken:
                return
            if loop.time() > deadline_s:
                where = ", ".join(f"{host}:{port}" for host, port in taken[0].listeners.values())
                raise NodeIdTakenError(f"node {taken[0].node_id} runs already at {where}: use different ids")
            await asyncio.sleep(self._dead_ms / 10_000)

    async def stop(self) -> None:
        """Release the log partitions, so that others take over at once, and stop."""
        await self._stack.aclose()
        self._documents.close()

    def status(self) -> ReplicaStatus | None:
        return None if self._participant is None else self._participant.status()

    # ------------------------------------------------------------ what a participant drives

    def change(self, change: Callable[[GroupCoordinator], T]) -> T:
        try:
            return change(self.coordinator)
        finally:
            self.server.broker.deliver_replies()
            self.server.notice()

    async def close(self) -> None:
        self.change(GroupCoordinator.close)

    def _look_soon(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self.server.broker.reload_shared()
        self.server.notice()

    # ------------------------------------------------------------ addresses for clients

    def _heard(self) -> None:
        assert self._participant is not None
        said = self._participant.sharing.membership.addresses.items()
        found = {name: address for name, text in said if (address := NodeAddress.decoded(text)) is not None}
        if found == self._known:
            return
        self._known = found
        living = {one.node_id: one for one in found.values()} | {self._address.node_id: self._address}
        self._leadership.use([one.node("") for one in living.values()])
        for listener in self._security.listeners:
            for one in living.values():
                self._security.advertise(listener.name, one.node(listener.name))

    def _leader(self, partition: int) -> Leader:
        owner = None if self._participant is None else self._participant.sharing.owner_of(partition)
        known = None if owner is None else self._known.get(owner.node_id)
        if owner is None or known is None:
            return Leader(NOBODY, LEADER_EPOCH)
        return Leader(known.node_id, min(owner.epoch, INT32_MAX))  # the epoch is the number of a slot


def _port(sockets: Sockets, listener: str) -> int:
    port: int = sockets[listener].getsockname()[1]
    return port
