"""A server as tests use it: a broker and its sockets, which can be killed and started again in one process."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from attrs import evolve, frozen

from groupcoord.clock import Clock
from groupcoord.config import Config
from groupcoord.core.messages import Node
from groupcoord.faults.control import Control
from groupcoord.faults.rules import Rules
from groupcoord.host.broker import Broker
from groupcoord.host.group_configs import GroupConfigs
from groupcoord.host.opening import open_log_store, open_topic_directory, open_transaction_log
from groupcoord.host.security.security import Security
from groupcoord.host.server import Server
from groupcoord.host.topic_data import TopicData
from groupcoord.host.topics import OFFSETS_TOPIC, TopicRegistry
from groupcoord.host.transaction_log import MemoryTransactionLog
from groupcoord.log_store import ClosableStore, LogStore

HOST = "127.0.0.1"
NODE_ID = 1


@frozen
class Kept:
    """What a server keeps its data in, on disk or in memory."""

    config: Config
    log_store: LogStore
    topics: TopicRegistry
    group_configs: GroupConfigs
    transaction_log: MemoryTransactionLog
    data: TopicData
    security: Security


class Cluster:
    """A server on free ports, of which :meth:`start` and :meth:`stop` or :meth:`kill` make one life after the other.

    What is kept in memory outlasts all of them, as a disk would; a data directory is opened anew each time.

    Args:
        config: settings.
        topics: the topics that exist from the start, with their numbers of partitions.
        data_dir: where everything is kept; None: in memory.
        clock: where time comes from.
        secure: Kafka's settings for log-in and ACLs.
        users: passwords by name, of those who may log in.
        make_broker: makes the broker of each life, of what a :class:`~groupcoord.host.broker.Broker` takes.

    Attributes:
        rules: what goes wrong with requests; of all lives.
        control: the words for that; of the present life.
    """

    def __init__(
        self,
        config: Config,
        topics: dict[str, int],
        data_dir: Path | None,
        clock: Clock,
        *,
        secure: Mapping[str, str | int | float],
        users: Mapping[str, str],
        make_broker: Callable[..., Broker],
    ) -> None:
        self.clock = clock
        self.rules = Rules()
        self.control: Control
        self._server: Server
        self._config = config
        self._topics = topics
        self._data_dir = data_dir
        self._secure = secure
        self._users = users
        self._make_broker = make_broker
        self._in_memory: Kept | None = None
        self._sockets: dict[str, socket.socket] = {}  # by listener; "" where there is but one without a name
        self._addresses: dict[str, tuple[str, int]] = {}

    async def start(self) -> None:
        """Begin to serve: at first on free ports, later on the same again.

        Raises:
            OSError: no port, or no directory, is to be had.
            GroupcoordError: the data directory, or a topic, can't be used.
        """
        with ExitStack() as stack:
            kept = self._in_memory or self._open(stack)
            if self._data_dir is None:
                self._in_memory = kept
            if not self._sockets:
                stack.callback(self.forget)
                self._bind(kept.security.addresses or {"": (HOST, 0)})
            node = Node(NODE_ID, HOST, self.ports[0])
            server = Server(self._broker_over(kept, node), socks=self._sockets)
            await server.start()
            stack.pop_all()
        self._server = server
        self.control = Control(server, self.rules)

    async def stop(self, *, is_final: bool) -> None:
        """Stop in order; unless this is the end, nobody else gets the ports, though nobody listens there."""
        await self._server.stop()
        self._end_life(is_final=is_final)

    async def kill(self) -> None:
        """Stop as a process does that is killed; the ports are kept."""
        await self._server.abort()
        self._end_life(is_final=False)

    def forget(self) -> None:
        """Give the ports back, and forget what was kept in memory."""
        self._in_memory = None
        for sock in self._sockets.values():
            sock.close()
        self._sockets, self._addresses = {}, {}

    @property
    def ports(self) -> list[int]:
        """The ports of the listeners, once there are any."""
        return [address[1] for address in self._addresses.values()]

    def port_of(self, listener: str) -> int:
        """Return the port of one of several listeners.

        Raises:
            KeyError: there is no such listener, or the server was never started.
        """
        return self._addresses[listener][1]

    def _bind(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        for listener, (host, port) in addresses.items():
            sock = self._sockets[listener] = bound_socket(host, port)
            self._addresses[listener] = (host, sock.getsockname()[1])

    def _end_life(self, *, is_final: bool) -> None:
        self.rules.forget_broker()
        if is_final:
            self.forget()
        else:
            self._bind(self._addresses.copy())

    def _broker_over(self, kept: Kept, node: Node) -> Broker:
        return self._make_broker(
            config=kept.config,
            clock=self.clock,
            log_store=kept.log_store,
            topics=kept.topics,
            group_configs=kept.group_configs,
            node=node,
            transaction_log=kept.transaction_log,
            data=kept.data,
            security=kept.security,
        )

    def _open(self, stack: ExitStack) -> Kept:
        data_dir, config = self._data_dir, self._config
        store = open_log_store(data_dir, config)
        if isinstance(store, ClosableStore):
            stack.callback(store.close)
        topics = TopicRegistry(data_dir)
        offsets_topic = topics.get(OFFSETS_TOPIC)
        if offsets_topic is not None:
            config = evolve(config, offsets_topic_num_partitions=offsets_topic.partition_count)
        directory = open_topic_directory(data_dir, config, topics)
        for name, partition_count in self._topics.items():
            topics.ensure(name, partition_count)
        return Kept(
            config,
            store,
            topics,
            GroupConfigs(config, data_dir),
            open_transaction_log(data_dir),
            TopicData(config, self.clock, topics, directory),
            Security(self.clock, data_dir, self._secure, self._users),
        )


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that has a port, and on which nobody listens yet.

    Raises:
        OSError: the port is taken.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
