"""``groupcoord serve``: a broker that real Kafka clients can join."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer
from attrs import evolve

import groupcoord
from groupcoord.cli.interrupts import AtTheFirstSignal
from groupcoord.clock import Clock, LeapingClock, SystemClock
from groupcoord.config import Config
from groupcoord.coordinator import LoadError
from groupcoord.core.messages import Node
from groupcoord.errors import ConfigError
from groupcoord.host.addresses import ANY_ADDRESS
from groupcoord.host.broker import Broker
from groupcoord.host.group_configs import GroupConfigs
from groupcoord.host.json_file import DataFileError
from groupcoord.host.opening import open_log_store, open_topic_directory, open_transaction_log
from groupcoord.host.security.security import Security, split_properties
from groupcoord.host.server import Server
from groupcoord.host.topics import OFFSETS_TOPIC, TopicError, TopicRegistry, check_topic_name
from groupcoord.host.transaction_log import TransactionLogError
from groupcoord.interpreter import keep_freed_memory
from groupcoord.log_store import ListingStore, LogStore, LogStoreError, MemoryLogStore
from groupcoord.wire import load_newest

if TYPE_CHECKING:
    from groupcoord.host.metrics import MetricsServer
    from groupcoord.topic_logs.data_directory import DataDirectory

NODE_ID = 1
FAILURE, USAGE_ERROR = 1, 2
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
        config, is_set, secure = _parse_settings(setting or [], holds_records=not no_records)
        topics = [_parse_topic(text) for text in topic or []]
        clock: Clock = SystemClock() if control_port is None else LeapingClock()
        security = Security(clock, data_dir, secure)
        with ExitStack() as stack:
            socks = _bind(stack, security, host, port, advertised_host)
            store = _open_store(data_dir, config)
            if not isinstance(store, MemoryLogStore):
                stack.callback(store.close)  # type: ignore[attr-defined]
            registry, directory, config = _open_topics(data_dir, store, config, is_set, topics)
            broker = Broker(
                config=config,
                clock=clock,
                log_store=store,
                topics=registry,
                group_configs=GroupConfigs(config, data_dir),
                node=Node(NODE_ID, advertised_host or host, advertised_port or _port_of(socks)),
                transaction_log=open_transaction_log(data_dir),
                topic_directory=directory,
                security=security,
            )
            server = Server(broker, socks=socks)
            pages = _Pages(_metrics(broker, host, metrics_port), control_port)
            _run(server, pages, partial(_announce, _addresses(socks), broker, data_dir, registry))


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
    except (LogStoreError, TransactionLogError, DataFileError) as error:
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
    stack: ExitStack, security: Security, host: str, port: int, advertised_host: str | None
) -> dict[str, socket.socket]:
    """Return a bound socket for each listener, by its name; without listeners one for host and port, with none."""
    if not security.listeners and host in ANY_ADDRESS and advertised_host is None:
        raise StartError(f"--host {host!r} needs --advertised-host: clients can't connect to it", USAGE_ERROR)
    addresses = security.addresses or {"": (host, port)}
    return {name: stack.enter_context(_listening_socket(*address)) for name, address in addresses.items()}


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
        config = _keep_offsets_partitions(registry, store, config, is_set)
        directory = open_topic_directory(data_dir, config, registry)
        for name, partition_count in topics:
            registry.ensure(name, partition_count)
    except TopicError as error:
        raise StartError(f"--topic {name}:{partition_count}: {error}") from None
    except OSError as error:
        raise StartError(f"{data_dir}: {error.strerror or error}") from None
    return registry, directory, config


def _keep_offsets_partitions(registry: TopicRegistry, store: LogStore, config: Config, is_set: bool) -> Config:
    # The number decides which log partition a group lives in: with another one its offsets would not be found.
    wanted = config.offsets_topic_num_partitions
    found = sorted(store.partitions()) if isinstance(store, ListingStore) else []
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


def _addresses(socks: Mapping[str, socket.socket]) -> str:
    """Return where the server listens, in words."""
    addresses = []
    for name, sock in socks.items():
        host, port = sock.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        addresses.append(f"{name}://{address}" if name else address)
    return ", ".join(addresses)


def _announce(address: str, broker: Broker, data_dir: Path | None, registry: TopicRegistry) -> None:
    where = "in memory, gone when it stops" if data_dir is None else f"data in {data_dir}"
    if not sys.stdout.isatty():
        print(f"groupcoord {groupcoord.__version__} listening on {address} ({where})", flush=True)
        return
    from rich.console import Console
    from rich.panel import Panel

    names = [f"{topic.name}:{topic.partition_count}" for topic in registry if not topic.is_internal]
    lines = [
        f"listening on [bold]{address}[/], clients are told {broker.node.host}:{broker.node.port}",
        where,
        f"topics: {', '.join(names[:8]) or 'none yet'}{' …' if len(names) > 8 else ''}",
        "[dim]Ctrl-C stops it[/]",
    ]
    Console().print(Panel("\n".join(lines), title=f"groupcoord {groupcoord.__version__}", expand=False))


def _metrics(broker: Broker, host: str, port: int | None) -> MetricsServer | None:
    if port is None:
        return None
    from groupcoord.host.metrics import MetricsServer

    return MetricsServer(broker.coordinator, host, port)


class _Pages(NamedTuple):
    """What is served over HTTP besides: None is not."""

    metrics: MetricsServer | None
    control_port: int | None


def _run(server: Server, pages: _Pages, on_start: Callable[[], None]) -> None:
    keep_freed_memory()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(server, pages, on_start))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(server: Server, pages: _Pages, on_start: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    async with AsyncExitStack() as stack:
        # Not the loop's own handlers: with these, a signal would not be obeyed while the loop is busy, nor behind it.
        stack.enter_context(AtTheFirstSignal(lambda: loop.call_soon_threadsafe(stopping.set)))
        await stack.enter_async_context(server)
        gc.freeze()  # what was loaded stays: the garbage collector need not look at it again and again
        on_start()
        await _serve_pages(server, pages, stack)
        preparing = loop.create_task(_prepare())
        await stopping.wait()
        preparing.cancel()


async def _serve_pages(server: Server, pages: _Pages, stack: AsyncExitStack) -> None:
    log = logging.getLogger("groupcoord.host")
    if pages.metrics is not None:
        try:
            await stack.enter_async_context(pages.metrics)
        except OSError as error:
            raise StartError(f"can't show metrics: {error.strerror or error}") from None
        log.info("metrics on port %d", pages.metrics.port)
    if pages.control_port is not None:
        from groupcoord.faults import Control
        from groupcoord.faults.control_server import ControlServer

        control = ControlServer(Control(server), pages.control_port)
        try:
            await stack.enter_async_context(control)
        except OSError as error:
            raise StartError(f"can't take orders for faults: {error.strerror or error}") from None
        print(f"faults on purpose: http://127.0.0.1:{control.port}", flush=True)


async def _prepare() -> None:
    """Do now, between requests, what would make the first of each kind slow."""
    for _ in load_newest():
        await asyncio.sleep(0)
    gc.freeze()
