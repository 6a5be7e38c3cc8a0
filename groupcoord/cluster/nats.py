"""Slot log in streams of NATS JetStream, by nats-py: each log partition is a stream and each slot a message.

A put is a publish with the header for the expected last sequence. JetStream replicates it to several servers before it
acknowledges, and elects another leader when one dies. The durability of a server's copy depends on its setting
``sync_interval: always``.

nats-py's own reconnection is not used. It waits until a stopped server has taken the pending data, and would later send
requests of callers that have given up. Here a request fails at once when its connection is lost.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen

from attrs import field, frozen

from groupcoord.cluster.slot_log import Beat, ConnectedSlotLog, Slot, SlotLogError
from groupcoord.lazy import import_driver

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg


CONNECT_S = 1.0
"""Time limit for connecting to one server, in seconds."""

ANSWER_S = 2.0
"""Time limit for an answer, in seconds. A stream without a leader gives none."""

WATCH_S, PONG_S, MISSES_MAX = 0.25, 0.5, 2
"""Interval of pings, time limit for the pong, and how many pongs may be missing in a row."""

CLOSING_S = 1.0
_FOR_EVER_S = 10**6

SCHEMES = ("nats://", "tls://")
_PORT = 4222
_FILES = ("credentials", "nkey", "sslrootcert", "sslcert", "sslkey")
_SETTINGS = ("replicas", "monitor", *_FILES)


@frozen
class NatsAddress:
    """Addresses of the servers and how to connect to them.

    Attributes:
        servers: a URL for each server.
        user, password: credentials; empty to log in without.
        replicas: the number of servers that store each message.
        monitors: monitoring URLs of the servers.
        files: the files to log in with and for TLS, by setting.
        is_tls: whether connections are encrypted.
    """

    servers: tuple[str, ...]
    user: str = ""
    password: str = ""
    replicas: int = 3
    monitors: tuple[str, ...] = ()
    files: Mapping[str, str] = field(factory=dict)
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
        replicas = said.get("replicas", ["3"])[-1]
        if replicas not in ("1", "3", "5"):
            raise ValueError(f"replicas={replicas} must be 1, 3 or 5")
        return cls(
            tuple(_server(parts.scheme, host) for host in hosts.split(",")),
            unquote(user),
            unquote(password),
            int(replicas),
            tuple(monitor.rstrip("/") for value in said.get("monitor", ()) for monitor in value.split(",")),
            {name: said[name][-1] for name in _FILES if name in said},
            parts.scheme == "tls",
        )

    def options(self) -> dict[str, Any]:
        credentials, nkey, root_certificates, certificate, key = map(self.files.get, _FILES)
        found: dict[str, Any] = {
            "user": self.user,
            "password": self.password,
            "user_credentials": credentials,
            "nkeys_seed": nkey,
        }
        if self.is_tls or root_certificates or certificate:
            found["tls"] = ssl.create_default_context(cafile=root_certificates)
            if certificate is not None:
                found["tls"].load_cert_chain(certificate, key)
        return {name: value for name, value in found.items() if value}


def _server(scheme: str, host: str) -> str:
    server = f"{scheme}://{host}"
    return server if urlsplit(server).port is not None else f"{server}:{_PORT}"


class _Connection:
    """Connection to one server.

    Attributes:
        client: the client of nats-py.
        complaint: the last error that the server has reported.
    """

    def __init__(self, client: Client, server: str) -> None:
        self.client = client
        self.is_lost = False
        self.complaint: Exception | None = None
        self._server = server
        self._asked: dict[str, asyncio.Queue[Msg | SlotLogError]] = {}
        self._inbox = ""
        self._count = 0
        self._watching: asyncio.Task[None] | None = None
        self._ping: asyncio.Task[None] | None = None

    async def open(self, options: Mapping[str, Any]) -> None:
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
        # Beyond its limits nats-py drops messages.
        await self.client.subscribe(f"{self._inbox}.*", cb=self._replied, pending_msgs_limit=0, pending_bytes_limit=0)
        self._watching = asyncio.create_task(self._watch())

    async def ask(
        self, subject: str, payload: bytes, headers: dict[str, str] | None, is_last: Callable[[Msg], bool]
    ) -> list[Msg]:
        self._count += 1
        token = str(self._count)
        replies: asyncio.Queue[Msg | SlotLogError] = asyncio.Queue()
        self._asked[token] = replies
        found: list[Msg] = []
        try:
            await self.client.publish(subject, payload, f"{self._inbox}.{token}", headers)
            while not found or not is_last(found[-1]):
                reply = await replies.get()
                if isinstance(reply, SlotLogError):
                    raise reply
                found.append(reply)
            return found
        finally:
            del self._asked[token]

    def lose(self, reason: str) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        if self._watching is not None:
            self._watching.cancel()
        for replies in self._asked.values():
            replies.put_nowait(SlotLogError(f"the connection to {self._server} is lost: {reason}"))

    async def close(self) -> None:
        """Close the connection without waiting for a stopped server."""
        self.lose("it is closed")
        with suppress(Exception):
            async with asyncio.timeout(CLOSING_S):
                await self.client.close()
        if self._ping is not None:
            self._ping.cancel()

    async def _watch(self) -> None:
        """Send pings and close the connection when pongs are missing."""
        while True:
            # Never cancelled: nats-py would read nothing more from the connection.
            self._ping = asking = asyncio.create_task(self.client.flush(_FOR_EVER_S))
            for _ in range(MISSES_MAX):  # a delayed process sees its timeout before the answer
                await asyncio.wait((asking,), timeout=PONG_S)
            if not asking.done():
                return self.lose(f"no answer for {PONG_S * MISSES_MAX} s")
            if (error := asking.exception()) is not None:
                return self.lose(repr(error))
            await asyncio.sleep(WATCH_S)

    async def _replied(self, message: Msg) -> None:
        replies = self._asked.get(message.subject.rpartition(".")[2])
        if replies is not None:
            replies.put_nowait(message)

    async def _noted(self, error: Exception) -> None:
        self.complaint = error

    async def _disconnected(self) -> None:
        self.lose(repr(self.complaint))


class NatsConnections:
    """Sends requests to NATS servers, over one connection at a time.

    Raises:
        ModuleNotFoundError: nats-py is not installed.
    """

    def __init__(self, address: NatsAddress) -> None:
        self._new_client = import_driver("nats.aio.client", "NatsSlotLog", "nats-py", "cluster").Client
        self._address = address
        # Nodes spread over the servers.
        self._servers = random.sample(address.servers, len(address.servers))
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()
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
        """Send a request to a subject and return the answers, up to the one for which ``is_last`` returns True.

        Args:
            again_s: how long to repeat an idempotent request without an answer, in seconds.

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
                raise SlotLogError(f"{subject} does not respond: {error!r}") from error

    async def client(self) -> Client:
        return (await self._connected()).client

    def leave(self) -> None:
        if self._connection is not None:
            self._give_up(self._connection, "it is of no use")

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
        if self._closing:
            await asyncio.wait(tuple(self._closing))

    async def _connected(self) -> _Connection:
        # The others wait for the one that connects.
        async with self._connecting:
            if self._connection is None or self._connection.is_lost:
                self._connection = await self._connect()
            return self._connection

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
            # Round-robin.
            self._servers.append(server)
            connection = _Connection(self._new_client(), server)
            try:
                async with asyncio.timeout(2 * CONNECT_S):
                    await connection.open(options)
                return connection
            except BaseException as error:
                self._give_up(connection, "it was not opened")
                if not isinstance(error, Exception):
                    raise
                # nats-py reports the reason through a callback.
                problem = SlotLogError(f"{urlsplit(server).netloc}: {connection.complaint or error!r}")
        raise SlotLogError(f"no server of NATS can be reached: {problem}")

    def _give_up(self, connection: _Connection, reason: str) -> None:
        if connection is self._connection:
            self._connection = None
        connection.lose(reason)
        closing = asyncio.create_task(connection.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


API_S = 15.0
"""Time limit for repeating rare requests, such as stream information."""

OPEN_S = 10.0
AGAIN_S = 0.02
SLOTS_AT_ONCE, BYTES_AT_ONCE = 500, 2_000_000
NODES_MAX = 1_000
FORGOTTEN_AFTER_S = 3_600
"""Announcements of a node that was silent for this long are deleted."""

PAYLOAD_BYTES_MIN = 1_100_000
"""Smallest ``max_payload`` of a server: a record batch may have 1,048,588 bytes."""

SERVER_VERSION = (2, 11)
"""First version of nats-server that returns several messages for one request."""

EXPECTED = "Nats-Expected-Last-Sequence"
# Two of these errors report a wrong expected sequence, but only the first has the last one.
_WRONG_LAST, _WRONG_LAST_HIDDEN, _NO_STREAM, _NOT_NOW = 10071, 10164, 10059, 10008
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")


class _RefusedError(SlotLogError):
    """JetStream refused a request; ``code`` is its error code."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("description", error)))
        self.code = int(error.get("err_code", 0))


class NatsSlotLog(ConnectedSlotLog):
    """Slot log in streams of NATS JetStream (``pip install 'groupcoord[cluster]'``); ``async with`` opens it.

    After a lost connection the next call connects again, to another server if there is one. Calls in flight raise
    :class:`SlotLogError`.

    Args:
        url: ``nats://[user:password@]host[:port],…[?setting=value&…]``, or ``tls://…``. The settings are ``replicas``:
            the number of servers that store each slot, 1, 3 (default) or 5; ``monitor``: monitoring URLs of the
            servers, separated by commas, to check their settings; ``credentials``, ``nkey``: a file to log in with;
            ``sslrootcert``, ``sslcert``, ``sslkey``: files for TLS.
        name: prefix of the names of the streams.

    Raises:
        ModuleNotFoundError: nats-py is not installed.
        ValueError: the URL or the name is malformed.
    """

    def __init__(self, url: str, *, name: str = "groupcoord") -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a stream: {_NAME.pattern}")
        self._address = NatsAddress.parsed(url)
        self._connections = NatsConnections(self._address)
        self._name = name
        self._heard: dict[str, tuple[int, float]] = {}
        self._written_s = 0.0

    async def _connect(self) -> Iterable[str]:
        try:
            async with asyncio.timeout(OPEN_S):
                client = await self._connections.client()
                version = client.connected_server_version
                if (version.major, version.minor) < SERVER_VERSION:
                    raise SlotLogError("nats-server is older than " + ".".join(map(str, SERVER_VERSION)))
                # Otherwise the first large batch would fail, long after the start.
                if client.max_payload < PAYLOAD_BYTES_MIN:
                    raise SlotLogError(
                        f"max_payload of nats-server is {client.max_payload} bytes: set max_payload: 2MB"
                    )
                await self._make_stream(self._beats)
                streams = unsafe_streams(await self._streams(), self._address.replicas)
                return [*streams, *unsafe_servers(await _settings(self._address.monitors))]
        except TimeoutError:
            raise SlotLogError(f"JetStream does not answer for {OPEN_S} s") from None
        except BaseException:
            await self.close()
            raise

    async def _disconnect(self) -> None:
        await self._connections.close()

    # ------------------------------------------------------------ slots

    async def put(self, partition: int, slot: int, payload: bytes) -> int | None:
        """Fill a slot by a publish that expects the last sequence."""
        while True:
            try:
                # Slot n is the message with sequence n + 1.
                await self._publish(
                    self._stream(partition), f"{self._name}.{partition}", payload, {EXPECTED: str(slot)}
                )
            except _RefusedError as error:
                if error.code == _WRONG_LAST:
                    # Only the text of the error has the sequence.
                    last = int(str(error).rpartition(" ")[2]) - 1
                    # A put in flight counts for the server before it is stored.
                    if last < slot or await self.read(partition, last):
                        return last
                elif error.code != _WRONG_LAST_HIDDEN:
                    raise
                await asyncio.sleep(AGAIN_S)  # another put is in flight and may fail
            else:
                return None

    async def read(self, partition: int, from_slot: int) -> list[Slot]:
        """Return slots by direct gets, from any replica of the stream."""
        wanted = {"seq": from_slot + 1, "batch": SLOTS_AT_ONCE, "max_bytes": BYTES_AT_ONCE}
        found = [
            Slot(int(message.headers["Nats-Sequence"]) - 1, message.data)
            for message in await self._get(self._stream(partition), wanted)
            if message.headers is not None
        ]
        # No gaps.
        return [slot for index, slot in enumerate(found) if slot.number == found[0].number + index]

    async def purge(self, partition: int, before_slot: int) -> None:
        """Purge messages of the stream."""
        await self._ask_api(f"STREAM.PURGE.{self._stream(partition)}", {"seq": before_slot + 1})

    async def beat(self, node_id: str, content: bytes) -> list[Beat]:
        """Store an announcement and return those of all nodes.

        A new announcement's age is measured by the clock of the servers, afterwards by that of this process. So servers
        with different clocks do not make nodes appear dead when the stream gets another leader.
        """
        began_s = time.monotonic()
        try:
            return await self._beat(node_id, content)
        except (asyncio.CancelledError, SlotLogError):
            if self._written_s < began_s:  # this server may be cut off from the others
                self._connections.leave()
            raise

    async def _beat(self, node_id: str, content: bytes) -> list[Beat]:
        own = await self._publish(self._beats, f"{self._beats}.{_token(node_id)}", content)
        while True:
            found = await self._get(self._beats, {"multi_last": [f"{self._beats}.>"], "batch": NODES_MAX})
            said = {_node(message.subject_said): message for message in map(_Said, found)}
            # A view without the own announcement may lack others.
            if node_id in said and said[node_id].sequence >= own:
                break
            await asyncio.sleep(AGAIN_S)  # a lagging replica has answered
        # The own announcement was just stored: its timestamp is the present of the servers.
        now_s, now = time.monotonic(), said[node_id].at
        before, self._heard = self._heard, {}
        for node, one in said.items():
            heard = before.get(node)
            if heard is None or heard[0] != one.sequence:
                heard = one.sequence, now_s - max((now - one.at).total_seconds(), 0)
            self._heard[node] = heard
        return [Beat(node, int((now_s - self._heard[node][1]) * 1_000), said[node].content) for node in sorted(said)]

    # ------------------------------------------------------------ streams

    def _stream(self, partition: int) -> str:
        return f"{self._name}-{partition}"

    @property
    def _beats(self) -> str:
        return f"{self._name}-beats"

    async def _make_stream(self, stream: str) -> None:
        wanted: dict[str, Any] = {"name": stream, "num_replicas": self._address.replicas, "allow_direct": True}
        if stream == self._beats:
            # A disk may be slow under load. Old announcements expire.
            wanted |= {"subjects": [f"{stream}.>"], "storage": "memory", "max_msgs_per_subject": 1}
            wanted |= {"max_age": FORGOTTEN_AFTER_S * 10**9}
        else:
            subject = f"{self._name}.{stream.removeprefix(self._name + '-')}"
            # A deleted message would be a gap. Purges remain allowed.
            wanted |= {"subjects": [subject], "storage": "file", "deny_delete": True}
        if await self._ask_api(f"STREAM.INFO.{stream}") is None:
            await self._ask_api(f"STREAM.CREATE.{stream}", wanted)
            self._written_s = time.monotonic()

    async def _streams(self) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        while True:
            response = await self._ask_api("STREAM.LIST", {"offset": len(found)}) or {}
            page = response.get("streams") or ()
            found += (one["config"] for one in page)
            if not page or len(found) >= response.get("total", 0):
                return [one for one in found if str(one["name"]).startswith(f"{self._name}-")]

    async def _publish(self, stream: str, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> int:
        is_new = False
        while True:
            # A new stream may have no leader for a while.
            (reply,) = await self._connections.ask(subject, payload, headers, again_s=API_S if is_new else 0.0)
            if _status(reply) != "503":
                break
            # The stream is missing or has no leader.
            await self._make_stream(stream)
            is_new = True
            await asyncio.sleep(AGAIN_S)  # the stream exists, but not on all servers yet
        answer = json.loads(reply.data)
        if "error" in answer:
            raise _RefusedError(answer["error"])
        self._written_s = time.monotonic()
        return int(answer["seq"])

    async def _get(self, stream: str, wanted: Mapping[str, Any]) -> list[Msg]:
        subject, asked = f"$JS.API.DIRECT.GET.{stream}", json.dumps(wanted).encode()
        until_s = time.monotonic() + API_S
        while True:
            *messages, last = await self._connections.ask(
                subject, asked, is_last=lambda message: bool(_status(message))
            )
            status = _status(last)
            # The stream is missing or has no leader.
            if status != "503" or await self._ask_api(f"STREAM.INFO.{stream}") is None:
                break
            if time.monotonic() > until_s:  # replicas of a new stream may not answer for a moment
                raise SlotLogError(f"no replica of stream {stream} answers")
            await asyncio.sleep(AGAIN_S)
        # 204 ends a batch. 404 and 503: no messages, or no stream yet.
        if status not in ("204", "404", "503"):
            raise SlotLogError(f"stream {stream} can't be read: {status} {(last.headers or {}).get('Description')}")
        return messages

    async def _ask_api(self, what: str, wanted: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        payload = b"" if wanted is None else json.dumps(wanted).encode()
        while True:
            (reply,) = await self._connections.ask(f"$JS.API.{what}", payload, again_s=API_S)
            if _status(reply) == "503":
                raise SlotLogError("the servers of NATS are without JetStream")
            answer: dict[str, Any] = json.loads(reply.data)
            if "error" not in answer:
                return answer
            refusal = _RefusedError(answer["error"])
            if refusal.code == _NO_STREAM:
                return None
            if refusal.code != _NOT_NOW:
                raise refusal
            await asyncio.sleep(AGAIN_S)


class _Said:
    """An announcement as stored in the stream."""

    def __init__(self, message: Msg) -> None:
        headers = message.headers or {}
        self.subject_said = headers["Nats-Subject"]
        self.sequence = int(headers["Nats-Sequence"])
        self.at = datetime.fromisoformat(headers["Nats-Time-Stamp"])
        self.content = message.data


def _status(message: Msg) -> str:
    return str((message.headers or {}).get("Status", ""))


def _token(node_id: str) -> str:
    """Return a node id as a subject token, in which dots and blanks have no meaning."""
    return base64.urlsafe_b64encode(node_id.encode()).decode().rstrip("=")


def _node(subject: str) -> str:
    token = subject.rpartition(".")[2]
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


# ---------------------------------------------------------------- unsafe settings


async def _settings(monitors: Sequence[str]) -> dict[str, Mapping[str, Any] | None]:
    """Return the JetStream settings of servers by monitoring URL, None for a server that does not answer."""
    found = await asyncio.gather(*(asyncio.to_thread(_setting, monitor) for monitor in monitors))
    return dict(zip(monitors, found, strict=True))


def _setting(monitor: str) -> Mapping[str, Any] | None:
    try:
        with urlopen(f"{monitor}/varz", timeout=ANSWER_S) as answer:
            found: Mapping[str, Any] = json.load(answer)["jetstream"]["config"]
            return found
    except (OSError, ValueError, KeyError, TypeError):
        return None


def unsafe_servers(settings: Mapping[str, Mapping[str, Any] | None]) -> Iterator[str]:
    """Yield one line for each server setting that endangers acknowledged records; None stands for a server without
    answer.
    """
    if not settings:
        yield "whether sync_interval is always can't be seen: name the servers' monitoring as monitor=http://…"
    for monitor, one in settings.items():
        if one is None:
            yield f"whether sync_interval is always can't be seen: {monitor} does not answer"
        elif not one.get("sync_always"):
            yield f"sync_interval is not always at {monitor}: a power failure may take back what was acknowledged"


def unsafe_streams(streams: Iterable[Mapping[str, Any]], replicas: int) -> Iterator[str]:
    """Yield one line for each stream setting that endangers acknowledged records."""
    if replicas == 1:
        yield "replicas is 1: what a server of NATS has acknowledged is nowhere else"
    seen: dict[str, list[str]] = {}
    for one in streams:
        # Announcements may be lost: the next heartbeat repeats them.
        name, has_beats = str(one["name"]), str(one["name"]).endswith("-beats")
        if int(one.get("num_replicas", 1)) < replicas:
            seen.setdefault(f"has {one.get('num_replicas', 1)} replicas, not {replicas}", []).append(name)
        if not has_beats and one.get("storage") != "file":
            seen.setdefault("is not in files: a restart of its servers empties it", []).append(name)
        limits = ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject")
        if not has_beats and any(int(one.get(limit, 0)) > 0 for limit in limits):
            seen.setdefault("has a limit: what is beyond that is thrown away", []).append(name)
    for problem, names in seen.items():
        others = f" and {len(names) - 1} more" if names[1:] else ""
        yield f"stream {names[0]}{others} {problem}"
