"""What a transcript is replayed against, as the runner sees it: a target starts servers, a server gives streams."""

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
"""Settings of the broker that the transcripts were recorded with; a transcript names those it needs besides."""


@frozen
class Tolerance:
    """How far the time of an answer may be from the recorded one.

    Attributes:
        late_factor: an answer may take this many times as long as recorded …
        late_ms: … and so much longer.
        early_factor: an answer must not take less than this part of what was recorded …
        early_ms: … less so much.
        initial_delay_ms: how much longer members of a new group wait for company than was recorded.
        only_joins: only a JoinGroup recorded with more than 400 ms can be early: others may be quicker than Kafka.
    """

    late_factor: float
    late_ms: float
    early_factor: float
    early_ms: float
    only_joins: bool
    initial_delay_ms: int = 0

    def latest_ms(self, api: str, took_ms: int) -> float:
        """Return how long after its request an answer of ``api`` may come at the latest, if it was recorded so."""
        delay_ms = self.initial_delay_ms if api == "JoinGroup" else 0
        return took_ms * self.late_factor + self.late_ms + delay_ms

    def earliest_ms(self, api: str, took_ms: int) -> float:
        """Return how long after its request an answer of ``api`` may come at the earliest."""
        if self.only_joins and (api != "JoinGroup" or took_ms <= 400):
            return 0.0
        return took_ms * self.early_factor - self.early_ms


WALL_TIME = Tolerance(late_factor=1.5, late_ms=1500, early_factor=0.7, early_ms=50, only_joins=True)
"""For servers that run in real time, on a machine that does other things as well."""

VIRTUAL_TIME = Tolerance(late_factor=1, late_ms=50, early_factor=1, early_ms=200, only_joins=False)
"""For virtual time, in which timers fire exactly; the real broker took up to 200 ms to write to a new log partition."""


class TargetError(GroupcoordError):
    """A server did not start, did not become ready or broke down; the message says what it left behind."""


class ConnectionClosedError(GroupcoordError):
    """The server closed a connection, or could not be reached."""


class Stream(Protocol):
    """A connection to a server: bytes both ways."""

    def send(self, data: bytes) -> None:
        """Send ``data``.

        Raises:
            ConnectionClosedError: the connection is gone.
        """

    def receive(self, timeout_ms: float) -> bytes:
        """Return the bytes that have arrived; if there are none, wait for them at most ``timeout_ms``.

        Returns:
            At least one byte, or nothing if none arrived in time.

        Raises:
            ConnectionClosedError: the connection is gone, and everything that came before was returned.
        """

    def close(self) -> None:
        """Close the connection. Harmless when it is closed already."""


class Server(Protocol):
    """A running server, and the time it lives in."""

    def connect(self, node: Node | None = None) -> Stream:
        """Open a connection.

        Args:
            node: one of several nodes, as the server describes it in Metadata; None is the bootstrap address.

        Raises:
            ConnectionClosedError: the server can't be reached.
        """

    def wall_ms(self) -> float:
        """Return the time that the server's clock shows, in milliseconds since the Unix epoch, roughly."""

    def now_ms(self) -> float:
        """Return the current time in milliseconds; only differences mean something."""

    def sleep(self, duration_ms: float) -> None:
        """Let ``duration_ms`` pass."""

    def restart(self) -> None:
        """Kill the server without warning and start it again on its data; its connections are gone.

        Raises:
            TargetError: it did not start again.
        """

    def stop(self) -> None:
        """Stop the server for good and clean up."""


class Target(Protocol):
    """Where servers come from.

    Attributes:
        shared: one server may serve many transcripts, also at the same time; otherwise each has its own, in turn.
        can_restart: its servers can be killed and started again.
        tolerance: how exactly its answers have to come at the recorded time.
        own_settings: None: its servers get the settings that are asked for. Otherwise the server is somebody else's,
            with settings of its owner's choice; this is what is known of them without asking, under Kafka's keys.
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
        """Tell whether its servers have this setting as they are asked to; otherwise they are asked how they have it.

        Args:
            key: Kafka's key.
        """

    def start(self, settings: Settings, nodes: int = 1) -> Server:
        """Start a server with these broker settings.

        Args:
            settings: the settings.
            nodes: how many nodes it should have, with the ids from 1. The runner passes it if that is more than one.

        Raises:
            TargetError: it did not start.
        """
