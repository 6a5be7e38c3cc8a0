"""Kafka client connections for asyncio: TLS, SASL, API versions, and a connection to each broker of a cluster.

Requests and responses are dictionaries by the field names of Kafka's schemas. The caller handles errors in responses,
and retries: a request fails with ConnectionLostError when its connection breaks.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import struct
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from groupcoord.config.client_properties import Address, ClientProperties, Credentials
from groupcoord.errors import ErrorCode, GroupcoordError
from groupcoord.schema.engine import Values
from groupcoord.schema.primitives import MalformedError, Reader, Writer, skip_tagged_fields
from groupcoord.wire.api import ProtocolError
from groupcoord.wire.newer_schemas import request_schema, response_schema
from groupcoord.wire.schema import struct_reader, struct_writer

CLIENT_ID = "groupcoord"
FRAME_BYTES_MAX = 2**30
"""Longest response that is read."""

_METADATA, _SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE = 3, 17, 18, 36
_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
_HANDSHAKE_VERSIONS = {_API_VERSIONS: (0, 0)}
"""Versions before the broker has sent its own."""


class ConnectionLostError(GroupcoordError):
    """A broker can't be reached, closed the connection, or did not answer in time."""


class LoginRefusedError(GroupcoordError):
    """A broker refuses the SASL mechanism or the credentials, or fails to prove its own identity (SCRAM)."""


class IncompatibleBrokerError(GroupcoordError):
    """A broker supports none of a request's versions."""


class Answer(NamedTuple):
    """Version and body of a response, with fields by the schema's names."""

    version: int
    values: Values


class Request(NamedTuple):
    """Request in any of several versions.

    Attributes:
        versions: oldest and newest version that the caller understands.
        body: returns the fields for a version; fields that the version lacks are left out.
    """

    api_key: int
    versions: tuple[int, int]
    body: Callable[[int], Values]


class _Codec(NamedTuple):
    is_flexible: bool
    write: Writer
    read: Reader[Values]


@cache
def _codec(api_key: int, version: int) -> _Codec:
    request = request_schema(api_key, version)
    is_flexible: bool = request.__flexible__
    return _Codec(is_flexible, struct_writer(request), struct_reader(response_schema(api_key, version)))


def encode_request(api_key: int, version: int, values: Values, correlation_id: int, client_id: bytes) -> bytes:
    """Return the bytes of a request, its length first. Fields that the version lacks are left out."""
    codec = _codec(api_key, version)
    frame = _HEADER.pack(api_key, version, correlation_id, len(client_id)) + client_id + b"\0" * codec.is_flexible
    frame += codec.write(values)
    return _LENGTH.pack(len(frame)) + frame


def decode_response(api_key: int, version: int, response: bytes) -> Values:
    """Return the fields of a response, which is given without its length.

    Raises:
        ProtocolError: the response is cut short.
    """
    codec = _codec(api_key, version)
    # ApiVersions always has the older header (KIP-511).
    has_tags = codec.is_flexible and api_key != _API_VERSIONS
    try:
        return codec.read(response, skip_tagged_fields(response, _LENGTH.size) if has_tags else _LENGTH.size)[0]
    except MalformedError as error:
        raise ProtocolError(str(error)) from error
    except (IndexError, struct.error) as error:
        raise ProtocolError("a response is cut short") from error


class BrokerConnection:
    """Connection to one broker, logged in. Requests may overlap; Kafka answers them in order.

    Args:
        address: of the broker.
        client_id: for the headers of requests.
        timeout_s: longest time for a response.
    """

    def __init__(self, address: Address, client_id: str, timeout_s: float) -> None:
        self.address = address
        self._client_id = client_id.encode()
        self._timeout_s = timeout_s
        self._versions: Mapping[int, tuple[int, int]] = _HANDSHAKE_VERSIONS
        self._correlation_id = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._reading is not None and not self._reading.done()

    async def open(self, properties: ClientProperties, tls: ssl.SSLContext | None) -> None:
        """Connect, request the API versions and log in.

        Raises:
            ConnectionLostError: the broker can't be reached.
            LoginRefusedError: the broker refuses the log-in.
            IncompatibleBrokerError: the broker supports no version of a request for the log-in.
            ProtocolError: a response can't be decoded.
        """
        try:
            name = self.address.host if tls is not None else None
            opening = asyncio.open_connection(*self.address, ssl=tls, server_hostname=name)
            reader, self._writer = await asyncio.wait_for(opening, self._timeout_s)
        except (OSError, TimeoutError) as error:  # includes ssl.SSLError
            raise ConnectionLostError(f"{self.address}: {error or type(error).__name__}") from error
        self._reading = asyncio.create_task(self._read(reader))
        try:
            keys = (await self.send(Request(_API_VERSIONS, (0, 0), lambda version: {}))).values["api_keys"]
            self._versions = {one["api_key"]: (one["min_version"], one["max_version"]) for one in keys}
            if properties.uses_sasl:
                await self._log_in(properties)
        except BaseException:
            self.close()
            raise

    async def send(self, request: Request) -> Answer:
        """Send a request in the newest version that both sides support, and return the answer.

        Raises:
            IncompatibleBrokerError: there is no such version.
            ConnectionLostError: the connection broke, or the answer is late; then it is closed.
            ProtocolError: the response can't be decoded.
        """
        oldest, newest = request.versions
        least, most = self._versions.get(request.api_key, (0, -1))
        version = min(newest, most)
        if version < max(oldest, least):
            raise IncompatibleBrokerError(f"the broker does not take API {request.api_key} in a version known here")
        if not self.is_open:
            raise ConnectionLostError(f"{self.address}: the connection is closed")
        self._correlation_id = correlation_id = (self._correlation_id + 1) % 2**31
        frame = encode_request(request.api_key, version, request.body(version), correlation_id, self._client_id)
        waiting = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        self._writer.write(frame)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._writer.drain()
                response = await waiting
        except TimeoutError:
            self.close()
            raise ConnectionLostError(f"{self.address}: no answer within {self._timeout_s:g} s") from None
        except OSError as error:
            raise ConnectionLostError(f"{self.address}: {error}") from error
        finally:
            self._waiting.pop(correlation_id, None)
        try:
            return Answer(version, decode_response(request.api_key, version, response))
        except ProtocolError as error:
            raise ProtocolError(f"{self.address}: {error}") from error

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._writer.close()
            self._fail(ConnectionLostError(f"{self.address}: the connection was closed"))

    async def wait_closed(self) -> None:
        """Wait until the connection is closed, for a second at most: a peer may not answer the end of TLS."""
        if self._reading is not None:
            await asyncio.wait([self._reading])
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for(self._writer.wait_closed(), 1.0)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        reason = "the broker closed the connection"
        try:
            while True:
                (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                if not _LENGTH.size <= size <= FRAME_BYTES_MAX:  # at least a correlation id
                    reason = f"a response can't be {size} bytes long; is TLS expected there?"
                    return
                response = await reader.readexactly(size)
                waiting = self._waiting.get(_LENGTH.unpack_from(response)[0])
                if waiting is not None and not waiting.done():
                    waiting.set_result(response)
        except asyncio.IncompleteReadError:
            pass
        except OSError as error:
            reason = str(error)
        finally:
            self._writer.close()
            self._fail(ConnectionLostError(f"{self.address}: {reason}"))

    def _fail(self, error: ConnectionLostError) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)

    async def _log_in(self, properties: ClientProperties) -> None:
        mechanism = properties.sasl_mechanism
        handshake = (await self.send(Request(_SASL_HANDSHAKE, (1, 1), lambda version: {"mechanism": mechanism}))).values
        if handshake["error_code"] != ErrorCode.NONE:
            offered = ", ".join(handshake["mechanisms"]) or "none"
            raise LoginRefusedError(f"the server refuses {mechanism}; it has {offered}")
        exchange = sasl_exchange(mechanism, properties.credentials)
        token = next(exchange)
        while token is not None:
            body = {"auth_bytes": token}
            answer = (await self.send(Request(_SASL_AUTHENTICATE, (0, 2), lambda version, body=body: body))).values  # type: ignore[misc]
            if answer["error_code"] != ErrorCode.NONE:
                raise LoginRefusedError(answer["error_message"] or f"error {answer['error_code']}")
            token = exchange.send(bytes(answer["auth_bytes"]))


def sasl_exchange(mechanism: str, credentials: Credentials) -> Generator[bytes | None, bytes, None]:
    """Yield the client's messages of a SASL log-in, receiving the server's; None when the exchange is complete.

    Raises:
        LoginRefusedError: SCRAM fails, also if the server can't prove that it has the password.
        ModuleNotFoundError: SCRAM needs ``scramp``.
    """
    if mechanism == "PLAIN":
        yield f"\0{credentials.username}\0{credentials.password}".encode()
    elif mechanism == "OAUTHBEARER":
        if (yield f"n,,\x01auth=Bearer {credentials.unsecured_token(time.time())}\x01\x01".encode()):
            yield b"\x01"  # the server reports a failure only after the client acknowledged it (RFC 7628, 3.2.3)
    else:
        from scramp import ScramClient, ScramException

        try:
            client = ScramClient([mechanism], credentials.username, credentials.password)
            client.set_server_first((yield client.get_client_first().encode()).decode())
            client.set_server_final((yield client.get_client_final().encode()).decode())
        except ScramException as error:
            raise LoginRefusedError(f"the log-in by {mechanism} failed: {error}") from error
    yield None


class KafkaClient:
    """Connections to the brokers of a cluster, opened when a request needs one.

    Args:
        properties: bootstrap servers, and how to connect and log in.
        tls: context for handshakes; None without TLS.
        timeout_s: longest time to connect, and for a response.

    Attributes:
        brokers: address of each broker by node id, as of the last Metadata response.
    """

    def __init__(self, properties: ClientProperties, tls: ssl.SSLContext | None, timeout_s: float) -> None:
        self.brokers: dict[int, Address] = {}
        self._properties = properties
        self._tls = tls
        self._timeout_s = timeout_s
        self._connections: dict[Address, BrokerConnection] = {}
        self._opening: dict[Address, asyncio.Lock] = {}

    async def refresh(self) -> None:
        """Update the brokers by a Metadata request to any of them.

        Raises:
            ConnectionLostError: no broker answers.
            LoginRefusedError: the log-in is refused.
        """
        operations = {"include_cluster_authorized_operations": False, "include_topic_authorized_operations": False}
        body = {"topics": [], "allow_auto_topic_creation": False, **operations}
        self.update((await self.send_to_any(Request(_METADATA, (4, 13), lambda version: body))).values)

    def update(self, metadata: Values) -> None:
        """Replace the brokers by those of a Metadata response, and close connections to all other addresses."""
        self.brokers = {one["node_id"]: Address(one["host"], one["port"]) for one in metadata["brokers"]}
        for address in self._connections.keys() - set(self.brokers.values()):
            self._connections.pop(address).close()

    async def send(self, node_id: int, request: Request) -> Answer:
        """Send a request to a broker, and return the answer. Raises as :meth:`BrokerConnection.send` and ``open``.

        Raises:
            ConnectionLostError: also if the last Metadata response has no such broker.
        """
        address = self.brokers.get(node_id)
        if address is None:
            raise ConnectionLostError(f"the cluster names no broker {node_id}")
        return await (await self._connection(address)).send(request)

    async def send_to_any(self, request: Request) -> Answer:
        """Send a request to a broker that can be reached, or else to a bootstrap server, and return the answer.

        Raises:
            ConnectionLostError: no address can be reached. Other errors are raised without a further attempt.
        """
        known = list(self.brokers.values())
        random.shuffle(known)
        error: ConnectionLostError | None = None
        for address in dict.fromkeys([*known, *self._properties.addresses]):
            try:
                return await (await self._connection(address)).send(request)
            except ConnectionLostError as failure:
                error = failure
        raise error or ConnectionLostError("no bootstrap server is given")

    async def close(self) -> None:
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.wait_closed() for connection in connections))

    async def _connection(self, address: Address) -> BrokerConnection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = BrokerConnection(address, self._properties.client_id or CLIENT_ID, self._timeout_s)
                await connection.open(self._properties, self._tls)
                self._connections[address] = connection
            return connection
