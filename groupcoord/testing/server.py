"""The broker of a test: ``ServerThread`` runs nodes on free ports in a thread of this process."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from enum import Enum
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from attrs import evolve

from groupcoord.broker.broker import Broker
from groupcoord.broker.configs.administered import Administered
from groupcoord.broker.configs.groups import GroupConfigs
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.security.security import Security, split_properties
from groupcoord.broker.security.settings import with_listener
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.clock import Clock, LeapingClock, ManualClock
from groupcoord.config import Config
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.messages import Node
from groupcoord.host.node_servers import NODES_MAX, NodeServers, bound_socket
from groupcoord.host.opening import Storage, open_log_store, open_producer_ids, open_topic_directory
from groupcoord.log_store import close_store
from groupcoord.testing.asserting.assertions import Assertions, AsyncServer, callers_frames
from groupcoord.testing.asserting.records import Topics, checked_topics
from groupcoord.testing.asserting.report import LogTap, report_on
from groupcoord.testing.asserting.requests import ObservedBroker, ReceivedRequest, RequestLog, Requests
from groupcoord.testing.faults import FaultFunctionError, Rule
from groupcoord.testing.faults.control import Control
from groupcoord.testing.faults.rules import Rules
from groupcoord.testing.faults.server_faults import FaultWords

__all__ = ["Certificates", "ServerThread"]

HOST = "127.0.0.1"
TO_INSTALL = "certificates of its own need pip install 'groupcoord[serve,login]'"


class Certificates:
    """An authority, the server's certificate and those of clients, as PEM texts: ``ServerThread(tls=True)`` has one.

    ``{"ssl.ca.pem": certificates.authority_pem}`` is all that a client of confluent-kafka needs; others take an
    :meth:`ssl_context`, or files (:meth:`write_to`).

    Raises:
        ModuleNotFoundError: ``trustme`` isn't installed.

    Attributes:
        authority_pem: the certificate of the authority, for those who shall trust it.
        server_key_pem: the server's key.
        server_chain_pem: the server's certificate, for ``127.0.0.1`` and ``localhost``.
    """

    def __init__(self) -> None:
        try:
            import trustme
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"{TO_INSTALL}: {error}", name=error.name) from None
        self._authority = trustme.CA()
        self._clients: dict[str, str] = {}
        server = self._authority.issue_cert(HOST, "localhost")
        self.authority_pem = self._authority.cert_pem.bytes().decode()
        self.server_key_pem = server.private_key_pem.bytes().decode()
        self.server_chain_pem = "".join(blob.bytes().decode() for blob in server.cert_chain_pems)

    def settings(self, protocol: str) -> Mapping[str, str]:
        """Return the settings of a server that listens on a free port with them, and knows clients by theirs.

        Args:
            protocol: ``SSL``, or ``SASL_SSL`` where clients log in.
        """
        return {
            "listeners": f"{protocol}://{HOST}:0",
            "ssl.keystore.key": self.server_key_pem,
            "ssl.keystore.certificate.chain": self.server_chain_pem,
            "ssl.truststore.certificates": self.authority_pem,
        }

    def client_pem(self, name: str) -> str:
        """Return the key and the certificates of a client, which is ``User:`` and its subject, ``…,CN=name``."""
        if name not in self._clients:
            identity = self._authority.issue_cert(f"{name}@example.org", common_name=name)
            self._clients[name] = identity.private_key_and_cert_chain_pem.bytes().decode()
        return self._clients[name]

    def write_to(self, folder: str | Path, *names: str) -> Path:
        """Write ``authority.pem``, and for each name of a client ``NAME.pem`` with its key, and return the folder."""
        path = Path(folder)
        (path / "authority.pem").write_text(self.authority_pem, "ascii")
        for name in names:
            (path / f"{name}.pem").write_text(self.client_pem(name), "ascii")
        return path

    def ssl_context(self) -> ssl.SSLContext:
        """Return what a client in Python connects with that trusts the authority, and has no certificate itself."""
        return ssl.create_default_context(cadata=self.authority_pem)


__tracebackhide__ = True


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


START_TIMEOUT_S = 30.0
CALL_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
_HEARTBEAT_KINDS = ("consumer", "share", "streams")
SETTINGS: Mapping[str, int] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
    **{f"group.{kind}.assignment.interval.ms": 0 for kind in _HEARTBEAT_KINDS},
    **{f"group.{kind}.min.heartbeat.interval.ms": 100 for kind in _HEARTBEAT_KINDS},
    **{f"group.{kind}.heartbeat.interval.ms": 500 for kind in _HEARTBEAT_KINDS},
}
"""What a test wants otherwise than Kafka's defaults: nobody waits for company, or for 5 s until the next heartbeat."""

T = TypeVar("T")

# The codec loads its schemas when the first request comes; what is not installed is to be missed before that.
for _package in ("crc32c", "kio"):
    import_module(_package)


def _advertise(properties: Mapping[str, str | int | float], advertised_port: int) -> dict[str, str | int | float]:
    """Return settings that tell clients another port of the only listener, if there is one."""
    if type(advertised_port) is not int or not 1 <= advertised_port <= 65_535:
        raise ValueError(f"advertised_port must be a number from 1 to 65535, not {advertised_port!r}")
    listeners = str(properties.get("listeners", ""))
    if "," in listeners or "advertised.listeners" in properties:
        raise ValueError("advertised_port is for one listener: set its port in advertised.listeners")
    if not listeners:
        return dict(properties)
    return {**properties, "advertised.listeners": f"{listeners.partition('://')[0]}://{HOST}:{advertised_port}"}


class _End(Enum):
    """How a life of a server ends."""

    STOP = "in order, and for good"
    PAUSE = "in order"
    KILL = "as a process that is killed"


class ServerClock:
    """The clock of a server that runs in a thread: for sessions, rebalances, retention and all that waits for time."""

    def __init__(self, server: ServerThread) -> None:
        self._server = server

    def now_ms(self) -> int:
        """Return the server's time in milliseconds since the Unix epoch."""
        return self._server.run(lambda broker: broker.clock.now_ms())

    def advance(self, duration_ms: int) -> None:
        """Let time pass at once; whatever falls due on the way happens at its moment, in its order.

        Clients notice what happens and not how long it took: nobody sends a heartbeat meanwhile, so every member
        expires whose session is shorter than the duration. For time-outs of their own they have their own clocks.

        Raises:
            ValueError: the duration is negative.
            RuntimeError: the server does not run.
        """
        self._server.control(lambda control: control.advance(duration_ms))


class ServerThread(FaultWords, Assertions):
    """A broker on a free port of this machine: ``with ServerThread(topics={"orders": 3}) as server: server.bootstrap``.

    ``async with`` does the same without holding up the event loop, and :attr:`asyncio` has what is awaited then.

    Settings are Kafka's defaults, but groups of every kind assign at once (``group.initial.rebalance.delay.ms``,
    ``group.consumer.assignment.interval.ms`` and their like for share and streams groups are 0), and members hear of it
    soon (``group.consumer.heartbeat.interval.ms`` and its like are 500). Clients choose the protocol, as with any
    broker: those with ``group.protocol=consumer`` get consumer groups (KIP-848).

    Faults are methods of :class:`~groupcoord.testing.faults.server_faults.FaultWords`, queries and assertions those of
    :class:`~groupcoord.testing.asserting.assertions.Assertions`.

    Args:
        topics: the topics that exist from the start, with their numbers of partitions; or their names alone, for
            ``num.partitions`` each, which is 1.
        settings: keys as Kafka spells them (or with underscores), and their values.
        data_dir: where offsets, groups and topics with their records are kept; None: in memory. A server started later
            on the same directory goes on where this one stopped.
        clock: a clock that stands still unless the test turns it; None: real time, which the test can turn forward.
        nodes: how many nodes there are, with ids from 1 on, and a port each.
        users: passwords by name, of those who may log in by PLAIN and SCRAM on listeners that ask for it.
        tls: clients connect with TLS, and certificates are made for that; it needs the extra ``login``.
        advertised_port: the port that the server tells clients to connect to, such as that of a proxy before it; of
            several nodes the first one's. ``port`` and ``bootstrap`` are still where the server itself listens.

    Raises:
        ConfigError: a setting is unknown, or its value is not allowed.
        TypeError, ValueError: another argument isn't what it should be; the message says what is wrong.
        TopicError: a topic can't be called that.

    Attributes:
        port: where it listens; of several nodes the first.
        certificates: those that were made for ``tls``; else None.
        asyncio: what takes time, to be awaited.
    """

    def __init__(
        self,
        *,
        topics: Topics | None = None,
        settings: Mapping[str, str | int | float] | None = None,
        data_dir: str | Path | None = None,
        clock: ManualClock | None = None,
        nodes: int = 1,
        users: Mapping[str, str] | None = None,
        tls: bool = False,
        advertised_port: int | None = None,
    ) -> None:
        own = {key.replace("_", "."): value for key, value in (settings or {}).items()}
        self.certificates = Certificates() if tls else None
        protocol = "SASL_SSL" if "sasl.enabled.mechanisms" in own else "SSL"
        secured = {} if self.certificates is None else self.certificates.settings(protocol)
        properties = with_listener({**SETTINGS, **secured, **own}, HOST, 0)
        if advertised_port is not None:
            properties = _advertise(properties, advertised_port)
        super().__init__()
        usual, secure = split_properties(properties)
        config = Config.from_properties(usual)
        if data_dir is not None and not isinstance(data_dir, str | Path):
            raise TypeError(f"data_dir must be a path, not {data_dir!r}; only the marker of the fixture takes True")
        if clock is not None and not isinstance(clock, ManualClock):
            raise TypeError(f"clock must be a ManualClock, or None for real time, not {clock!r}")
        kept_clock = clock or LeapingClock()
        Security(kept_clock, properties=secure)  # what is wrong with it is to be told now
        self._request_log = RequestLog(kept_clock.now_ms)
        self._cluster = NodesUnderTest(
            config,
            checked_topics(topics, config),
            None if data_dir is None else Path(data_dir),
            kept_clock,
            nodes=nodes,
            secure=secure,
            users=users or {},
            advertised_port=advertised_port,
            make_broker=partial(ObservedBroker, request_log=self._request_log),
        )
        self._log_tap = LogTap()
        self.asyncio = AsyncServer(self)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._ending: asyncio.Future[_End]
        self.port = 0

    @property
    def bootstrap(self) -> str:
        """What clients are to be given as ``bootstrap.servers``: the addresses of all nodes, separated by commas."""
        return self._cluster.bootstrap if self._cluster.was_started else f"{HOST}:{self.port}"

    def bootstrap_of(self, listener: str) -> str:
        """What clients of one of several listeners are to be given.

        Raises:
            KeyError: there is no such listener.
            RuntimeError: the server was not started.
        """
        return self._cluster.bootstrap_of(listener)

    def __enter__(self) -> ServerThread:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except FaultFunctionError as fault:
            if error is None:
                raise
            error.add_note(f"{fault}")

    async def __aenter__(self) -> ServerThread:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, traceback)

    def start(self) -> None:
        """Start to serve; a server that was stopped can be started again, on another port.

        Raises:
            RuntimeError: it runs already, or did not start in time.
            OSError: no port, or no directory, is to be had.
            GroupcoordError: the data directory, or a topic, can't be used.
        """
        self._start(None)

    def _start(self, node: int | None) -> None:
        if self._thread is not None:
            raise RuntimeError("the server runs already")
        started: Future[None] = Future()
        thread = threading.Thread(target=self._run, args=(started, node), name="groupcoord-server", daemon=True)
        thread.start()
        try:
            started.result(START_TIMEOUT_S)
        except TimeoutError:
            raise RuntimeError(f"the server did not start within {START_TIMEOUT_S:g} s") from None
        self._thread = thread

    def stop(self) -> None:
        """Close every connection and the data directory; nothing happens if the server does not run.

        What was kept in memory is gone then.

        Raises:
            RuntimeError: it did not stop in time.
            FaultFunctionError: a function that was given to :meth:`on` has raised.
        """
        self._end(_End.STOP)
        self._cluster.forget()
        error = self._cluster.rules.take_error()
        if error is not None:
            raise error

    def crash(self, node: int | None = None) -> None:
        """Kill the server: connections break off, nothing more is answered, written or flushed, and nobody listens.

        :meth:`restart` starts it again. What was acknowledged is there then: from the data directory or, without one,
        from memory, which only :meth:`stop` forgets. Who was waiting, sessions and all else that groups don't write is
        lost.

        Args:
            node: kill this node alone: others lead and coordinate what it did, with what the log holds.

        Raises:
            RuntimeError: the server does not run.
            NoSuchNodeError: there is no such node, or it does not run.
        """
        if node is not None:
            self.control(lambda control: control.crash(node))
            return
        if self._thread is None:
            raise RuntimeError(self._why_not_running())
        self._end(_End.KILL)

    def restart(self, node: int | None = None) -> None:
        """Start again on the same port, with what the log holds; a server that runs is stopped in order before.

        Args:
            node: start this node alone; it leads nothing until it is elected, unless nobody else could.

        Raises:
            RuntimeError: it was never started, or was stopped for good.
            NoSuchNodeError: there is no such node.
        """
        servers = self._cluster.servers
        if node is not None and self._thread is not None:
            asyncio.run_coroutine_threadsafe(servers.restart(node), self._loop).result(START_TIMEOUT_S)
            return
        self._end(_End.PAUSE)
        self._start(node)

    def _end(self, how: _End) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._loop.call_soon_threadsafe(self._ending.set_result, how)
        thread.join(STOP_TIMEOUT_S)
        if thread.is_alive():
            raise RuntimeError(f"the server did not stop within {STOP_TIMEOUT_S:g} s")

    def run(self, function: Callable[[Broker], T]) -> T:
        """Call a function in the server's thread with its broker, and return what it returns.

        That is how a test looks inside: ``server.run(lambda broker: broker.coordinator.counters.as_dict())``. What is
        called like this may itself ask the server.

        Raises:
            RuntimeError: the server does not run.
            TimeoutError: the function took too long.
        """
        return self.control(lambda control: function(control.broker))

    def submit(self, function: Callable[[Broker], T]) -> Future[T]:
        """Have a function called in the server's thread, and return at once what its result will be in.

        Raises:
            RuntimeError: the server does not run.
        """
        return self._submit(lambda control: function(control.broker))

    def control(self, function: Callable[[Control], T]) -> T:
        """Call a function in the server's thread with what can be made to go wrong; see :meth:`run`."""
        if threading.current_thread() is self._thread:
            return function(self._cluster.control)
        try:
            return self._submit(function).result(CALL_TIMEOUT_S)
        except Exception as error:
            raise error.with_traceback(callers_frames(error)) from error.__cause__

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes that run, by their ids."""
        return () if self._thread is None else tuple(sorted(self._cluster.servers.running))

    def _submit(self, function: Callable[[Control], T]) -> Future[T]:
        if self._thread is None:
            raise RuntimeError(self._why_not_running())
        done: Future[T] = Future()

        def call() -> None:
            if not done.set_running_or_notify_cancel():
                return
            control = self._cluster.control
            try:
                result = function(control)
                control.flush()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(result)

        self._loop.call_soon_threadsafe(call)
        return done

    def _why_not_running(self) -> str:
        if self._cluster.was_started:
            return "the server has crashed; restart() it"
        return "the server does not run: it was not started, or was stopped"

    @property
    def requests(self) -> Requests:
        """What has come, decoded, with the answers; of a server that has stopped, too.

        The last 10,000 are kept, and 16 MiB of records in them.
        """
        if self._thread is None:
            return self._request_log.requests()
        return self.run(lambda _: self._request_log.requests())

    def watch(self, function: Callable[[ReceivedRequest], None]) -> None:
        """Have a function called with each request when it comes, and again when it is answered or its client is gone.

        It is called in the server's thread, which serves nobody meanwhile; what it raises ends the connection.
        """
        self._request_log.watchers.append(function)

    @property
    def request_count(self) -> int:
        """How many requests have come, the number of the last one."""
        return self._request_log.count

    def report(self, after: int = 0) -> str:
        """Return what a person wants to know whose test has failed: warnings, faults, groups, what clients asked last.

        pytest shows it with a test that fails and has the server from a fixture.

        Args:
            after: tell of requests alone that came after the one with this number, and of the groups that they name.
        """
        tells_nodes = len(self._cluster.node_ids) > 1
        requests = self.requests.after(after)
        group_ids = {group_id for request in requests for group_id in request.group_ids} if after else None
        report = partial(report_on, requests=requests, log_lines=self._log_tap.lines(), tells_nodes=tells_nodes)
        if self._thread is None:
            return report(None, faults=list(map(str, self._cluster.rules.all())))
        return self.control(
            lambda control: report(
                control.broker if self.nodes else None, faults=control.describe_faults(), group_ids=group_ids
            )
        )

    def mend(self) -> None:
        """Let nothing go wrong on purpose any more: faults are cleared, and nodes that have crashed run again.

        Time, and who leads what, stay as they are. A server that was stopped for good is left alone.

        Raises:
            FaultFunctionError: a function that was given to :meth:`on` has raised.
        """
        if self._thread is None:
            if not self._cluster.was_started:
                return
            self.restart()
        for node in set(self._cluster.node_ids).difference(self.nodes):
            self.restart(node)
        self.clear_faults()
        self.raise_errors()

    def clear_requests(self) -> None:
        """Forget what has come."""
        self.run(lambda _: self._request_log.clear())

    def remove_rule(self, rule: Rule) -> None:
        """Remove a rule, also while the server has crashed."""
        if self._thread is None:
            self._cluster.rules.remove(rule)
        else:
            self.control(lambda control: control.rules.remove(rule))

    @property
    def clock(self) -> ServerClock:
        """The server's clock, which the test can turn forward."""
        return ServerClock(self)

    def advance(self, duration_ms: int) -> None:
        """Let time pass on the server's clock; see :meth:`ServerClock.advance`."""
        self.clock.advance(duration_ms)

    # ------------------------------------------------------------ in the thread

    def _run(self, started: Future[None], node: int | None) -> None:
        try:
            asyncio.run(self._serve(started, node))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, started: Future[None], node: int | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._ending = self._loop.create_future()
        cluster = self._cluster
        with self._log_tap:
            await cluster.start(node)
            self.port = int(cluster.bootstrap.partition(",")[0].rpartition(":")[2])
            started.set_result(None)
            how = await self._ending
            if how is _End.KILL:
                await cluster.kill()
            else:
                await cluster.stop(is_final=how is _End.STOP)
