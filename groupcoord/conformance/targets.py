"""Interfaces between the runner of transcripts and servers, with their settings and tolerances.

A target starts servers, and a server opens streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from attrs import frozen

from groupcoord.core.messages import Node
from groupcoord.errors import GroupcoordError

Settings = Mapping[str, str | int]

USUAL_SETTINGS: Settings = MappingProxyType(
    {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 100,
        "group.consumer.min.session.timeout.ms": 500,
        "group.consumer.session.timeout.ms": 45000,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "auto.create.topics.enable": "false",
    }
)
"""Broker settings of the recordings; a transcript lists only those that differ."""


@frozen
class Tolerance:
    """Allowed difference between the recorded and the actual time of a response.

    Attributes:
        late_factor, late_ms: factor on the recorded duration and addition to it, for the latest time.
        early_factor, early_ms: factor on it and deduction from it, for the earliest time.
        only_joins: only a JoinGroup recorded with more than 400 ms has an earliest time, since a server may be faster.
        initial_delay_ms: initial rebalance delay of the server, added to the latest time of a JoinGroup.
    """

    late_factor: float
    late_ms: float
    early_factor: float
    early_ms: float
    only_joins: bool
    initial_delay_ms: int = 0

    def latest_ms(self, api: str, took_ms: int) -> float:
        """Return the latest time of a response after its request, in milliseconds."""
        delay_ms = self.initial_delay_ms if api == "JoinGroup" else 0
        return took_ms * self.late_factor + self.late_ms + delay_ms

    def earliest_ms(self, api: str, took_ms: int) -> float:
        """Return the earliest time of a response after its request, in milliseconds."""
        if self.only_joins and (api != "JoinGroup" or took_ms <= 400):
            return 0.0
        return took_ms * self.early_factor - self.early_ms


WALL_TIME = Tolerance(late_factor=1.5, late_ms=1500, early_factor=0.7, early_ms=50, only_joins=True)
"""For real time on a busy machine."""

VIRTUAL_TIME = Tolerance(late_factor=1, late_ms=50, early_factor=1, early_ms=200, only_joins=False)
"""For virtual time with exact timers: up to 200 ms early, the time in which Kafka wrote to a new log partition."""


class TargetError(GroupcoordError):
    """A server failed to start, became unavailable or failed; the message has its last output."""


class ConnectionClosedError(GroupcoordError):
    """A connection was closed or could not be opened."""


class Stream(Protocol):
    """Connection to a server."""

    def send(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            ConnectionClosedError: the connection is closed.
        """

    def receive(self, timeout_ms: float) -> bytes:
        """Return the received bytes, at least one; an empty result after ``timeout_ms``.

        Raises:
            ConnectionClosedError: the connection is closed and all bytes were returned.
        """

    def close(self) -> None:
        """Close the connection; no effect if it is closed."""


class Server(Protocol):
    """Running server with its clock."""

    def connect(self, node: Node | None = None) -> Stream:
        """Open a connection.

        Args:
            node: a node as in Metadata; None for the bootstrap address.

        Raises:
            ConnectionClosedError: the server is unreachable.
        """

    def wall_ms(self) -> float:
        """Return the approximate time of the server's clock in milliseconds since the Unix epoch."""

    def now_ms(self) -> float:
        """Return the milliseconds since an unspecified start."""

    def sleep(self, duration_ms: float) -> None:
        """Wait ``duration_ms``."""

    def restart(self) -> None:
        """Kill the server and start it again on its data; connections are lost.

        Raises:
            TargetError: it did not start.
        """

    def stop(self) -> None:
        """Stop the server and clean up."""


class Target(Protocol):
    """Source of servers.

    Attributes:
        shared: transcripts run concurrently on one server; otherwise each has its own, one after the other.
        can_restart: its servers can be killed and restarted.
        tolerance: allowed differences in time.
        own_settings: None if servers start with the requested settings; otherwise the settings that the owner of a
            running server has stated, by Kafka's keys.
    """

    @property
    def shared(self) -> bool: ...

    @property
    def can_restart(self) -> bool: ...

    @property
    def tolerance(self) -> Tolerance: ...

    @property
    def own_settings(self) -> Mapping[str, str] | None: ...

    def sets(self, key: str) -> bool:
        """Return whether servers apply this setting; if not, the runner queries its value."""

    def start(self, settings: Settings, nodes: int = 1) -> Server:
        """Start a server with these settings.

        Args:
            settings: broker settings.
            nodes: number of nodes, with ids from 1; passed only if above one.

        Raises:
            TargetError: it did not start.
        """
