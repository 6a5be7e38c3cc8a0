"""``groupcoord serve``: a broker that real Kafka clients can join."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer
from attrs import evolve

import groupcoord
from groupcoord.broker.addresses import ANY_ADDRESS
from groupcoord.broker.configs.administered import Administered
from groupcoord.broker.configs.groups import GroupConfigs
from groupcoord.broker.json_file import DataFileError
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.security.security import Security, split_properties
from groupcoord.broker.topics.registry import Topic, TopicError, TopicRegistry, check_topic_name
from groupcoord.broker.transactions.log import TransactionLogError
from groupcoord.broker.transactions.producer_ids import NoProducerIdError
from groupcoord.cli.interrupts import SIGNALS, AtTheFirstSignal, take_signals
from groupcoord.clock import Clock, LeapingClock, SystemClock
from groupcoord.config import Config
from groupcoord.coordinator import GroupCoordinator, LoadError
from groupcoord.core.interpreter import collect_garbage_seldom, keep_freed_memory
from groupcoord.core.messages import Node
from groupcoord.core.records import OFFSETS_TOPIC
from groupcoord.errors import ConfigError
from groupcoord.host.links import Links
from groupcoord.host.node_servers import NODES_MAX, NodeServers, Sockets
from groupcoord.host.opening import (
    Storage,
    open_log_store,
    open_producer_ids,
    open_topic_directory,
    open_worker_storage,
    prepare_for_workers,
)
from groupcoord.host.server import ACCEPT_BACKLOG
from groupcoord.host.supervisor import Supervisor, Work
from groupcoord.host.worker_folders import MisplacedPartitionError, WorkerFolders
from groupcoord.host.workers import Worker
from groupcoord.log_store import ListingStore, LogStore, LogStoreError, close_store
from groupcoord.storage.directory_lock import DirectoryLock

if TYPE_CHECKING:
    from groupcoord.storage.data_directory import DataDirectory

FAILURE, USAGE_ERROR = 1, 2
NODES_HELP = "How many nodes to run, with a port each: --port and those after it, or free ones."
WORKERS_HELP = "How many processes share the partitions, each with a port as --nodes has them; 0: one for each core."

OFFSETS_PARTITIONS_KEY = "offsets.topic.num.partitions"


class StartError(Exception):
    """The server can't start as asked. The message is one line for the user."""

    def __init__(self, message: str, exit_status: int = FAILURE) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 9092,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where topics, records, groups and offsets are kept. Without it: in memory."),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="NAME:PARTITIONS", help="A topic that shall exist; can be repeated.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting under Kafka's key; can be repeated."),
    ] = None,
    advertised_host: Annotated[
        str | None, typer.Option(help="Address that clients are told to connect to. [default: that of --host]")
    ] = None,
    advertised_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port that clients are told. [default: that of --port]")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Show metrics for Prometheus on this port, under /metrics; 0 takes a free one."
        ),
    ] = None,
    control_port: Annotated[
        int | None,
        typer.Option(
            "--control",
            min=0,
            max=65535,
            help="Let tests say on this port of 127.0.0.1, over HTTP, what shall go wrong; 0 takes a free one.",
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=NODES_MAX, help=NODES_HELP)] = 1,
    workers: Annotated[int, typer.Option(min=0, max=NODES_MAX, help=WORKERS_HELP)] = 1,
    no_records: Annotated[
        bool, typer.Option("--no-records", help="Let topics be empty: nothing can be produced, and lag is always 0.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="What to log to stderr: debug, info, warning or error.")] = "warning",
) -> None:
    """Run a broker that real Kafka clients can produce to and consume from, with every consumer group and offset API.

    SIGTERM or Ctrl-C stops it. With --data-dir nothing that was acknowledged is lost, even if it is killed.
    """
    with _errors_told():
        _set_up_logging(log_level)
        worker_count = workers or _core_count()
        _check_together(worker_count, data_dir, nodes, metrics_port, control_port)
        config, is_set, secure = _parse_settings(setting or [], holds_records=not no_records)
        topics = [_parse_topic(text) for text in topic or []]
        clock: Clock = SystemClock() if control_port is None else LeapingClock()
        security = Security(clock, data_dir, secure)
        with ExitStack() as stack:
            sockets = _bind(stack, security, host, port, max(nodes, worker_count), advertised_host)
            _check_control_port(control_port, sockets)
            opening = _Opening(data_dir, config, is_set, topics, clock, security)
            told = [_node(number, own, advertised_host or host, advertised_port) for number, own in enumerate(sockets)]
            pages = _Pages(host, metrics_port, control_port)
            if worker_count > 1:
                _serve_by_workers(opening.for_workers(worker_count), told, sockets, pages)
            servers = NodeServers(opening.storage, clock, told, sockets)
            stack.callback(servers.forget)
            servers.prepare()
            _run(servers, pages, lambda: _announce(sockets, data_dir, told[0], servers.storage.topics))


def _core_count() -> int:
    """Return how many cores this process may use, as far as the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_together(
    count: int, data_dir: Path | None, nodes: int, metrics_port: int | None, control_port: int | None
) -> None:
    """Refuse options that don't go together."""
    if nodes > 1 and metrics_port is not None:
        raise StartError("--metrics-port shows one node: leave it out, or --nodes", USAGE_ERROR)
    if count == 1:
        return
    if data_dir is None:
        raise StartError("--workers needs --data-dir: what a worker had in memory would be gone with it", USAGE_ERROR)
    for option, is_given in (("--nodes", nodes > 1), ("--control", control_port is not None)):
        if is_given:
            raise StartError(f"--workers and {option} don't go together: {option} is for one process", USAGE_ERROR)


def _node(number: int, sockets: Sockets, host: str, first_port: int | None) -> Node:
    """Return a node as clients are told of it."""
    return Node(number + 1, host, first_port + number if first_port else _port_of(sockets))


@contextmanager
def _errors_told() -> Iterator[None]:
    """Tell the user in a line what keeps the server from starting, and exit."""
    try:
        yield
    except StartError as error:
        _refuse(str(error), error.exit_status)
    except ConfigError as error:
        _refuse(str(error), USAGE_ERROR)
    except LoadError as error:
        _refuse(f"none of {len(error.causes)} log partitions can be loaded", FAILURE)
    except (LogStoreError, TransactionLogError, NoProducerIdError, DataFileError, MisplacedPartitionError) as error:
        _refuse(str(error), FAILURE)


def _refuse(message: str, exit_status: int) -> NoReturn:
    sys.stderr.write(f"groupcoord serve: {message}\n")
    raise typer.Exit(exit_status)


def _set_up_logging(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise StartError(f"--log-level {level!r} is none of debug, info, warning, error", USAGE_ERROR)
    logging.basicConfig(level=number, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _parse_settings(settings: list[str], *, holds_records: bool) -> tuple[Config, bool, dict[str, str | int]]:
    """Return the configuration, whether the number of offsets partitions is among what was given, and who may connect.

    Unless topics may hold records, they don't, whatever the settings say.
    """
    properties: dict[str, str | int] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise StartError(f"--set {text!r} is not KEY=VALUE", USAGE_ERROR)
        properties[key.strip()] = value
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
        raise StartError(f"--topic {text!r} is not NAME:PARTITIONS, such as orders:12", USAGE_ERROR)
    return name, partition_count


def _bind(
    stack: ExitStack, security: Security, host: str, port: int, node_count: int, advertised_host: str | None
) -> list[dict[str, socket.socket]]:
    """Return for each node a bound socket for each listener, by its name; without listeners one, with none."""
    if not security.listeners and host in ANY_ADDRESS and advertised_host is None:
        raise StartError(f"--host {host!r} needs --advertised-host: clients can't connect to it", USAGE_ERROR)
    addresses = security.addresses or {"": (host, port)}
    return [
        {
            name: stack.enter_context(_listening_socket(own_host, own_port and own_port + number))
            for name, (own_host, own_port) in addresses.items()
        }
        for number in range(node_count)
    ]


def _check_control_port(control_port: int | None, sockets: Sequence[Sockets]) -> None:
    for number, own in enumerate(sockets, 1):
        if control_port in [sock.getsockname()[1] for sock in own.values()]:
            raise StartError(f"--control {control_port} is a port of node {number}: give another", USAGE_ERROR)


def _port_of(socks: Mapping[str, socket.socket]) -> int:
    """Return the port of the first listener."""
    port: int = next(iter(socks.values())).getsockname()[1]
    return port


@contextmanager
def _listening_socket(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise StartError(f"can't listen on {host}:{port}: {error.strerror or error}") from None
    with sock:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
        except OSError as error:
            raise StartError(f"can't listen on {host}:{port}: {error.strerror or error}") from None
        yield sock


class _Opening:
    """Opens what the server keeps its data in: on disk anew in each of its lives, in memory once.

    Args:
        data_dir: where it is on disk; None: in memory.
        config: the settings.
        is_set: the number of offsets partitions is among those that were given.
        topics: those that shall exist.
        clock: where time comes from.
        security: who may connect.
    """

    def __init__(
        self,
        data_dir: Path | None,
        config: Config,
        is_set: bool,
        topics: list[tuple[str, int]],
        clock: Clock,
        security: Security,
    ) -> None:
        self._data_dir = data_dir
        self._config = config
        self._is_set = is_set
        self._topics = topics
        self._clock = clock
        self._security = security
        self._in_memory: Storage | None = None

    def storage(self) -> Storage:
        """Return it.

        Raises:
            StartError: it can't be used as asked.
        """
        if self._in_memory is not None:
            return self._in_memory
        data_dir = self._data_dir
        if data_dir is not None and WorkerFolders(data_dir).is_divided:
            with ExitStack() as stack:
                self._locked(stack, data_dir).spread(1)
        with ExitStack() as stack:
            store = _open_store(data_dir, self._config)
            stack.callback(close_store, store)
            registry, directory, config = _open_topics(data_dir, store, self._config, self._is_set, self._topics)
            storage = Storage(
                config,
                store,
                registry,
                GroupConfigs(config, data_dir),
                Administered(data_dir),
                open_producer_ids(data_dir),
                TopicData(config, self._clock, registry, directory),
                self._security,
            )
            stack.pop_all()
        if data_dir is None:
            self._in_memory = storage
        return storage

    def _locked(self, stack: ExitStack, data_dir: Path) -> WorkerFolders:
        """Lock the data directory, and return where its partitions are."""
        from groupcoord.storage.errors import LogDirectoryError

        try:
            stack.callback(DirectoryLock(data_dir).close)
        except LogDirectoryError as error:
            raise StartError(str(error)) from None
        return WorkerFolders(data_dir)

    def for_workers(self, count: int) -> _OpeningForWorkers:
        """Have everything as so many workers need it, which open it then. The data directory stays locked.

        Raises:
            StartError: it can't be used as asked.
        """
        data_dir, stack = self._data_dir, ExitStack()
        assert data_dir is not None, "that was looked at"
        folders = self._locked(stack, data_dir)
        registry, places = TopicRegistry(data_dir), folders.places()
        found = sorted(index for name, index in places if name == OFFSETS_TOPIC)
        config = _keep_offsets_partitions(registry, found, self._config, self._is_set)
        try:
            prepare_for_workers(data_dir, config, registry, places)
            folders.spread(count)
        except OSError as error:
            raise StartError(f"{data_dir}: {error.strerror or error}") from None
        _ensure_topics(registry, data_dir, self._topics)
        folder_of = partial(folders.of, count=count)
        return _OpeningForWorkers(data_dir, folder_of, config, self._clock, self._security, registry, stack)


class _OpeningForWorkers(NamedTuple):
    """What workers share, and open for themselves."""

    data_dir: Path
    folder_of: Callable[[int], Path]
    config: Config
    clock: Clock
    security: Security
    topics: TopicRegistry
    lock: ExitStack

    def storage(self, number: int) -> Storage:
        """Open what a worker keeps its data in."""
        from groupcoord.storage.errors import LogDirectoryError

        try:
            return open_worker_storage(self.data_dir, self.folder_of(number), self.config, self.clock, self.security)
        except LogDirectoryError as error:
            raise StartError(str(error)) from None


def _open_store(data_dir: Path | None, config: Config) -> LogStore:
    from groupcoord.storage.errors import LogDirectoryError

    try:
        return open_log_store(data_dir, config)
    except LogDirectoryError as error:
        raise StartError(str(error)) from None


def _open_topics(
    data_dir: Path | None, store: LogStore, config: Config, is_set: bool, topics: list[tuple[str, int]]
) -> tuple[TopicRegistry, DataDirectory | None, Config]:
    """Read the topics, add those of the command line, and settle how many partitions the offsets topic has."""
    try:
        registry = TopicRegistry(data_dir)
        found = sorted(store.partitions()) if isinstance(store, ListingStore) else []
        config = _keep_offsets_partitions(registry, found, config, is_set)
        directory = open_topic_directory(data_dir, config, registry)
    except OSError as error:
        raise StartError(f"{data_dir}: {error.strerror or error}") from None
    _ensure_topics(registry, data_dir, topics)
    return registry, directory, config


def _ensure_topics(registry: TopicRegistry, data_dir: Path | None, topics: list[tuple[str, int]]) -> None:
    """Have the topics of the command line."""
    try:
        for name, partition_count in topics:
            registry.ensure(name, partition_count)
    except TopicError as error:
        raise StartError(f"--topic {name}:{partition_count}: {error}") from None
    except OSError as error:
        raise StartError(f"{data_dir}: {error.strerror or error}") from None


def _keep_offsets_partitions(registry: TopicRegistry, found: Sequence[int], config: Config, is_set: bool) -> Config:
    # The number decides which log partition a group lives in: with another one its offsets would not be found.
    wanted = config.offsets_topic_num_partitions
    known = registry.get(OFFSETS_TOPIC)
    if known is None:
        if found and found[-1] >= wanted:
            raise StartError(f"there is a log partition {found[-1]}, but {OFFSETS_PARTITIONS_KEY} is {wanted}")
        return config
    if known.partition_count == wanted:
        return config
    if is_set:
        raise StartError(
            f"{OFFSETS_PARTITIONS_KEY} is {known.partition_count} in this data directory and can't become {wanted}"
        )
    return evolve(config, offsets_topic_num_partitions=known.partition_count)


def _addresses(sockets: Sequence[Sockets]) -> str:
    """Return where the server listens, in words."""
    addresses = []
    for name, sock in ((name, sock) for own in sockets for name, sock in own.items()):
        host, port = sock.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        addresses.append(f"{name}://{address}" if name else address)
    return ", ".join(addresses)


def _announce(sockets: Sequence[Sockets], data_dir: Path | None, node: Node, topics: Iterable[Topic]) -> None:
    address = _addresses(sockets)
    where = "in memory, gone when it stops" if data_dir is None else f"data in {data_dir}"
    if not sys.stdout.isatty():
        print(f"groupcoord {groupcoord.__version__} listening on {address} ({where})", flush=True)
        return
    from rich.console import Console
    from rich.panel import Panel

    names = [f"{topic.name}:{topic.partition_count}" for topic in topics if not topic.is_internal]
    lines = [
        f"listening on [bold]{address}[/], clients are told {node.host}:{node.port}",
        where,
        f"topics: {', '.join(names[:8]) or 'none yet'}{' …' if len(names) > 8 else ''}",
        "[dim]Ctrl-C stops it[/]",
    ]
    Console().print(Panel("\n".join(lines), title=f"groupcoord {groupcoord.__version__}", expand=False))


def _coordinator_of(servers: NodeServers | Worker) -> GroupCoordinator | None:
    """Return the group coordinator of the only node; None while it does not run."""
    if isinstance(servers, Worker):
        return servers.server.broker.coordinator
    return next((server.broker.coordinator for server in servers.running.values()), None)


class _Pages(NamedTuple):
    """What is served over HTTP besides, on which ports: None is not."""

    host: str
    metrics_port: int | None
    control_port: int | None


def _serve_by_workers(
    opening: _OpeningForWorkers,
    told: Sequence[Node],
    sockets: Sequence[Sockets],
    pages: _Pages,
) -> NoReturn:
    """Have workers serve, until a signal comes; then end with the exit status."""

    def be_worker(work: Work) -> int:
        take_signals(0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        try:
            with _errors_told():
                storage = opening.storage(work.number)
                links = Links(told[work.number].node_id, paths)
                worker = Worker(storage, opening.clock, told, work.number, sockets, links, asked_on[work.number])
                port = pages.metrics_port and pages.metrics_port + work.number
                _run(worker, pages._replace(metrics_port=port), work.is_ready, work.lifeline)
        except typer.Exit as error:
            return error.exit_code
        return 0

    with TemporaryDirectory(prefix="groupcoord-") as folder, ExitStack() as stack:
        paths = {node.node_id: Path(folder) / str(node.node_id) for node in told}
        asked_on = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in told]
        for sock, path in zip(asked_on, paths.values(), strict=True):
            sock.bind(str(path))
            sock.listen()
        for own in sockets:
            for listening in own.values():
                listening.listen(ACCEPT_BACKLOG)  # so that clients wait for a worker that is started again
        announce = partial(_announce, sockets, opening.data_dir, told[0], opening.topics)
        supervisor = Supervisor(len(told), be_worker, announce)
        with AtTheFirstSignal(supervisor.stop):
            status = supervisor.run()
    raise typer.Exit(status)


def _run(
    servers: NodeServers | Worker, pages: _Pages, on_start: Callable[[], None], lifeline: int | None = None
) -> None:
    keep_freed_memory()
    collect_garbage_seldom()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(servers, pages, on_start, lifeline))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(
    servers: NodeServers | Worker, pages: _Pages, on_start: Callable[[], None], lifeline: int | None
) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    if lifeline is not None:
        loop.add_reader(lifeline, stopping.set)
    async with AsyncExitStack() as stack:
        # Not the loop's own handlers: with these, a signal would not be obeyed while the loop is busy, nor behind it.
        stack.enter_context(AtTheFirstSignal(lambda: loop.call_soon_threadsafe(stopping.set)))
        stack.push_async_callback(servers.stop)
        await servers.start()
        gc.freeze()  # what was loaded stays: the garbage collector need not look at it again and again
        gc.enable()
        on_start()
        await _serve_pages(servers, pages, stack)
        await stopping.wait()


async def _serve_pages(servers: NodeServers | Worker, pages: _Pages, stack: AsyncExitStack) -> None:
    log = logging.getLogger("groupcoord.host")
    if pages.metrics_port is not None:
        from groupcoord.host.metrics import MetricsServer

        metrics = MetricsServer(partial(_coordinator_of, servers), pages.host, pages.metrics_port)
        try:
            await stack.enter_async_context(metrics)
        except OSError as error:
            raise StartError(f"can't show metrics: {error.strerror or error}") from None
        log.info("metrics on port %d", metrics.port)
    if pages.control_port is not None and isinstance(servers, NodeServers):
        from groupcoord.testing.faults import Control
        from groupcoord.testing.faults.control_server import ControlServer

        control = ControlServer(Control(servers), pages.control_port)
        try:
            await stack.enter_async_context(control)
        except OSError as error:
            raise StartError(f"can't take orders for faults: {error.strerror or error}") from None
        print(f"faults on purpose: http://127.0.0.1:{control.port}", flush=True)
