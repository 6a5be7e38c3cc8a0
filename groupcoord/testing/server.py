"""Broker of a test: ``ServerThread`` runs nodes on free ports in a thread of this process.

Use it, or the pytest fixture ``groupcoord_server``, to test a program that is a Kafka client.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from attrs import define, field

from groupcoord.broker.broker import Broker
from groupcoord.broker.security.security import Security, split_properties
from groupcoord.broker.security.settings import with_listener
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.clock import Clock, LeapingClock, ManualClock
from groupcoord.config import Config
from groupcoord.core.messages import Node
from groupcoord.host.node_servers import NODES_MAX, NodeServers, bound_socket
from groupcoord.host.opening import Storage, open_storage
from groupcoord.testing.asserting.assertions import Assertions, AsyncServer, callers_frames
from groupcoord.testing.asserting.records import Topics, checked_topics
from groupcoord.testing.asserting.report import LogTap, report_on
from groupcoord.testing.asserting.requests import ObservedBroker, ReceivedRequest, RequestLog, Requests
from groupcoord.testing.faults import FaultFunctionError, Rule
from groupcoord.testing.faults.control import Control
from groupcoord.testing.faults.rules import Rules
from groupcoord.testing.faults.server_faults import FaultWords

HOST = "127.0.0.1"
TO_INSTALL = "generated certificates need pip install 'groupcoord[serve,login]'"


class Certificates:
    """Certificate authority with the certificates of a server and its clients, as PEM text; ``ServerThread(tls=True)``
    has one.

    confluent-kafka needs only ``{"ssl.ca.pem": certificates.authority_pem}``; other clients take :meth:`ssl_context` or
    files (:meth:`write_to`).

    Raises:
        ModuleNotFoundError: ``trustme`` is not installed.

    Attributes:
        authority_pem: certificate of the authority.
        server_key_pem: key of the server.
        server_chain_pem: certificate of the server, for ``127.0.0.1`` and ``localhost``.
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
        """Return the settings of a server with these certificates on a free port; ``ssl.client.auth`` is not set.

        Args:
            protocol: ``SSL``, or ``SASL_SSL`` if clients log in.
        """
        return {
            "listeners": f"{protocol}://{HOST}:0",
            "ssl.keystore.key": self.server_key_pem,
            "ssl.keystore.certificate.chain": self.server_chain_pem,
            "ssl.truststore.certificates": self.authority_pem,
        }

    def client_pem(self, name: str) -> str:
        """Return the key and certificates of a client; its principal is ``User:CN=name,…``."""
        if name not in self._clients:
            identity = self._authority.issue_cert(f"{name}@example.org", common_name=name)
            self._clients[name] = identity.private_key_and_cert_chain_pem.bytes().decode()
        return self._clients[name]

    def write_to(self, folder: str | Path, *names: str) -> Path:
        """Write ``authority.pem``, and ``NAME.pem`` with key and certificates for each client; return the folder."""
        path = Path(folder)
        (path / "authority.pem").write_text(self.authority_pem, "ascii")
        for name in names:
            (path / f"{name}.pem").write_text(self.client_pem(name), "ascii")
        return path

    def ssl_context(self) -> ssl.SSLContext:
        """Return an SSL context that trusts the authority and has no client certificate."""
        return ssl.create_default_context(cadata=self.authority_pem)


__tracebackhide__ = True


@define(eq=False)
class NodesUnderTest:
    """Nodes on free ports that can start, stop and crash repeatedly.

    Memory outlives a restart, as a disk would; a data directory is opened again each time.
    """

    _config: Config
    _topics: dict[str, int]
    _data_dir: Path | None
    clock: Clock
    node_ids: range
    _secure: Mapping[str, str | int | float]
    _users: Mapping[str, str]
    _advertised_port: int | None
    _make_broker: Callable[..., Broker]
    rules: Rules = field(factory=Rules)
    _in_memory: Storage | None = None
    _servers: NodeServers | None = None
    _control: Control | None = None

    @property
    def control(self) -> Control:
        if self._control is None:
            raise RuntimeError("the server does not run")
        return self._control

    @property
    def servers(self) -> NodeServers:
        if self._servers is None:
            raise RuntimeError("the server was not started")
        return self._servers

    @property
    def was_started(self) -> bool:
        return self._servers is not None

    @property
    def bootstrap(self) -> str:
        places = (next(iter(own.values())) for own in self.servers.addresses.values())
        return ",".join(f"{HOST}:{port}" for _, port in places)

    def bootstrap_of(self, listener: str) -> str:
        return ",".join(f"{HOST}:{own[listener][1]}" for own in self.servers.addresses.values())

    async def start(self, node_id: int | None = None) -> None:
        with ExitStack() as stack:
            if self._servers is None:
                stack.callback(self.forget)
                self._servers = self._bound()
                self._control = Control(self._servers, self.rules)
            await (self._servers.start() if node_id is None else self._servers.restart(node_id))
            stack.pop_all()

    async def stop(self, *, is_final: bool) -> None:
        """Close all nodes; the ports stay reserved unless ``is_final``."""
        await self.servers.stop()
        self.rules.forget_nodes()
        if is_final:
            self.forget()

    async def kill(self) -> None:
        self.servers.crash()
        self.rules.forget_nodes()

    def forget(self) -> None:
        """Release the ports and the logs in memory."""
        self._in_memory = self._control = None
        servers, self._servers = self._servers, None
        if servers is not None:
            servers.forget()

    # ------------------------------------------------------------ what it is made of

    def _bound(self) -> NodeServers:
        addresses = Security(self.clock, properties=self._secure).addresses or {"": (HOST, 0)}
        with ExitStack() as stack:
            sockets: list[dict[str, socket.socket]] = []
            for number in range(len(self.node_ids)):
                own = {name: (host, port and port + number) for name, (host, port) in addresses.items()}
                sockets.append({name: stack.enter_context(bound_socket(place)) for name, place in own.items()})
            stack.pop_all()
        ports = (next(iter(own.values())).getsockname()[1] for own in sockets)
        advertised = [
            self._advertised_port + number if self._advertised_port else port for number, port in enumerate(ports)
        ]
        nodes = [Node(node_id, HOST, port) for node_id, port in zip(self.node_ids, advertised, strict=True)]
        return NodeServers(self._opened, self.clock, nodes, sockets, self._make_broker)

    def _opened(self) -> Storage:
        if self._in_memory is not None:
            return self._in_memory
        security = Security(self.clock, self._data_dir, self._secure, self._users)
        storage = open_storage(self._data_dir, self._config, self.clock, security, self._create_topics)
        if self._data_dir is None:
            self._in_memory = storage
        return storage

    def _create_topics(self, topics: TopicRegistry) -> None:
        for name, partition_count in self._topics.items():
            topics.ensure(name, partition_count)


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
"""Settings that differ from Kafka's defaults: no initial delays and frequent heartbeats, so that tests do not wait."""

T = TypeVar("T")

# Schemas load with the first request; a missing package must be reported earlier.
for _package in ("crc32c", "kio"):
    import_module(_package)


def _advertise(properties: Mapping[str, str | int | float], advertised_port: int) -> dict[str, str | int | float]:
    if type(advertised_port) is not int or not 1 <= advertised_port <= 65_535:
        raise ValueError(f"advertised_port must be a number from 1 to 65535, not {advertised_port!r}")
    listeners = str(properties.get("listeners", ""))
    if "," in listeners or "advertised.listeners" in properties:
        raise ValueError("advertised_port is for one listener: set its port in advertised.listeners")
    if not listeners:
        return dict(properties)
    return {**properties, "advertised.listeners": f"{listeners.partition('://')[0]}://{HOST}:{advertised_port}"}


Ending = Callable[[NodesUnderTest], Coroutine[Any, Any, None]]


class ServerClock:
    """Clock of a server in a thread: sessions, rebalances, retention and all other timers."""

    def __init__(self, server: ServerThread) -> None:
        self._server = server

    def now_ms(self) -> int:
        """Return the server's time in milliseconds since the Unix epoch."""
        return self._server.run(lambda broker: broker.clock.now_ms())

    def advance(self, duration_ms: int) -> None:
        """Advance the clock at once; each timer that expires in between fires at its deadline, in order.

        Clients send no heartbeat in between, so each member with a shorter session expires. Clients' own timeouts use
        their own clocks.

        Args:
            duration_ms: milliseconds.

        Raises:
            ValueError: the duration is negative.
            RuntimeError: the server does not run.
        """
        self._server.control(lambda control: control.advance(duration_ms))


class ServerThread(FaultWords, Assertions):
    """Broker on a free port of this machine: ``with ServerThread(topics={"orders": 3}) as server: server.bootstrap``.

    On an event loop use ``async with`` and the awaitable methods of :attr:`asyncio`.

    Settings are Kafka's defaults, except that groups assign at once (``group.initial.rebalance.delay.ms``,
    ``group.consumer.assignment.interval.ms`` and the like are 0). Heartbeat intervals
    (``group.consumer.heartbeat.interval.ms`` and the like) are 500 ms. Clients choose the protocol: with
    ``group.protocol=consumer`` they get consumer groups (KIP-848).

    Faults are methods of :class:`~groupcoord.testing.faults.server_faults.FaultWords`, queries and assertions those of
    :class:`~groupcoord.testing.asserting.assertions.Assertions`.

    Args:
        topics: partition counts by topic name, or names of topics with ``num.partitions`` (1) each.
        settings: values by Kafka's keys, dots or underscores.
        data_dir: directory for groups, offsets and records, which a later server can continue; None for memory.
        clock: a clock that only the test advances; None for real time, which the test can advance as well.
        nodes: number of nodes, with ids from 1 and a port each.
        users: passwords by user name, for PLAIN and SCRAM.
        tls: clients connect with TLS; certificates are created (extra ``login``).
        advertised_port: port that clients are given, such as that of a proxy; with several nodes that of the first.
            ``port`` and ``bootstrap`` stay those of the server.

    Raises:
        ConfigError: a setting is unknown or its value is not allowed.
        TypeError, ValueError: another argument is invalid.
        TopicError: a topic name is invalid.

    Attributes:
        port: port of the first node.
        certificates: the certificates of ``tls``, or None.
        asyncio: awaitable waits and assertions.
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
        if type(nodes) is not int or not 1 <= nodes <= NODES_MAX:
            raise ValueError(f"nodes must be a number from 1 to {NODES_MAX}, not {nodes!r}")
        kept_clock = clock or LeapingClock()
        Security(kept_clock, properties=secure)  # raises for invalid settings now
        self._request_log = RequestLog(kept_clock.now_ms)
        self._cluster = NodesUnderTest(
            config,
            checked_topics(topics, config),
            None if data_dir is None else Path(data_dir),
            kept_clock,
            range(1, nodes + 1),
            secure,
            users or {},
            advertised_port,
            partial(ObservedBroker, request_log=self._request_log),
        )
        self._log_tap = LogTap()
        self.asyncio = AsyncServer(self)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._ending: asyncio.Future[Ending]
        self.port = 0

    @property
    def bootstrap(self) -> str:
        """Addresses of all nodes, comma-separated, for ``bootstrap.servers``."""
        return self._cluster.bootstrap if self._cluster.was_started else f"{HOST}:{self.port}"

    def bootstrap_of(self, listener: str) -> str:
        """Return the addresses of all nodes on one of several listeners.

        Args:
            listener: name of the listener.

        Raises:
            KeyError: the listener does not exist.
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
        """Start to serve; a stopped server starts on another port.

        Raises:
            RuntimeError: the server runs already, or did not start in time.
            OSError: a port or directory is not available.
            GroupcoordError: the data directory or a topic is invalid.
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
        """Close all connections and the data directory, and discard memory, also after a crash.

        Raises:
            RuntimeError: the server did not stop in time.
            FaultFunctionError: a function passed to :meth:`on` raised.
        """
        self._end(partial(NodesUnderTest.stop, is_final=True))
        self._cluster.forget()
        error = self._cluster.rules.take_error()
        if error is not None:
            raise error

    def crash(self, node: int | None = None) -> None:
        """Kill the server: connections break, and nothing more is answered, written or flushed.

        :meth:`restart` starts it again with everything that was acknowledged, from the data directory or from memory.
        State that groups do not write is lost, such as pending requests and sessions.

        Args:
            node: kill only this node; the others take over its leaderships from the log.

        Raises:
            RuntimeError: the server does not run.
            NoSuchNodeError: the node does not exist or does not run.
        """
        if node is not None:
            self.control(lambda control: control.crash(node))
            return
        if self._thread is None:
            raise RuntimeError(self._why_not_running())
        self._end(NodesUnderTest.kill)

    def restart(self, node: int | None = None) -> None:
        """Start again on the same port with the contents of the log; a running server is stopped first.

        Args:
            node: start only this node; it leads nothing until it is elected, unless no other node can lead.

        Raises:
            RuntimeError: the server was never started, or was stopped.
            NoSuchNodeError: the node does not exist.
        """
        servers = self._cluster.servers
        if node is not None and self._thread is not None:
            asyncio.run_coroutine_threadsafe(servers.restart(node), self._loop).result(START_TIMEOUT_S)
            return
        self._end(partial(NodesUnderTest.stop, is_final=False))
        self._start(node)

    def _end(self, how: Ending) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._loop.call_soon_threadsafe(self._ending.set_result, how)
        thread.join(STOP_TIMEOUT_S)
        if thread.is_alive():
            raise RuntimeError(f"the server did not stop within {STOP_TIMEOUT_S:g} s")

    def run(self, function: Callable[[Broker], T]) -> T:
        """Call a function with the broker in the server's thread and return its result.

        The function sees the broker's internals: ``server.run(lambda broker: broker.coordinator.counters.as_dict())``.
        It may call methods of the server.

        Raises:
            RuntimeError: the server does not run.
            TimeoutError: the function took too long.
        """
        return self.control(lambda control: function(control.broker))

    def submit(self, function: Callable[[Broker], T]) -> Future[T]:
        """Call a function with the broker in the server's thread; return a future of its result.

        Raises:
            RuntimeError: the server does not run.
        """
        return self._submit(lambda control: function(control.broker))

    def control(self, function: Callable[[Control], T]) -> T:
        """Call a function with the server's :class:`Control` in the server's thread; see :meth:`run`."""
        if threading.current_thread() is self._thread:
            return function(self._cluster.control)
        try:
            return self._submit(function).result(CALL_TIMEOUT_S)
        except Exception as error:
            raise error.with_traceback(callers_frames(error)) from error.__cause__

    @property
    def nodes(self) -> tuple[int, ...]:
        """Ids of the running nodes."""
        return () if self._thread is None else tuple(sorted(self._cluster.servers.running))

    def _submit(self, function: Callable[[Control], T]) -> Future[T]:
        if self._thread is None:
            raise RuntimeError(self._why_not_running())
        done: Future[T] = Future()

        def call() -> None:
            # A call that was given up must not run any more: run_coroutine_threadsafe would run it.
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
        """Received requests with their responses: the last 10,000, with up to 16 MiB of records. They outlive the
        server.
        """
        if self._thread is None:
            return self._request_log.requests()
        return self.run(lambda _: self._request_log.requests())

    def watch(self, function: Callable[[ReceivedRequest], None]) -> None:
        """Call a function with each request when it arrives, and again when it is answered or its connection closes.

        It runs in the server's thread and blocks it; an exception closes the connection.
        """
        self._request_log.watchers.append(function)

    @property
    def request_count(self) -> int:
        """Number of the last request received."""
        return self._request_log.count

    def report(self, after: int = 0) -> str:
        """Return a report for a failed test: warnings, faults, groups, and the last requests of each client.

        pytest shows it for a failed test with a server from a fixture.

        Args:
            after: report only requests with a larger number, and the groups that they name.
        """
        shows_nodes = len(self._cluster.node_ids) > 1
        requests = self.requests.after(after)
        group_ids = {group_id for request in requests for group_id in request.group_ids} if after else None
        report = partial(report_on, requests=requests, log_lines=self._log_tap.lines(), shows_nodes=shows_nodes)
        if self._thread is None:
            return report(None, faults=list(map(str, self._cluster.rules.all())))
        return self.control(
            lambda control: report(
                control.broker if self.nodes else None, faults=control.describe_faults(), group_ids=group_ids
            )
        )

    def mend(self) -> None:
        """Remove all faults and restart crashed nodes; the clock and leaders stay as they are.

        Raises:
            FaultFunctionError: a function passed to :meth:`on` raised.
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
        """Remove the received requests."""
        self.run(lambda _: self._request_log.clear())

    def remove_rule(self, rule: Rule) -> None:
        """Remove a rule, even while the server is crashed."""
        if self._thread is None:
            self._cluster.rules.remove(rule)
        else:
            self.control(lambda control: control.rules.remove(rule))

    @property
    def clock(self) -> ServerClock:
        """The server's clock, which the test can advance."""
        return ServerClock(self)

    def advance(self, duration_ms: int) -> None:
        """Advance the server's clock; see :meth:`ServerClock.advance`."""
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
            end = await self._ending
            await end(cluster)
