"""A server as tests use it: nodes on free ports that can be killed and started again in one process."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from attrs import evolve

from groupcoord.broker.broker import Broker
from groupcoord.broker.configs.administered import Administered
from groupcoord.broker.configs.groups import GroupConfigs
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.security.security import Security
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.clock import Clock
from groupcoord.config import Config
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.messages import Node
from groupcoord.host.node_servers import NODES_MAX, NodeServers, bound_socket
from groupcoord.host.opening import Storage, open_log_store, open_producer_ids, open_topic_directory
from groupcoord.log_store import close_store
from groupcoord.testing.faults.control import Control
from groupcoord.testing.faults.rules import Rules

__tracebackhide__ = True

HOST = "127.0.0.1"


class NodesUnderTest:
    """A server on free ports, of which :meth:`start` and :meth:`stop` or :meth:`kill` make one life after the other.

    What is kept in memory outlasts all of them, as a disk would; a data directory is opened anew each time.

    Args:
        config: settings.
        topics: the topics that exist from the start, with their numbers of partitions.
        data_dir: where everything is kept; None: in memory.
        clock: where time comes from.
        nodes: how many nodes there are, with ids from 1 on.
        secure: Kafka's settings for log-in and ACLs.
        users: passwords by name, of those who may log in.
        advertised_port: the port that clients are told of the first node, and of others those after it; None: its own.
        make_broker: makes a node of what a :class:`~groupcoord.broker.broker.Broker` takes.

    Raises:
        ValueError: there are no nodes, or too many.

    Attributes:
        rules: what goes wrong with requests; of all lives.
        node_ids: the nodes, whether or not they run.
    """

    def __init__(
        self,
        config: Config,
        topics: dict[str, int],
        data_dir: Path | None,
        clock: Clock,
        *,
        nodes: int = 1,
        secure: Mapping[str, str | int | float],
        users: Mapping[str, str],
        advertised_port: int | None = None,
        make_broker: Callable[..., Broker],
    ) -> None:
        if type(nodes) is not int or not 1 <= nodes <= NODES_MAX:
            raise ValueError(f"nodes must be a number from 1 to {NODES_MAX}, not {nodes!r}")
        self.clock = clock
        self.rules = Rules()
        self._config = config
        self._topics = topics
        self._data_dir = data_dir
        self._secure = secure
        self._users = users
        self._advertised_port = advertised_port
        self._make_broker = make_broker
        self.node_ids = range(1, nodes + 1)
        self._in_memory: Storage | None = None
        self._servers: NodeServers | None = None
        self._control: Control | None = None

    @property
    def control(self) -> Control:
        """The words for what shall go wrong.

        Raises:
            RuntimeError: the server was not started.
        """
        if self._control is None:
            raise RuntimeError("the server does not run")
        return self._control

    @property
    def servers(self) -> NodeServers:
        """The nodes.

        Raises:
            RuntimeError: the server was not started.
        """
        if self._servers is None:
            raise RuntimeError("the server was not started")
        return self._servers

    @property
    def was_started(self) -> bool:
        """True from the first start on, until the end."""
        return self._servers is not None

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, by their first listeners."""
        places = (next(iter(own.values())) for own in self.servers.addresses.values())
        return ",".join(f"{HOST}:{port}" for _, port in places)

    def bootstrap_of(self, listener: str) -> str:
        """Return the addresses of all nodes, by one of several listeners.

        Raises:
            KeyError: there is no such listener.
            RuntimeError: the server was not started.
        """
        return ",".join(f"{HOST}:{own[listener][1]}" for own in self.servers.addresses.values())

    async def start(self, node_id: int | None = None) -> None:
        """Begin to serve: at first on free ports, later on the same again.

        Args:
            node_id: the node to start; None: all.

        Raises:
            OSError: no port, or no directory, is to be had.
            GroupcoordError: the data directory, or a topic, can't be used.
        """
        with ExitStack() as stack:
            if self._servers is None:
                stack.callback(self.forget)
                self._servers = self._bound()
                self._control = Control(self._servers, self.rules)
            await (self._servers.start() if node_id is None else self._servers.restart(node_id))
            stack.pop_all()

    async def stop(self, *, is_final: bool) -> None:
        """Stop in order; unless this is the end, nobody else gets the ports, though nobody listens there."""
        await self.servers.stop()
        self.rules.forget_nodes()
        if is_final:
            self.forget()

    async def kill(self) -> None:
        """Stop as a process does that is killed; the ports are kept."""
        self.servers.crash()
        self.rules.forget_nodes()

    def forget(self) -> None:
        """Give the ports back, and forget what was kept in memory."""
        self._in_memory = self._control = None
        servers, self._servers = self._servers, None
        if servers is not None:
            servers.forget()

    # ------------------------------------------------------------ what it is made of

    def _bound(self) -> NodeServers:
        """Return nodes that have ports."""
        addresses = Security(self.clock, properties=self._secure).addresses or {"": (HOST, 0)}
        with ExitStack() as stack:
            sockets: list[dict[str, socket.socket]] = []
            for number in range(len(self.node_ids)):
                own = {name: (host, port and port + number) for name, (host, port) in addresses.items()}
                sockets.append({name: stack.enter_context(bound_socket(place)) for name, place in own.items()})
            stack.pop_all()
        ports = (next(iter(own.values())).getsockname()[1] for own in sockets)
        told = [self._advertised_port + number if self._advertised_port else port for number, port in enumerate(ports)]
        nodes = [Node(node_id, HOST, port) for node_id, port in zip(self.node_ids, told, strict=True)]
        return NodeServers(self._opened, self.clock, nodes, sockets, self._make_broker)

    def _opened(self) -> Storage:
        if self._in_memory is not None:
            return self._in_memory
        with ExitStack() as stack:
            storage = self._open(stack)
            stack.pop_all()
        if self._data_dir is None:
            self._in_memory = storage
        return storage

    def _open(self, stack: ExitStack) -> Storage:
        data_dir, config = self._data_dir, self._config
        store = open_log_store(data_dir, config)
        stack.callback(close_store, store)
        topics = TopicRegistry(data_dir)
        offsets_topic = topics.get(OFFSETS_TOPIC)
        if offsets_topic is not None:
            config = evolve(config, offsets_topic_num_partitions=offsets_topic.partition_count)
        directory = open_topic_directory(data_dir, config, topics)
        for name, partition_count in self._topics.items():
            topics.ensure(name, partition_count)
        return Storage(
            config,
            store,
            topics,
            GroupConfigs(config, data_dir),
            Administered(data_dir),
            open_producer_ids(data_dir),
            TopicData(config, self.clock, topics, directory),
            Security(self.clock, data_dir, self._secure, self._users),
        )
