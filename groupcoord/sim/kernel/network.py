"""Connections between clients and nodes: messages in order within a connection, until it breaks."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from groupcoord.messages import Request, Response
from groupcoord.sim.kernel.randomness import Chance, Latency, stable_number
from groupcoord.sim.kernel.scheduler import Scheduler, rank_of_arrival

BURST_MAX = 100
"""Most requests of a connection in one millisecond.

Without it virtual time would stop when latencies are zero and a consumer retries at once, as Java's does after
MEMBER_ID_REQUIRED and UNKNOWN_MEMBER_ID.
"""


class Client(Protocol):
    """Client as seen by the network."""

    def receive(self, connection: SimulatedConnection, correlation_id: int, response: Response) -> None:
        """Handle a response."""

    def disconnected(self, connection: SimulatedConnection) -> None:
        """Handle a lost connection, with the loss of all messages in flight."""


class Server(Protocol):
    """Node as seen by the network."""

    node_id: int
    is_up: bool

    def receive(self, exchange: Exchange) -> None:
        """Handle a request."""

    def disconnected(self, connection: SimulatedConnection) -> None:
        """Handle the end of a watched connection."""


class Exchange:
    """Request on a connection, to which its response belongs."""

    __slots__ = ("connection", "correlation_id", "request", "response")

    def __init__(self, connection: SimulatedConnection, correlation_id: int, request: Request) -> None:
        self.connection = connection
        self.correlation_id = correlation_id
        self.request = request
        self.response: Response | None = None


class SimulatedConnection:
    """Connection of a client to a node.

    Attributes:
        rank: rank of arriving requests; responses have the next one.
        is_dead: True once the node's end is closed: requests fail.
        is_watched: True if the node must be notified of its end.
        is_silent: True if messages are lost without notification, so that only timeouts detect it.
        burst: number of requests in the present millisecond.
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
    """Network between clients and nodes.

    A latency depends on the connection and the time alone. While a client is cut off from a node, messages between them
    are lost, and later ones on the same connection, too.

    Attributes:
        cut_off: pairs of client number and node id without a connection.
        loss: chance that a message breaks its connection, or None.
    """

    def __init__(self, scheduler: Scheduler, seed: int, latency: Latency) -> None:
        self.latency = latency
        self.cut_off: set[tuple[int, int]] = set()
        self.loss: Chance | None = None
        self._scheduler = scheduler
        self._seed = seed

    def connect(self, client: Client, client_number: int, server: Server) -> SimulatedConnection:
        key = stable_number(self._seed, client_number, server.node_id, self._scheduler.time_ms)
        return SimulatedConnection(client, client_number, server, key)

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
