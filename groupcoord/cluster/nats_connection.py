"""Requests to NATS servers, by nats-py: one connection at a time, and another server when it is lost.

nats-py's own reconnection is not used. It waits until a stopped server has taken the pending data, and would later send
requests whose callers have given up. Here a request fails at once when its connection is lost.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from groupcoord.cluster.slot_log import SlotLogError

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

CONNECT_S = 1.0
"""Time limit for connecting to one server, in seconds."""

ANSWER_S = 2.0
"""Time limit for an answer, in seconds. A stream without a leader gives none, and the request is repeated."""

WATCH_S, PONG_S, MISSES_MAX = 0.25, 0.5, 2
"""Interval of pings, time limit for the pong, and how many pongs may be missing in a row."""

CLOSING_S = 1.0
_FOR_EVER_S = 10**6

SCHEMES = ("nats://", "tls://")
_PORT = 4222
_SETTINGS = ("replicas", "monitor", "credentials", "nkey", "sslrootcert", "sslcert", "sslkey")


class NatsAddress(NamedTuple):
    """Addresses of the servers and how to connect to them.

    Attributes:
        servers: a URL for each server.
        user, password: credentials; empty to log in without.
        replicas: the number of servers that store each message.
        monitors: monitoring URLs of the servers.
        credentials: a file with a user's JWT and seed.
        nkey: a file with a user's seed.
        root_certificates, certificate, key: files for TLS.
        is_tls: whether connections are encrypted.
    """

    servers: tuple[str, ...]
    user: str = ""
    password: str = ""
    replicas: int = 3
    monitors: tuple[str, ...] = ()
    credentials: str | None = None
    nkey: str | None = None
    root_certificates: str | None = None
    certificate: str | None = None
    key: str | None = None
    is_tls: bool = False

    @classmethod
    def parsed(cls, url: str) -> NatsAddress:
        """Parse a URL: ``nats://[user:password@]host[:port],…[?setting=value&…]``.

        Raises:
            ValueError: the URL is malformed.
        """
        parts = urlsplit(url)
        login, _, hosts = parts.netloc.rpartition("@")
        user, _, password = login.partition(":")
        said = parse_qs(parts.query, keep_blank_values=True)
        unknown = sorted(said.keys() - set(_SETTINGS))
        if not url.startswith(SCHEMES) or parts.path.strip("/") or not all(hosts.split(",")):
            raise ValueError("servers of NATS are named as nats://host:port,host:port")
        if unknown:
            raise ValueError(f"{unknown[0]} is no setting: there are {', '.join(_SETTINGS)}")
        one = {name: values[-1] for name, values in said.items()}
        replicas = one.get("replicas", "3")
        if replicas not in ("1", "3", "5"):
            raise ValueError(f"replicas={replicas} must be 1, 3 or 5")
        return cls(
            tuple(_server(parts.scheme, host) for host in hosts.split(",")),
            unquote(user),
            unquote(password),
            int(replicas),
            tuple(monitor.rstrip("/") for value in said.get("monitor", ()) for monitor in value.split(",")),
            one.get("credentials"),
            one.get("nkey"),
            one.get("sslrootcert"),
            one.get("sslcert"),
            one.get("sslkey"),
            parts.scheme == "tls",
        )

    def options(self) -> dict[str, Any]:
        """Return the options of nats-py's client.

        Raises:
            OSError: a file does not exist.
        """
        found: dict[str, Any] = {
            "user": self.user or None,
            "password": self.password or None,
            "user_credentials": self.credentials,
            "nkeys_seed": self.nkey,
        }
        if self.is_tls or self.root_certificates or self.certificate:
            context = ssl.create_default_context(cafile=self.root_certificates)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
            found["tls"] = context
        return {name: value for name, value in found.items() if value is not None}


def _server(scheme: str, host: str) -> str:
    parts = urlsplit(f"{scheme}://{host}")
    return f"{scheme}://{host}" if parts.port is not None else f"{scheme}://{host}:{_PORT}"


class _Asked:
    """A request and its answers so far."""

    def __init__(self, is_last: Callable[[Msg], bool]) -> None:
        self.replies: list[Msg] = []
        self.answer: asyncio.Future[list[Msg]] = asyncio.get_running_loop().create_future()
        self._is_last = is_last

    def replied(self, message: Msg) -> None:
        """Append an answer."""
        self.replies.append(message)
        if not self.answer.done() and self._is_last(message):
            self.answer.set_result(self.replies)


class _Connection:
    """Connection to one server.

    Attributes:
        client: the client of nats-py.
        is_lost: True if the connection is lost.
        complaint: the last error that the server has reported.
    """

    def __init__(self, client: Client, server: str) -> None:
        self.client = client
        self.is_lost = False
        self.complaint: Exception | None = None
        self._server = server
        self._asked: dict[str, _Asked] = {}
        self._inbox = ""
        self._count = 0
        self._watching: asyncio.Task[None] | None = None
        self._ping: asyncio.Task[None] | None = None

    async def open(self, options: Mapping[str, Any]) -> None:
        """Connect."""
        await self.client.connect(
            [self._server],
            error_cb=self._noted,
            disconnected_cb=self._disconnected,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            **{"connect_timeout": CONNECT_S, **options},
        )
        self._inbox = self.client.new_inbox()
        await self.client.subscribe(f"{self._inbox}.*", cb=self._replied, pending_msgs_limit=0, pending_bytes_limit=0)
        self._watching = asyncio.create_task(self._watch())

    async def ask(
        self, subject: str, payload: bytes, headers: dict[str, str] | None, is_last: Callable[[Msg], bool]
    ) -> list[Msg]:
        """Return the answers to a request, up to the last one."""
        self._count += 1
        token, asked = str(self._count), _Asked(is_last)
        self._asked[token] = asked
        try:
            await self.client.publish(subject, payload, f"{self._inbox}.{token}", headers)
            return await asked.answer
        finally:
            del self._asked[token]

    def lose(self, reason: str) -> None:
        """Give the connection up and fail all waiting requests."""
        if self.is_lost:
            return
        self.is_lost = True
        if self._watching is not None:
            self._watching.cancel()
        for asked in self._asked.values():
            if not asked.answer.done():
                asked.answer.set_exception(SlotLogError(f"the connection to {self._server} is lost: {reason}"))

    async def close(self) -> None:
        """Close the connection without waiting for a stopped server."""
        self.lose("it is closed")
        with suppress(Exception):
            async with asyncio.timeout(CLOSING_S):
                await self.client.close()
        if self._ping is not None:
            self._ping.cancel()

    async def _watch(self) -> None:
        """Send pings and give the connection up when pongs are missing."""
        while True:
            # Never cancelled: after a cancelled flush nats-py reads nothing more from the connection.
            self._ping = asking = asyncio.create_task(self.client.flush(_FOR_EVER_S))
            for _ in range(MISSES_MAX):  # a process that was held up sees its timeout first and the answer after it
                await asyncio.wait((asking,), timeout=PONG_S)
            if not asking.done():
                return self.lose(f"no answer for {PONG_S * MISSES_MAX} s")
            if (error := asking.exception()) is not None:
                return self.lose(repr(error))
            await asyncio.sleep(WATCH_S)

    async def _replied(self, message: Msg) -> None:
        asked = self._asked.get(message.subject.rpartition(".")[2])
        if asked is not None:
            asked.replied(message)

    async def _noted(self, error: Exception) -> None:
        self.complaint = error

    async def _disconnected(self) -> None:
        self.lose(repr(self.complaint))


class NatsConnections:
    """Sends requests to NATS servers, one server at a time.

    Args:
        address: the servers.

    Raises:
        ModuleNotFoundError: nats-py is not installed.
    """

    def __init__(self, address: NatsAddress) -> None:
        try:
            from nats.aio.client import Client
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "NatsSlotLog needs nats-py: pip install 'groupcoord[cluster]'", name=error.name
            ) from error
        self._new_client = Client
        self._address = address
        self._servers = random.sample(address.servers, len(address.servers))
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def ask(
        self,
        subject: str,
        payload: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        is_last: Callable[[Msg], bool] = lambda message: True,
        again_s: float = 0.0,
    ) -> list[Msg]:
        """Send a request to a subject and return the answers.

        A stream without a leader neither answers nor remembers the request.

        Args:
            subject: the subject.
            payload, headers: the message.
            is_last: returns whether an answer is the last one.
            again_s: how long to repeat an idempotent request, in seconds.

        Raises:
            SlotLogError: there is no answer.
        """
        from nats.errors import Error

        until_s = time.monotonic() + again_s
        while True:
            connection = await self._connected()
            try:
                async with asyncio.timeout(ANSWER_S):
                    return await connection.ask(subject, payload, headers, is_last)
            except TimeoutError:
                if time.monotonic() < until_s:
                    continue
                complaint = "" if connection.complaint is None else f": {connection.complaint!r}"
                raise SlotLogError(f"no answer to {subject} for {max(again_s, ANSWER_S)} s{complaint}") from None
            except Error as error:
                raise SlotLogError(f"{subject} can't be asked: {error!r}") from error

    async def client(self) -> Client:
        """Return a connected client of nats-py.

        Raises:
            SlotLogError: no server can be reached.
        """
        return (await self._connected()).client

    def leave(self) -> None:
        """Switch to another server: this one is reachable but useless."""
        if self._connection is not None:
            self._give_up(self._connection, "it is of no use")

    async def close(self) -> None:
        """Close the connection."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait((self._connecting,))
        if self._connection is not None:
            await self._connection.close()
        if self._closing:
            await asyncio.wait(tuple(self._closing))

    async def _connected(self) -> _Connection:
        if self._connection is not None and not self._connection.is_lost:
            return self._connection
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(_looked_at)  # all callers may have stopped waiting for it
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> _Connection:
        if self._connection is not None:
            self._give_up(self._connection, "it is lost")
        try:
            options = self._address.options()
        except (OSError, ValueError) as error:
            raise SlotLogError(f"the files for TLS can't be used: {error}") from error
        problem: Exception | None = None
        for _ in self._address.servers:
            server = self._servers.pop(0)
            self._servers.append(server)
            connection = _Connection(self._new_client(), server)
            try:
                async with asyncio.timeout(2 * CONNECT_S):
                    await connection.open(options)
            except Exception as error:
                # nats-py reports the reason through a callback.
                problem = SlotLogError(f"{urlsplit(server).netloc}: {connection.complaint or error!r}")
                self._give_up(connection, "it was not opened")
                continue
            self._connection = connection
            return connection
        raise SlotLogError(f"no server of NATS can be reached: {problem}")

    def _give_up(self, connection: _Connection, reason: str) -> None:
        """Close a connection in the background."""
        if connection is self._connection:
            self._connection = None
        connection.lose(reason)
        closing = asyncio.create_task(connection.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _looked_at(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
