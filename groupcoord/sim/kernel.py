"""Kernel of the simulator: virtual clock and scheduler, randomness from a seed, network, and trace of events.

Python's ``hash`` is not used, so a seed has the same result in every process.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from hashlib import blake2b, sha256
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from attrs import define, field

from groupcoord.core.router.authorization import UNRESTRICTED, Permissions
from groupcoord.messages import Request, Response

if TYPE_CHECKING:
    from groupcoord.sim.actors.clients import ScriptedClient
    from groupcoord.sim.actors.consumers import Consumer
    from groupcoord.sim.cluster.nodes import CoordinatorNode

MASK = 2**64 - 1


def stable_number(*names: object) -> int:
    """Return a 64-bit number for ``names`` (their text), the same in every process."""
    return int.from_bytes(blake2b("\0".join(map(str, names)).encode(), digest_size=8).digest(), "big")


def stream(seed: int, *names: object) -> random.Random:
    """Return a random generator for ``names``, independent of all others."""
    return random.Random(stable_number(seed, *names))


def mixed(key: int, moment: int) -> int:
    """Return a pseudo-random 32-bit number for ``key`` (64 bits) and ``moment`` alone."""
    x = (moment * 0x9E3779B97F4A7C15 + key) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x >> 32


class Chance:
    """Event that occurs with a probability at each time."""

    __slots__ = ("_key", "_threshold")

    def __init__(self, key: int, probability: float) -> None:
        self._key = key
        self._threshold = int(probability * 2**32)

    def strikes(self, moment: int) -> bool:
        return mixed(self._key, moment) < self._threshold


class Latency:
    """Latency of messages: mostly near the low end, sometimes much longer."""

    __slots__ = ("_table",)

    def __init__(self, least_ms: int, most_ms: int) -> None:
        spread = most_ms - least_ms
        # Of 256 equally likely values, the n-th has n/256 to the sixth power of the spread.
        self._table = tuple(least_ms + round(spread * (n / 255) ** 6) for n in range(256))

    def at(self, key: int, moment_ms: int) -> int:
        return self._table[mixed(key, moment_ms) & 255]


Action = Callable[[Any], None]
"""Scheduled function; called with its argument."""

WORLD_RANK = 0
"""Rank of faults, which come first."""


def rank_of_node(node_id: int) -> int:
    return node_id


def rank_of_arrival(client_number: int) -> int:
    """Return the rank of a client's requests that reach a node; responses have the next one."""
    return _FIRST_CLIENT + 4 * client_number


def rank_of_deadline(client_number: int) -> int:
    return _FIRST_CLIENT + 4 * client_number + 2


_FIRST_CLIENT = 1_000


def ignore(*_: object) -> None: ...


class Scheduler:
    """Heap of scheduled actions, and the clock of a run (see :class:`groupcoord.Clock`).

    Actions of the same millisecond run in the order of their ranks, and of equal ranks in the order in which they were
    scheduled. Every actor has its own ranks, so the order does not depend on how early others scheduled. Actions can't
    be cancelled; they check whether they still apply.
    """

    __slots__ = ("_heap", "_sequence", "executed", "time_ms")

    def __init__(self, start_ms: int) -> None:
        self.time_ms = start_ms
        self.executed = 0
        self._heap: list[tuple[int, int, int, Action, Any]] = []
        self._sequence = 0

    def now_ms(self) -> int:
        return self.time_ms

    def at(self, time_ms: int, rank: int, action: Action, argument: Any = None) -> None:
        """Schedule ``action(argument)`` at ``time_ms``, or now if that is in the past."""
        self._sequence = sequence = self._sequence + 1
        now_ms = self.time_ms
        heappush(self._heap, (time_ms if time_ms > now_ms else now_ms, rank, sequence, action, argument))

    def run_until(self, end_ms: int, after_each: Callable[[], None] | None = None) -> None:
        heap = self._heap
        executed = 0
        try:
            while heap and heap[0][0] <= end_ms:
                self.time_ms, _, _, action, argument = heappop(heap)
                executed += 1
                action(argument)
                if after_each is not None:
                    after_each()
        finally:
            self.executed += executed
        self.time_ms = max(self.time_ms, end_ms)


MILLION = 1_000_000


@define(eq=False)
class LocalClock:
    """Clock of a consumer.

    Attributes:
        skipped_ms: time that does not pass on this clock (see ``FastForward``).
    """

    _start_ms: int
    _offset_ms: int = 0
    drift_ppm: int = 0
    skipped_ms: int = 0

    def at(self, world_ms: int) -> int:
        local_ms = world_ms + self._offset_ms - self.skipped_ms
        if self.drift_ppm:
            local_ms += (world_ms - self._start_ms) * self.drift_ppm // MILLION
        return local_ms

    def world_at(self, local_ms: int) -> int:
        """Return the first virtual time at which this clock shows at least ``local_ms``."""
        world_ms = local_ms - self._offset_ms + self.skipped_ms
        if self.drift_ppm:
            passed_ms = world_ms - self._start_ms
            world_ms = self._start_ms - (-passed_ms * MILLION // (MILLION + self.drift_ppm))
        return world_ms

    def jump(self, duration_ms: int) -> None:
        self._offset_ms += duration_ms


LineSink = Callable[[str], None]
"""Receiver of lines of the trace, without line ends."""


class Trace:
    """Trace of the events of a run.

    Attributes:
        start_ms: start of the run, from which times in lines count.
        tail: the last lines, for reports of failures.
    """

    def __init__(self, start_ms: int, sink: LineSink | None = None) -> None:
        self.start_ms = start_ms
        self.line_count = 0
        self.tail: deque[str] = deque(maxlen=100)
        self._sink = sink
        self._digest = sha256()

    def record(self, now_ms: int, who: str, what: str) -> None:
        """Add a line.

        Args:
            now_ms: the time, in milliseconds since the Unix epoch.
            who: a node, a consumer, a group, or ``world``.
        """
        line = f"{format_time(now_ms - self.start_ms)} {who:<10} {what}"
        self.line_count += 1
        self._digest.update(line.encode() + b"\n")
        self.tail.append(line)
        if self._sink is not None:
            self._sink(line)

    def conclude(self, durable_state: str) -> None:
        """Add the final durable state to the digest."""
        self._digest.update(durable_state.encode())

    def digest(self) -> str:
        """Return the digest, which is equal for runs with equal events."""
        return self._digest.hexdigest()


def format_time(duration_ms: int) -> str:
    seconds, milliseconds = divmod(duration_ms, 1_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}"


BURST_MAX = 100
"""Most requests of a connection in one millisecond.

Without it virtual time would stop when latencies are zero and a consumer retries at once, as Java's does after
MEMBER_ID_REQUIRED and UNKNOWN_MEMBER_ID.
"""


@define(eq=False)
class Exchange:
    """Request on a connection, to which its response belongs."""

    connection: SimulatedConnection
    correlation_id: int
    request: Request
    response: Response | None = None


@define(eq=False)
class SimulatedConnection:
    """Connection of a client to a node.

    Attributes:
        rank: rank of arriving requests; responses have the next one.
        is_watched: True if the node must be notified of its end.
        is_silent: True if messages are lost without notification, so that only timeouts detect it.
    """

    client: Consumer | ScriptedClient
    client_number: int
    server: CoordinatorNode
    key: int
    rank: int
    is_listening: bool = True
    is_dead: bool = False
    is_silent: bool = False
    is_watched: bool = False
    is_busy: bool = False
    burst: int = 0
    permissions: Permissions = UNRESTRICTED
    waiting: deque[Exchange] = field(factory=deque)
    last_request_ms: int = 0
    last_answer_ms: int = 0


class Network:
    """Network between clients and nodes.

    A latency depends on the connection and the time alone. While a client is cut off from a node, messages between them
    are lost, and later ones on the same connection, too.
    """

    def __init__(self, scheduler: Scheduler, seed: int, latency: Latency) -> None:
        self.latency = latency
        self.cut_off: set[tuple[int, int]] = set()
        self.loss: Chance | None = None
        self._scheduler = scheduler
        self._seed = seed

    def connect(
        self, client: Consumer | ScriptedClient, client_number: int, server: CoordinatorNode
    ) -> SimulatedConnection:
        key = stable_number(self._seed, client_number, server.node_id, self._scheduler.time_ms)
        return SimulatedConnection(client, client_number, server, key, rank_of_arrival(client_number))

    def send(self, connection: SimulatedConnection, correlation_id: int, request: Request) -> None:
        if self._gets_through(connection):
            now_ms = self._scheduler.time_ms
            arrival_ms = now_ms + self.latency.at(connection.key, now_ms)
            if arrival_ms > connection.last_request_ms:
                connection.burst = 0
            else:
                connection.burst = (connection.burst + 1) % BURST_MAX
                arrival_ms = connection.last_request_ms + (connection.burst == 0)
            connection.last_request_ms = arrival_ms
            self._scheduler.at(arrival_ms, connection.rank, self._arrive, Exchange(connection, correlation_id, request))

    def _arrive(self, exchange: Exchange) -> None:
        connection = exchange.connection
        if connection.is_dead or not connection.server.is_up:
            self.reset(connection)
        else:
            connection.server.receive(exchange)

    def answer(self, exchange: Exchange, response: Response) -> None:
        connection = exchange.connection
        if self._gets_through(connection):
            exchange.response = response
            now_ms = self._scheduler.time_ms
            arrival_ms = now_ms + self.latency.at(~connection.key, now_ms)
            if arrival_ms < connection.last_answer_ms:
                arrival_ms = connection.last_answer_ms
            connection.last_answer_ms = arrival_ms
            self._scheduler.at(arrival_ms, connection.rank + 1, self._deliver, exchange)

    def _deliver(self, exchange: Exchange) -> None:
        connection = exchange.connection
        if connection.is_listening and not connection.is_dead:
            assert exchange.response is not None
            connection.client.receive(connection, exchange.correlation_id, exchange.response)

    def _gets_through(self, connection: SimulatedConnection) -> bool:
        if connection.is_silent:
            return False
        if self.cut_off and (connection.client_number, connection.server.node_id) in self.cut_off:
            connection.is_silent = True
            return False
        if self.loss is not None:
            moment = connection.key + self._scheduler.time_ms
            if self.loss.strikes(moment):
                if moment % 2:
                    connection.is_silent = True
                else:
                    self.reset(connection)
                return False
        return not connection.is_dead

    def reset(self, connection: SimulatedConnection) -> None:
        """Break a connection: responses in flight are lost, and the client is notified."""
        if not connection.is_dead:
            connection.is_dead = True
            now_ms = self._scheduler.time_ms
            notified_ms = now_ms + self.latency.at(~connection.key, now_ms)
            self._scheduler.at(notified_ms, connection.rank + 1, self._notify, connection)
            if connection.is_watched:
                self._scheduler.at(now_ms, connection.rank, self._end, connection)

    def _notify(self, connection: SimulatedConnection) -> None:
        if connection.is_listening and not connection.is_silent:
            connection.is_listening = False
            connection.client.disconnected(connection)

    def close(self, connection: SimulatedConnection) -> None:
        """Close a connection by the client. Requests in flight still arrive; their responses are discarded."""
        connection.is_listening = False
        if connection.is_watched and self._gets_through(connection):
            now_ms = self._scheduler.time_ms
            end_ms = max(now_ms + self.latency.at(connection.key, now_ms), connection.last_request_ms)
            self._scheduler.at(end_ms, connection.rank, self._end, connection)

    @staticmethod
    def _end(connection: SimulatedConnection) -> None:
        if connection.server.is_up:
            connection.server.disconnected(connection)
