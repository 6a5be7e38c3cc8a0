"""A broker for real Kafka clients inside of this process: it runs in a thread of its own, and stops without a trace."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from attrs import evolve

from groupcoord.clock import Clock, ManualClock, SystemClock
from groupcoord.config import Config
from groupcoord.core.messages import Node
from groupcoord.host.broker import Broker
from groupcoord.host.group_configs import GroupConfigs
from groupcoord.host.opening import open_log_store, open_topic_directory, open_transaction_log
from groupcoord.host.server import Server
from groupcoord.host.topics import OFFSETS_TOPIC, TopicRegistry
from groupcoord.log_store import ClosableStore

__all__ = ["ServerThread"]

HOST = "127.0.0.1"
START_TIMEOUT_S = 30.0
CALL_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
SETTINGS: Mapping[str, int] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
}
"""What a test wants otherwise than Kafka's defaults: nobody waits for company."""

T = TypeVar("T")

# The codec loads its schemas when the first request comes; what is not installed is to be missed before that.
for _package in ("crc32c", "kio"):
    import_module(_package)


class ServerThread:
    """A broker on a free port of this machine: ``with ServerThread(topics={"orders": 3}) as server: server.bootstrap``.

    Settings are Kafka's defaults, but groups of both protocols assign at once (``group.initial.rebalance.delay.ms`` and
    ``group.consumer.assignment.interval.ms`` are 0). Clients choose the protocol, as with any broker: those with
    ``group.protocol=consumer`` get consumer groups (KIP-848).

    Args:
        topics: the topics that exist from the start, with their numbers of partitions.
        settings: keys as Kafka spells them (or with underscores), and their values.
        data_dir: where offsets, groups and topics with their records are kept; None: in memory. A server started later
            on the same directory goes on where this one stopped.
        clock: a clock that the test turns with :meth:`advance`; None: real time.

    Raises:
        ConfigError: a setting is unknown, or its value is not allowed.
    """

    def __init__(
        self,
        *,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, str | int | float] | None = None,
        data_dir: str | Path | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        properties = {key.replace("_", "."): value for key, value in {**SETTINGS, **(settings or {})}.items()}
        self._config = Config.from_properties(properties)
        self._topics = dict(topics or {})
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._manual_clock = clock
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._server: Server
        self._stopping: asyncio.Event
        self.port = 0

    @property
    def bootstrap(self) -> str:
        """What clients are to be given as ``bootstrap.servers``."""
        return f"{HOST}:{self.port}"

    def __enter__(self) -> ServerThread:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start to serve; a server that was stopped can be started again, on another port.

        Raises:
            RuntimeError: it runs already, or did not start in time.
            OSError: no port, or no directory, is to be had.
            GroupcoordError: the data directory, or a topic, can't be used.
        """
        if self._thread is not None:
            raise RuntimeError("the server runs already")
        started: Future[None] = Future()
        thread = threading.Thread(target=self._run, args=(started,), name="groupcoord-server", daemon=True)
        thread.start()
        try:
            started.result(START_TIMEOUT_S)
        except TimeoutError:
            raise RuntimeError(f"the server did not start within {START_TIMEOUT_S:g} s") from None
        self._thread = thread

    def stop(self) -> None:
        """Close every connection and the data directory; nothing happens if the server does not run.

        Raises:
            RuntimeError: it did not stop in time.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join(STOP_TIMEOUT_S)
        if thread.is_alive():
            raise RuntimeError(f"the server did not stop within {STOP_TIMEOUT_S:g} s")

    def run(self, function: Callable[[Broker], T]) -> T:
        """Call a function in the server's thread with its broker, and return what it returns.

        That is how a test looks inside: ``server.run(lambda broker: broker.coordinator.counters.as_dict())``.

        Raises:
            RuntimeError: the server does not run.
            TimeoutError: the function took too long.
        """
        if self._thread is None:
            raise RuntimeError("the server does not run")
        done: Future[T] = Future()

        def call() -> None:
            try:
                result = function(self._server.broker)
                self._server.flush()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(result)

        self._loop.call_soon_threadsafe(call)
        return done.result(CALL_TIMEOUT_S)

    def advance(self, duration_ms: int) -> None:
        """Let time pass on the test's clock; whatever falls due on the way happens at its moment.

        Raises:
            ValueError: the server runs on real time, or the duration is negative.
        """
        clock = self._manual_clock
        if clock is None:
            raise ValueError("this server runs on real time: give it a ManualClock")
        if duration_ms < 0:
            raise ValueError(f"time cannot go back: advance({duration_ms})")

        def pass_time(broker: Broker) -> None:
            end_ms = clock.now_ms() + duration_ms
            while (due_ms := broker.next_deadline_ms()) is not None and due_ms <= end_ms:
                clock.advance_to(max(due_ms, clock.now_ms()))
                broker.tick()
                broker.handle_waiting()
                self._server.flush()
            clock.advance_to(end_ms)

        self.run(pass_time)

    # ------------------------------------------------------------ in the thread

    def _run(self, started: Future[None]) -> None:
        try:
            asyncio.run(self._serve(started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        with ExitStack() as stack:
            self._server = Server(self._make_broker(stack), HOST, 0)
            async with self._server as server:
                self.port = server.port
                started.set_result(None)
                await self._stopping.wait()

    def _make_broker(self, stack: ExitStack) -> Broker:
        clock: Clock = self._manual_clock or SystemClock()
        store = open_log_store(self._data_dir, self._config)
        if isinstance(store, ClosableStore):
            stack.callback(store.close)
        registry = TopicRegistry(self._data_dir)
        config, offsets_topic = self._config, registry.get(OFFSETS_TOPIC)
        if offsets_topic is not None:
            config = evolve(config, offsets_topic_num_partitions=offsets_topic.partition_count)
        directory = open_topic_directory(self._data_dir, config, registry)
        for name, partition_count in self._topics.items():
            registry.ensure(name, partition_count)
        return Broker(
            config=config,
            clock=clock,
            log_store=store,
            topics=registry,
            group_configs=GroupConfigs(config, self._data_dir),
            node=Node(1, HOST, 0),
            transaction_log=open_transaction_log(self._data_dir),
            topic_directory=directory,
        )
