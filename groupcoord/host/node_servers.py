"""Several nodes of a server in one process, each with its ports: they crash, restart, and take over from each other.

All nodes share one storage; each has its own sockets, connections and group coordinator. So a crashed node loses what a
crashed broker loses, and nothing that was written.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress

from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.cluster.leadership import NOBODY, Leadership
from groupcoord.broker.cluster.nodes import Nodes
from groupcoord.broker.records.topic_data import NodeData
from groupcoord.broker.topics.registry import Topic
from groupcoord.clock import Clock
from groupcoord.coordinator import LoadError
from groupcoord.core.messages import Node
from groupcoord.errors import UnknownNameError
from groupcoord.host.opening import Storage
from groupcoord.host.server import Server, advertised

logger = logging.getLogger("groupcoord.host")

NODES_MAX = 100

PORT_TRIES, PORT_PAUSE_S = 20, 0.01
"""A stopped node may still hold the port."""

Sockets = Mapping[str, socket.socket]
"""Bound sockets by listener name, or ``""`` for a single listener without a name."""


class NoSuchNodeError(UnknownNameError):
    """The node does not exist, or its state does not allow the operation. The message gives the reason."""


class NodeServer(Server):
    """Sockets of one of several nodes; its requests may produce responses of the others."""

    def __init__(self, broker: Broker, socks: Sockets, number: int, running: Mapping[int, Server]) -> None:
        super().__init__(broker, socks=socks, number=number)
        self._running = running

    def flush(self) -> None:
        super().flush()
        for other in self._running.values():
            if other is not self:
                # Clients of other nodes may get responses.
                other.notice()


class NodeServers:
    """Nodes of a server: :meth:`start` runs all, :meth:`crash` and :meth:`restart` one or all.

    Call everything in the thread of the event loop.

    Attributes:
        addresses: host and port of each node, by listener name.
        on_start: is called with each node that starts.
    """

    def __init__(
        self,
        open_storage: Callable[[], Storage],
        clock: Clock,
        nodes: Sequence[Node],
        sockets: Sequence[Sockets],
        make_broker: Callable[..., Broker] = make_broker,
    ) -> None:
        self.running: dict[int, Server] = {}
        self.on_start: Callable[[Server], None] = lambda server: None
        self.addresses = {
            node.node_id: {name: sock.getsockname()[:2] for name, sock in own.items()}
            for node, own in zip(nodes, sockets, strict=True)
        }
        self._families = {name: sock.family for own in sockets for name, sock in own.items()}
        self._sockets = {node.node_id: dict(own) for node, own in zip(nodes, sockets, strict=True)}
        self._leadership = Leadership(nodes, self._first_epoch)
        self._nodes_as_told = {node.node_id: node for node in nodes}
        self._open_storage = open_storage
        self._clock = clock
        self._make_broker = make_broker
        self._storage: Storage | None = None
        self._nodes: Nodes | None = None
        self._prepared: list[Server] = []
        self._starting: set[asyncio.Task[None]] = set()

    @property
    def storage(self) -> Storage:
        """The shared storage; NoSuchNodeError if no node runs."""
        if self._storage is None:
            raise NoSuchNodeError("no node runs: all have crashed; restart() them")
        return self._storage

    @property
    def nodes(self) -> Nodes:
        if self._nodes is None:
            raise NoSuchNodeError("no node runs: all have crashed; restart() them")
        return self._nodes

    def _first_epoch(self, topic: Topic, index: int) -> int | None:
        return None if self._storage is None else self._storage.data.latest_epoch(topic, index)

    # ------------------------------------------------------------ life cycle

    def prepare(self) -> None:
        """Load the logs, which can take long, before :meth:`start` listens."""
        self._prepared = self._prepare(list(self._leadership.node_ids))

    async def start(self) -> None:
        """Start every node that does not run."""
        servers, self._prepared = self._prepared, []
        if not servers:
            node_ids = [node_id for node_id in self._leadership.node_ids if node_id not in self.running]
            await self._have_ports(node_ids)
            servers = self._prepare(node_ids)
        await self._listen(servers)

    async def _listen(self, servers: list[Server]) -> None:
        nodes = self._nodes
        try:
            for server in servers:
                await server.start()
                # crash() was called while this one was starting.
                if self._nodes is not nodes:
                    raise NoSuchNodeError("all nodes crashed while some were started")
        except BaseException:
            self._give_up(servers, nodes)
            raise
        for server in servers:
            self.running[server.broker.node.node_id] = server
            self.on_start(server)

    def _give_up(self, servers: list[Server], nodes: Nodes | None) -> None:
        for server in servers:
            server.kill()
            if self._nodes is nodes and self.running:
                self.nodes.stopped(server.broker.node.node_id)
        self.notice()

    def _prepare(self, node_ids: list[int]) -> list[Server]:
        is_first = self._nodes is None
        with ExitStack() as stack:
            if is_first:
                self._begin_life(stack)
            self.nodes.start(node_ids)
            servers = [self._make_server(node_id) for node_id in node_ids]
            stack.pop_all()
        # Markers need the coordinators of all nodes; a single one has recovered already.
        if is_first and not self._leadership.is_sole and self.nodes.transactions is not None:
            self.nodes.transactions.recover()
        return servers

    def _begin_life(self, stack: ExitStack) -> None:
        storage = self._open_storage()
        # Unlocks the directory.
        stack.callback(self._close_storage)
        self._storage = storage
        self._nodes = Nodes(self._leadership, storage.topics, storage.data)
        for number, (node, own) in enumerate(zip(self._nodes_as_told.values(), self.addresses.values(), strict=True)):
            for listener in storage.security.listeners:
                listener_node = advertised(node, listener, own[listener.name][1], number)
                storage.security.advertise(listener.name, listener_node)

    def _make_server(self, node_id: int) -> Server:
        storage, leadership = self.storage, self._leadership
        broker = storage.broker(
            self._make_broker,
            clock=self._clock,
            node=self._nodes_as_told[node_id],
            nodes=self.nodes,
            data=storage.data if leadership.is_sole else NodeData(storage.data, leadership, node_id),
        )
        sockets = self._sockets.pop(node_id)
        if leadership.is_sole:
            return Server(broker, socks=sockets)
        return NodeServer(broker, sockets, leadership.node_ids.index(node_id), self.running)

    async def stop(self) -> None:
        servers, self.running = list(self.running.values()), {}
        for server in servers:
            await server.stop()
        self._end_life()

    def crash(self, node_id: int | None = None) -> None:
        """Stop a node, or all, as if the process were killed; other nodes take over its partitions."""
        if node_id is None:
            for server in self.running.values():
                server.kill()
            self.running.clear()
            self._end_life(is_killed=True)
            return
        self.check_node(node_id)
        if node_id not in self.running:
            raise NoSuchNodeError(f"node {node_id} does not run")
        # Removed first, so that no new leader is elected on it.
        self.running.pop(node_id).kill()
        self._keep_port(node_id)
        if self.running:
            self.nodes.stopped(node_id)
            self.notice()
        else:
            self._end_life(is_killed=True)

    def _end_life(self, *, is_killed: bool = False) -> None:
        if self._nodes is not None:
            self._nodes.coordinators.clear()
        for node_id in self._leadership.node_ids:
            self._leadership.stopped(node_id)
            self._keep_port(node_id)
        if self._storage is not None:
            self._close_storage(is_killed=is_killed)

    def _close_storage(self, *, is_killed: bool = False) -> None:
        storage, self._storage, self._nodes = self._storage, None, None
        if storage is not None:
            if is_killed:
                storage.abandon()
            else:
                storage.close()

    async def restart(self, node_id: int | None = None) -> None:
        """Start a node, or all, on the same ports; a running one is stopped cleanly first."""
        if node_id is None:
            await self.stop()
            await self.start()
            return
        self.check_node(node_id)
        if node_id in self.running:
            await self.running.pop(node_id).stop()
            self._keep_port(node_id)
            if self.running:
                self.nodes.stopped(node_id)
            else:
                self._end_life()
        await self._have_ports([node_id])
        await self._listen(self._prepare([node_id]))

    def restart_soon(self, node_id: int | None = None) -> None:
        if node_id is not None:
            self.check_node(node_id)
        task = asyncio.get_running_loop().create_task(self.restart(node_id))
        self._starting.add(task)
        task.add_done_callback(self._has_started)

    def _has_started(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a node could not be started again: %s", task.exception())

    def notice(self) -> None:
        for server in self.running.values():
            server.notice()

    # ------------------------------------------------------------ ports

    def _keep_port(self, node_id: int) -> None:
        if node_id not in self._sockets:
            with suppress(OSError):  # some event loops release a socket a little later
                self._bind(node_id)

    def _bind(self, node_id: int) -> None:
        with ExitStack() as stack:
            bound = {}
            for name, address in self.addresses[node_id].items():
                bound[name] = stack.enter_context(bound_socket(address, self._families[name]))
            stack.pop_all()
        self._sockets[node_id] = bound

    async def _have_ports(self, node_ids: list[int]) -> None:
        for node_id in node_ids:
            for _ in range(PORT_TRIES):
                self._keep_port(node_id)
                if node_id in self._sockets:
                    break
                await asyncio.sleep(PORT_PAUSE_S)
            else:
                self._bind(node_id)

    def forget(self) -> None:
        for own in self._sockets.values():
            for sock in own.values():
                sock.close()
        self._sockets.clear()

    # ------------------------------------------------------------ leaders

    def check_node(self, node_id: int) -> None:
        """Raise NoSuchNodeError if a node does not exist."""
        if node_id not in self.addresses:
            known = ", ".join(map(str, self.addresses))
            if len(self.addresses) == 1:
                raise NoSuchNodeError(
                    f"there is no node {node_id}, only node {known}; start the server with nodes=2 or more"
                )
            raise NoSuchNodeError(f"there is no node {node_id}; there are {known}")

    def move(self, topic: Topic, index: int, to: int | None) -> int:
        """Make another node the leader of a partition, and return its id; NoSuchNodeError if it can't be."""
        leadership = self._leadership
        leader_id, replicas = leadership.leader(topic, index).node_id, leadership.replicas(topic, index)
        if to is None:
            to = leadership.next_leader(leader_id, leadership.in_sync(replicas))
            if to == NOBODY:
                raise NoSuchNodeError(f"no other node runs that could lead {topic.name}-{index}")
        self.check_node(to)
        if to not in replicas:
            raise NoSuchNodeError(f"node {to} is no replica of {topic.name}-{index}; there are {replicas}")
        if to not in self.running:
            raise NoSuchNodeError(f"node {to} does not run")
        if to == leader_id:
            raise NoSuchNodeError(f"node {to} leads {topic.name}-{index} already")
        try:
            self.nodes.elect(topic, index, to)
        except LoadError:
            self.notice()
            raise
        self.notice()
        return to


def bound_socket(address: tuple[str, int], family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
