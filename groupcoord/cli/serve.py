"""``groupcoord serve``: a broker that real Kafka clients can join."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from attrs import define, evolve, field

import groupcoord
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.security.security import Security, split_properties
from groupcoord.broker.security.settings import ANY_ADDRESS, check_advertised, with_listener
from groupcoord.broker.topics.registry import Topic, TopicError, TopicRegistry, check_topic_name, ensure_internal_topic
from groupcoord.cli.interrupts import FAILED, AtTheFirstSignal
from groupcoord.cli.messages import CommandError, EscapingFormatter, command_errors, complain, key_values, say
from groupcoord.cli.options import ENGINE_URLS, Metrics, Settings, metrics_address
from groupcoord.clock import Clock, LeapingClock, SystemClock
from groupcoord.config import Config
from groupcoord.coordinator import GroupCoordinator, LoadError
from groupcoord.core.fast_construct import collect_garbage_seldom, keep_freed_memory
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.core.messages import Node
from groupcoord.errors import ConfigError, GroupcoordError
from groupcoord.host.node_servers import NODES_MAX, NodeServers, Sockets
from groupcoord.host.opening import (
    OFFSETS_PARTITIONS_KEY,
    Storage,
    keep_offsets_partitions,
    open_cluster_storage,
    open_storage,
)
from groupcoord.host.process import import_modules_of_requests

if TYPE_CHECKING:
    from groupcoord.cli.replica_logs import SharedLog
    from groupcoord.cluster.documents import SlotDocuments
    from groupcoord.host.cluster_node import ClusterNode
    from groupcoord.testing.asserting.requests import RequestLog


NODES_HELP = "Number of nodes, on --port and the following ports, or on free ones."
CLUSTER_HELP = f"URL of a log shared with other nodes: {ENGINE_URLS}. Topics hold no records then."
CONTROL_HELP = "Port on 127.0.0.1 for faults, waits and queries over HTTP, for tests; 0 takes a free one."
NO_RECORDS_HELP = "Topics hold no records: Produce fails, and lag is 0. The same as --set records.enable=false."
NODE_ID_HELP = "With --cluster: unique id of this node."


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 9092,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Directory of topics, records, groups and offsets, in Kafka's format. [default: in memory]"),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="NAME:PARTITIONS", help="Create a topic; repeatable.")
    ] = None,
    setting: Settings = None,
    advertised_host: Annotated[
        str | None, typer.Option(help="Address that clients are given. [default: that of --host]")
    ] = None,
    advertised_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port that clients are given. [default: that of --port]")
    ] = None,
    metrics: Metrics = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, hidden=True, help="Deprecated: use --metrics.")
    ] = None,
    control_port: Annotated[
        int | None,
        typer.Option("--control", min=0, max=65535, help=CONTROL_HELP),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=NODES_MAX, help=NODES_HELP)] = 1,
    cluster: Annotated[str | None, typer.Option(metavar="URL", help=CLUSTER_HELP)] = None,
    node_id: Annotated[int | None, typer.Option(min=0, max=2**31 - 1, help=NODE_ID_HELP)] = None,
    no_records: Annotated[bool, typer.Option("--no-records", help=NO_RECORDS_HELP)] = False,
    log_level: Annotated[str, typer.Option(help="Log level for stderr: debug, info, warning or error.")] = "warning",
) -> None:
    """Run a broker that real Kafka clients can produce to and consume from, with every consumer group and offset API.

    SIGTERM or Ctrl-C stops it. With --data-dir nothing that was acknowledged is lost, even if it is killed.
    """
    with _plain_errors():
        _set_up_logging(log_level)
        _check_cluster(cluster, node_id, data_dir, nodes, control_port)
        metrics_place = _metrics_place(metrics, metrics_port, host)
        if nodes > 1 and metrics_place is not None:
            raise CommandError("--metrics shows one node: leave it out, or --nodes")
        config, is_set, secure = _parse_settings(setting or [], holds_records=not no_records)
        topics = [_parse_topic(text) for text in topic or []]
        clock: Clock = SystemClock() if control_port is None else LeapingClock()
        with ExitStack() as stack:
            shared = None
            if cluster is not None and node_id is not None:
                from groupcoord.cli.replica_logs import open_shared

                shared = open_shared(cluster, node_id)
                stack.callback(shared.documents.close)
            place = data_dir if shared is None else shared.documents
            security = Security(clock, place, with_listener(secure, host, port))
            if advertised_host is not None:
                check_advertised("--advertised-host", advertised_host)
            sockets = _bind(stack, security, host, port, nodes, advertised_host)
            _check_control_port(control_port, sockets)
            opening = Opening(data_dir, config, is_set, topics, clock, security)
            advertised = [
                _node(number, own, advertised_host or host, advertised_port) for number, own in enumerate(sockets)
            ]
            pages = _Pages(metrics_place, control_port)
            if shared is not None:
                _serve_in_cluster(shared, opening, advertised[0], sockets, pages)
            else:
                _serve_in_one_process(opening, advertised, sockets, pages)


def _metrics_place(address: str | None, port: int | None, host: str) -> tuple[str, int] | None:
    if port is not None:
        complain("serve", "--metrics-port is deprecated: use --metrics [HOST:]PORT")
    if address is None:
        return None if port is None else (host, port)
    return metrics_address(address)


def _check_cluster(
    url: str | None, node_id: int | None, data_dir: Path | None, node_count: int, control_port: int | None
) -> None:
    if (url is None) != (node_id is None):
        raise CommandError("--cluster needs --node-id, a unique id of this node, and --node-id needs --cluster")
    if url is None:
        return
    if data_dir is not None:
        raise CommandError("--cluster keeps nothing on the disk: leave out --data-dir")
    if node_count > 1 or control_port is not None:
        raise CommandError("--cluster is for one node: leave out --nodes and --control")


def _node(number: int, sockets: Sockets, host: str, first_port: int | None) -> Node:
    port: int = first_port + number if first_port else next(iter(sockets.values())).getsockname()[1]
    return Node(number + 1, host, port)


@contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise CommandError(error) from None
    except LoadError as error:
        raise CommandError(f"none of {len(error.causes)} log partitions can be loaded", FAILED) from None
    except GroupcoordError as error:
        raise CommandError(error, FAILED) from None


def _set_up_logging(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise CommandError(f"--log-level {level!r} is none of debug, info, warning, error")
    handler = logging.StreamHandler()
    handler.setFormatter(EscapingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=number, handlers=[handler])


def _parse_settings(settings: list[str], *, holds_records: bool) -> tuple[Config, bool, dict[str, str | int]]:
    """Return the configuration, whether it sets the number of offsets partitions, and the security settings."""
    properties: dict[str, str | int] = {**key_values("--set", settings)}
    usual, secure = split_properties(properties)
    config = Config.from_properties(usual)
    if not holds_records:
        config = evolve(config, records_enable=False)
    is_set = any(key.replace("_", ".") == OFFSETS_PARTITIONS_KEY for key in properties)
    return config, is_set, secure


def _parse_topic(text: str) -> tuple[str, int]:
    name, _, count = text.rpartition(":")
    try:
        check_topic_name(name)
        partition_count = int(count)
    except (TopicError, ValueError):
        partition_count = 0
    if partition_count < 1:
        raise CommandError(f"--topic {text!r} is not NAME:PARTITIONS, such as orders:12")
    return name, partition_count


def _bind(
    stack: ExitStack, security: Security, host: str, port: int, node_count: int, advertised_host: str | None
) -> list[dict[str, socket.socket]]:
    """Return the bound sockets of each node by listener; a single one without a name if no listeners are configured."""
    if not security.listeners and host in ANY_ADDRESS and advertised_host is None:
        raise CommandError(f"--host {host!r} needs --advertised-host: clients can't connect to it")
    addresses = security.addresses or {"": (host, port)}
    return [
        {
            name: _bound_socket(stack, own_host, own_port and own_port + number)
            for name, (own_host, own_port) in addresses.items()
        }
        for number in range(node_count)
    ]


def _check_control_port(control_port: int | None, sockets: Sequence[Sockets]) -> None:
    for number, own in enumerate(sockets, 1):
        if control_port in [sock.getsockname()[1] for sock in own.values()]:
            raise CommandError(f"--control {control_port} is a port of node {number}: give another")


def _bound_socket(stack: ExitStack, host: str, port: int) -> socket.socket:
    with command_errors(OSError, prefix=f"can't listen on {host}:{port}: ", status=FAILED):
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = stack.enter_context(socket.socket(family, kind, protocol))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    return sock


def _addresses(sockets: Sequence[Sockets]) -> str:
    addresses = []
    for name, sock in ((name, sock) for own in sockets for name, sock in own.items()):
        host, port = sock.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        addresses.append(f"{name}://{address}" if name else address)
    return ", ".join(addresses)


def _announce(sockets: Sequence[Sockets], where: str, node: Node, topics: Iterable[Topic]) -> None:
    address = _addresses(sockets)
    if not sys.stdout.isatty():
        say(f"groupcoord {groupcoord.__version__} listening on {address} ({where})")
        return
    from rich.panel import Panel
    from rich.text import Text

    from groupcoord.cli.console import open_console

    names = [f"{topic.name}:{topic.partition_count}" for topic in topics if not topic.is_internal]
    text = Text.assemble(
        "listening on ",
        (address, "bold"),
        f", advertised as {node.host}:{node.port}\n{where}\n",
        f"topics: {', '.join(names[:8]) or 'none yet'}{' …' if len(names) > 8 else ''}\n",
        ("Ctrl-C stops it", "dim"),
    )
    open_console().print(Panel(text, title=f"groupcoord {groupcoord.__version__}", expand=False))


def _coordinator_of(servers: NodeServers | ClusterNode) -> GroupCoordinator | None:
    if isinstance(servers, NodeServers):
        return next((server.broker.coordinator for server in servers.running.values()), None)
    return servers.server.broker.coordinator


class _Pages(NamedTuple):
    metrics: tuple[str, int] | None
    control_port: int | None
    request_log: RequestLog | None = None


def _serve_in_one_process(opening: Opening, nodes: Sequence[Node], sockets: Sequence[Sockets], pages: _Pages) -> None:
    with ExitStack() as stack:
        new_broker, request_log = _observed(opening.clock) if pages.control_port is not None else (make_broker, None)
        servers = NodeServers(opening.storage, opening.clock, nodes, sockets, new_broker)
        stack.callback(servers.forget)
        servers.prepare()
        pages = pages._replace(request_log=request_log)
        where = "in memory, gone when it stops" if opening.data_dir is None else f"data in {opening.data_dir}"
        _run(servers, pages, lambda: _announce(sockets, where, nodes[0], servers.storage.topics))


def _observed(clock: Clock) -> tuple[Callable[..., Broker], RequestLog]:
    from groupcoord.testing.asserting.requests import ObservedBroker, RequestLog

    request_log = RequestLog(clock.now_ms)
    return partial(ObservedBroker, request_log=request_log), request_log


def _serve_in_cluster(
    shared: SharedLog, opening: Opening, advertised: Node, sockets: Sequence[Sockets], pages: _Pages
) -> None:
    from groupcoord.cli.replica_logs import slot_log_at
    from groupcoord.host.cluster_node import ClusterNode

    storage, own = opening.for_cluster(shared.documents), advertised._replace(node_id=shared.node_id)
    new_slot_log = partial(slot_log_at, shared.url)
    node = ClusterNode(storage, shared.documents, opening.clock, own, sockets[0], new_slot_log)
    _run(node, pages, lambda: _announce(sockets, f"groups in {shared.place}", advertised, storage.topics))


def _run(servers: NodeServers | ClusterNode, pages: _Pages, on_start: Callable[[], None]) -> None:
    keep_freed_memory()
    collect_garbage_seldom()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(servers, pages, on_start))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(servers: NodeServers | ClusterNode, pages: _Pages, on_start: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    async with AsyncExitStack() as stack:
        # The loop's own signal handlers would not run while the loop is busy.
        stack.enter_context(AtTheFirstSignal(lambda: loop.call_soon_threadsafe(stopping.set)))
        stack.push_async_callback(servers.stop)
        await servers.start()
        sys.dont_write_bytecode = True  # CPython 3.11 truncates bytecode on a full disk, and fails to import it
        on_start()
        await _serve_pages(servers, pages, stack)
        await import_modules_of_requests()
        gc.freeze()  # exempt what was loaded from garbage collection
        gc.enable()
        await stopping.wait()


async def _serve_pages(servers: NodeServers | ClusterNode, pages: _Pages, stack: AsyncExitStack) -> None:
    log = logging.getLogger("groupcoord.host")
    if pages.metrics is not None:
        from groupcoord.host.metrics import metrics_server

        more = []
        if not isinstance(servers, NodeServers):
            from groupcoord.cluster.metrics import ReplicaCollector

            more.append(ReplicaCollector(servers.status))
        with command_errors(OSError, prefix="can't show metrics: ", status=FAILED):
            metrics = stack.enter_context(metrics_server(partial(_coordinator_of, servers), *pages.metrics, more))
        log.info("metrics on port %d", metrics.server_port)
    if pages.control_port is not None and pages.request_log is not None and isinstance(servers, NodeServers):
        from groupcoord.testing.faults import Control
        from groupcoord.testing.faults.control_server import ControlServer

        with command_errors(OSError, prefix="can't take orders for faults: ", status=FAILED):
            control = ControlServer(Control(servers), pages.control_port, pages.request_log)
            stack.enter_context(control)
        say(f"faults on purpose: http://127.0.0.1:{control.server_port}")


@define(eq=False)
class Opening:
    """Opening of the server's storage: on disk at each start, in memory once."""

    data_dir: Path | None
    _config: Config
    _is_set: bool
    _topics: list[tuple[str, int]]
    clock: Clock
    _security: Security
    _in_memory: Storage | None = field(default=None, init=False)

    def storage(self) -> Storage:
        if self._in_memory is not None:
            return self._in_memory
        data_dir, create_topics = self.data_dir, partial(_ensure_topics, self.data_dir, self._topics)
        try:
            storage = open_storage(
                data_dir, self._config, self.clock, self._security, create_topics, is_set=self._is_set
            )
        except OSError as error:
            if isinstance(error, GroupcoordError):
                raise
            raise CommandError(f"{data_dir}: {error.strerror or error}", FAILED) from None
        if data_dir is None:
            self._in_memory = storage
        return storage

    def for_cluster(self, documents: SlotDocuments) -> Storage:
        """Return the storage of a node with a shared log; the first node creates the topics."""
        registry = TopicRegistry(documents)
        while True:
            refusals = documents.refusals
            registry.reload()
            config = keep_offsets_partitions(registry, (), self._config, is_set=self._is_set)
            try:
                with registry.edit() as edit:
                    ensure_internal_topic(edit, OFFSETS_TOPIC, config)
                _ensure_topics("the cluster", self._topics, registry)
            except (OSError, CommandError) as error:
                if documents.refusals == refusals:
                    raise CommandError(str(error), FAILED) from None
            else:
                return open_cluster_storage(documents, registry, config, self.clock, self._security)


def _ensure_topics(where: object, topics: list[tuple[str, int]], registry: TopicRegistry) -> None:
    for name, partition_count in topics:
        with (
            command_errors(OSError, prefix=f"{where}: ", status=FAILED),
            command_errors(TopicError, prefix=f"--topic {name}:{partition_count}: ", status=FAILED),
        ):
            registry.ensure(name, partition_count)
