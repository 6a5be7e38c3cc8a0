"""groupcoord in process, without sockets, on a virtual clock.

A sleep or wait moves the clock from deadline to deadline, so timers fire exactly.
"""

from __future__ import annotations

import itertools
import random
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from groupcoord.clock import ManualClock
from groupcoord.config import Config
from groupcoord.conformance.targets import VIRTUAL_TIME, ConnectionClosedError, Settings, TargetError, Tolerance
from groupcoord.core.messages import Node
from groupcoord.errors import ConfigError
from groupcoord.log_store import MemoryLogStore

if TYPE_CHECKING:
    from groupcoord.broker.broker import Broker
    from groupcoord.broker.connection import Connection

_START_MS = 1_700_000_000_000
_SEED = 848
_CLIENT_HOST = "/127.0.0.1"
_MAX_TICKS_AT_ONE_MOMENT = 10_000

T = TypeVar("T")


class InProcessTarget:
    """New broker for each transcript, with a log in memory that survives restarts.

    Args:
        tolerance: see :class:`Target`.
    """

    shared = False
    can_restart = True
    own_settings: Mapping[str, str] | None = None

    def __init__(self, *, tolerance: Tolerance = VIRTUAL_TIME) -> None:
        self.tolerance = tolerance

    def sets(self, key: str) -> bool:
        """Return True: brokers apply every setting."""
        return True

    def start(self, settings: Settings, nodes: int = 1) -> InProcessServer:
        """Create a broker, or several nodes, with these settings."""
        from groupcoord.broker.broker import make_broker
        from groupcoord.broker.cluster.leadership import Leadership
        from groupcoord.broker.cluster.nodes import Nodes
        from groupcoord.broker.configs.definitions import GroupConfigs
        from groupcoord.broker.records.topic_data import NodeData, TopicData
        from groupcoord.broker.security.security import Security, split_properties
        from groupcoord.broker.topics.registry import TopicRegistry
        from groupcoord.broker.transactions.log import ProducerIds

        clock = ManualClock(_START_MS)
        try:
            own, secure = split_properties(settings)
            config = Config.from_properties(own)
            security = Security(clock, None, secure) if secure else None
        except ConfigError as error:
            raise TargetError(str(error)) from error
        # Ids are the same in every run: topic ids determine the order of some assignors.
        chance = random.Random(_SEED)
        topics = TopicRegistry(new_id=lambda: UUID(int=chance.getrandbits(128), version=4))
        log_store = MemoryLogStore()
        group_configs = GroupConfigs(config)
        data, producer_ids = TopicData(config, clock, topics), ProducerIds()
        numbers = itertools.count(1)

        def new_broker(**changes: Any) -> Broker:
            return make_broker(
                config=config,
                clock=clock,
                log_store=log_store,
                topics=topics,
                group_configs=group_configs,
                producer_ids=producer_ids,
                security=security,
                new_member_id=lambda prefix: f"{prefix}-{UUID(int=next(numbers))}",
                new_uuid=lambda: str(UUID(int=next(numbers))),
                **{"data": data, **changes},
            )

        def new_brokers() -> dict[int, Broker]:
            if nodes == 1:
                return {1: new_broker()}
            leadership = Leadership(Node(number, "localhost", 9091 + number) for number in range(1, nodes + 1))
            common = Nodes(leadership, topics, data)
            return {
                node.node_id: new_broker(node=node, nodes=common, data=NodeData(data, leadership, node.node_id))
                for node in leadership.brokers()
            }

        return InProcessServer(new_brokers, clock)


class InProcessServer:
    """Broker on a virtual clock, or several nodes with common logs and topics, as in ``groupcoord serve --nodes``."""

    def __init__(self, make_brokers: Callable[[], dict[int, Broker]], clock: ManualClock) -> None:
        self._make_brokers = make_brokers
        self._clock = clock
        self._streams: list[InProcessStream] = []
        self._brokers = guarded(make_brokers)

    def connect(self, node: Node | None = None) -> InProcessStream:
        broker = self._brokers[1 if node is None or len(self._brokers) == 1 else node.node_id]
        stream = InProcessStream(self, guarded(lambda: broker.connect(_CLIENT_HOST)))
        self._streams.append(stream)
        return stream

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def wall_ms(self) -> float:
        return self._clock.now_ms()

    def sleep(self, duration_ms: float) -> None:
        self.run_until(self.now_ms() + round(duration_ms), lambda: False)

    def run_until(self, end_ms: int, done: Callable[[], bool]) -> None:
        moment_ms, ticks = self.now_ms(), 0
        while not done():
            deadlines_ms = [guarded(broker.next_deadline_ms) for broker in self._brokers.values()]
            deadline_ms = min((each for each in deadlines_ms if each is not None), default=None)
            if deadline_ms is None or deadline_ms > end_ms:
                self._clock.advance_to(end_ms)
                return
            if deadline_ms > moment_ms:
                self._clock.advance_to(deadline_ms)
                moment_ms, ticks = deadline_ms, 0
            ticks += 1
            if ticks > _MAX_TICKS_AT_ONE_MOMENT:
                raise TargetError(f"the broker's next deadline stays at {deadline_ms} however often tick() is called")
            for broker in self._brokers.values():
                guarded(broker.tick)
            self.handle_waiting()

    def handle_waiting(self) -> None:
        while any(broker.turns.waiting for broker in self._brokers.values()):
            for broker in self._brokers.values():
                guarded(broker.handle_waiting)

    def restart(self) -> None:
        for stream in self._streams:
            stream.cut()
        self._streams.clear()
        self._brokers = guarded(self._make_brokers)

    def stop(self) -> None:
        """Do nothing: the broker holds no resources."""


class InProcessStream:
    """Connection to a broker object."""

    def __init__(self, server: InProcessServer, connection: Connection) -> None:
        self._server = server
        self._connection: Connection | None = connection
        self._received = bytearray()

    def send(self, data: bytes) -> None:
        connection = self._open()
        guarded(lambda: connection.receive_data(data))
        self._server.handle_waiting()

    def receive(self, timeout_ms: float) -> bytes:
        connection = self._open()
        self._server.run_until(self._server.now_ms() + round(timeout_ms), self._has_news)
        data = bytes(self._received)
        self._received.clear()
        if not data and connection.closing is not None:
            raise ConnectionClosedError(f"the broker closed the connection: {connection.closing}")
        return data

    def close(self) -> None:
        if self._connection is not None:
            guarded(self._connection.close)
            self._connection = None

    def cut(self) -> None:
        self._connection = None

    def _has_news(self) -> bool:
        connection = self._open()
        while output := guarded(connection.take_output):
            self._received += output
            self._server.handle_waiting()
        return bool(self._received) or connection.closing is not None

    def _open(self) -> Connection:
        if self._connection is None:
            raise ConnectionClosedError("the connection is closed")
        return self._connection


def guarded(act: Callable[[], T]) -> T:
    """Return ``act()``; an exception of the broker becomes a :class:`TargetError` with its place."""
    try:
        return act()
    except Exception as error:
        where = "".join(traceback.format_tb(error.__traceback__, limit=-2))
        raise TargetError(f"the broker raised {type(error).__name__}: {error}\n{where.rstrip()}") from error
