"""Connections between clients and nodes: in order within one, in any order across them, until they break."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from groupcoord.messages import Request, Response
from groupcoord.sim.kernel.randomness import Chance, Latency, stable_number
from groupcoord.sim.kernel.scheduler import Scheduler, rank_of_arrival

BURST_MAX = 100
"""So many requests of one connection may arrive in one millisecond.

Without a bound time would stand still where messages take no time and a consumer tries again at once, as Java's does
after MEMBER_ID_REQUIRED and UNKNOWN_MEMBER_ID.
"""


class Client(Protocol):
    """A consumer, as the network sees it."""

    def receive(self, connection: SimulatedConnection, correlation_id: int, response: Response) -> None:
        """An answer has come."""

    def disconnected(self, connection: SimulatedConnection) -> None:
        """A connection is gone, and all that was on its way on it."""


class Server(Protocol):
    """A node, as the network sees it."""

    node_id: int
    is_up: bool

    def receive(self, exchange: Exchange) -> None:
        """A request has come."""

    def disconnected(self, connection: SimulatedConnection) -> None:
        """A connection is closed, which is told of those alone that something hangs on."""


class Exchange:
    """A request on a connection, and what its answer belongs to."""

    __slots__ = ("connection", "correlation_id", "request", "response")

    def __init__(self, connection: SimulatedConnection, correlation_id: int, request: Request) -> None:
        self.connection = connection
        self.correlation_id = correlation_id
        self.request = request
        self.response: Response | None = None


class SimulatedConnection:
    """One connection of a consumer to a node.

    Attributes:
        client_number: tells its consumer from others.
        key: what latencies on it depend on.
        rank: of its requests' arrivals; one more is that of the answers'.
        is_listening: the consumer still wants what comes on it.
        is_dead: the node's end is gone: requests find nobody.
        is_watched: something hangs on it at the node, so that it is told when the connection ends.
        is_silent: nothing gets through any more, and nobody was told: who waits finds out by waiting too long.
        waiting: requests that have arrived while the node still works on an earlier one.
        is_busy: the node works on a request.
        burst: how many requests arrive in the same millisecond as the last one but it.
    """

    __slots__ = (
        "burst",
        "client",
        "client_number",
        "is_busy",
        "is_dead",
        "is_listening",
        "is_silent",
        "is_watched",
        "key",
        "last_answer_ms",
        "last_request_ms",
        "rank",
        "server",
        "waiting",
    )

    def __init__(self, client: Client, client_number: int, server: Server, key: int) -> None:
        self.client = client
        self.client_number = client_number
        self.server = server
        self.key = key
        self.rank = rank_of_arrival(client_number)
        self.is_listening = True
        self.is_dead = False
        self.is_silent = False
        self.is_watched = False
        self.is_busy = False
        self.burst = 0
        self.waiting: deque[Exchange] = deque()
        self.last_request_ms = 0
        self.last_answer_ms = 0


class Network:
    """Carries messages.

    How long one takes depends on its connection and the moment alone. While a consumer is cut off from a node, messages
    between them vanish, and so does what their connection would carry later.

    Attributes:
        cut_off: (consumer's number, node id) of all pairs that do not reach each other.
        loss: the chance that a message breaks its connection; None: it does not happen now.
    """

    def __init__(self, scheduler: Scheduler, seed: int, latency: Latency) -> None:
        self.latency = latency
        self.cut_off: set[tuple[int, int]] = set()
        self.loss: Chance | None = None
        self._scheduler = scheduler
        self._seed = seed

    def connect(self, client: Client, client_number: int, server: Server) -> SimulatedConnection:
        """Open a connection. Nothing tells whether the node is there until the first request is sent."""
        key = stable_number(self._seed, client_number, server.node_id, self._scheduler.time_ms)
        return SimulatedConnection(client, client_number, server, key)

    def send(self, connection: SimulatedConnection, correlation_id: int, request: Request) -> None:
        """Carry a request to the node, or lose it and the connection."""
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
        """Carry an answer back to the consumer."""
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
        """Break a connection: what is on its way to the consumer is lost, and it is told."""
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
        """The consumer hangs up. Requests that are on their way still arrive and count; nobody hears the answers."""
        connection.is_listening = False
        if connection.is_watched and self._gets_through(connection):
            now_ms = self._scheduler.time_ms
            end_ms = max(now_ms + self.latency.at(connection.key, now_ms), connection.last_request_ms)
            self._scheduler.at(end_ms, connection.rank, self._end, connection)

    @staticmethod
    def _end(connection: SimulatedConnection) -> None:
        if connection.server.is_up:
            connection.server.disconnected(connection)
