"""Client of a server under test: frames, log-in, requests and responses, and facts about the server."""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attrs import field, frozen

from groupcoord.client import LoginRefusedError, sasl_exchange
from groupcoord.config.client_properties import ClientProperties
from groupcoord.conformance.entities import API_KEYS, BodyError, Plain, ResponseError, decode_response, encode_request
from groupcoord.conformance.targets import ConnectionClosedError, Server, Stream
from groupcoord.core.messages import Node
from groupcoord.errors import GroupcoordError

_LENGTH = struct.Struct(">i")
_MAX_BYTES = 64 * 1024 * 1024


class Frames:
    """Length-prefixed frames of a connection."""

    def __init__(self, stream: Stream, now_ms: Callable[[], float]) -> None:
        self._stream = stream
        self._now_ms = now_ms
        self._buffer = bytearray()

    @property
    def begun_bytes(self) -> int:
        return len(self._buffer)

    def send(self, frame: bytes) -> None:
        self._stream.send(_LENGTH.pack(len(frame)) + frame)

    def receive(self, timeout_ms: float) -> bytes | None:
        deadline_ms = self._now_ms() + timeout_ms
        while (size := self._size()) is None or len(self._buffer) < size:
            data = self._stream.receive(max(deadline_ms - self._now_ms(), 0))
            if not data:
                return None
            self._buffer += data
        frame = bytes(self._buffer[_LENGTH.size : size])
        del self._buffer[:size]
        return frame

    def _size(self) -> int | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if not 4 <= length <= _MAX_BYTES:
            raise ResponseError(f"invalid response length {length}; does the server expect TLS?")
        return _LENGTH.size + int(length)


_TIMEOUT_MS = 20_000
_CLIENT_ID = "groupcoord-conformance"


class LoginFailedError(ConnectionClosedError):
    """The server refused the log-in or could not be verified."""


def log_in(stream: Stream, properties: ClientProperties) -> None:
    """Log in on a new connection.

    Raises:
        LoginFailedError: the server refused or could not be verified.
    """
    mechanism = properties.sasl_mechanism
    frames = Frames(stream, lambda: time.monotonic() * 1000)
    try:
        handshake = _call(frames, "SaslHandshake", 1, {"mechanism": mechanism})
        if handshake["error_code"] != "NONE":
            offered = ", ".join(handshake["mechanisms"]) or "none"
            raise LoginFailedError(f"the server refuses {mechanism}; it has {offered}")
        exchange = sasl_exchange(mechanism, properties.credentials)
        token = next(exchange)
        while token is not None:
            answered = _call(frames, "SaslAuthenticate", 2, {"auth_bytes": {"hex": token.hex()}})
            if answered["error_code"] != "NONE":
                words = answered["error_message"] or answered["error_code"]
                raise LoginFailedError(f"the server refuses the log-in: {words}")
            token = exchange.send(bytes.fromhex(answered["auth_bytes"]["hex"]))
    except LoginRefusedError as error:
        raise LoginFailedError(str(error)) from error
    except ResponseError as error:
        raise ConnectionClosedError(f"the log-in failed: {error}") from error


def _call(frames: Frames, api: str, version: int, body: dict[str, Plain]) -> Any:
    frames.send(encode_request(api, version, 0, _CLIENT_ID, body))
    answered = frames.receive(_TIMEOUT_MS)
    if answered is None:
        raise ConnectionClosedError(f"no answer to {api} within {_TIMEOUT_MS // 1000} s")
    return decode_response(api, version, answered)[1]


class NoResponseError(GroupcoordError):
    """A response did not arrive in time."""


@frozen
class Request:
    """Request in flight; ``sent_ms`` is by the server's clock."""

    correlation_id: int
    api: str
    version: int
    sent_ms: float
    body: dict[str, Plain]

    def __str__(self) -> str:
        return f"{self.api} v{self.version}"


class Client:
    """Client on one connection; requests may be pipelined."""

    def __init__(self, server: Server, client_id: str, node: Node | None = None) -> None:
        self._stream = server.connect() if node is None else server.connect(node)
        self._frames = Frames(self._stream, server.now_ms)
        self._now_ms: Callable[[], float] = server.now_ms
        self._client_id = client_id
        self._correlation_id = 0
        self.unanswered: deque[Request] = deque()

    def send(self, api: str, version: int, body: dict[str, Plain]) -> None:
        self._correlation_id += 1
        frame = encode_request(api, version, self._correlation_id, self._client_id, body)
        self.unanswered.append(Request(self._correlation_id, api, version, self._now_ms(), body))
        self._frames.send(frame)

    def receive(self, timeout_ms: float) -> Plain:
        """Return the body of the next response; NoResponseError after ``timeout_ms``."""
        frame = self._frames.receive(timeout_ms)
        if frame is None:
            raise NoResponseError(f"no response within {timeout_ms:.0f} ms")
        request = self.unanswered.popleft()
        correlation_id, body = decode_response(request.api, request.version, frame)
        if correlation_id != request.correlation_id:
            raise ResponseError(
                f"the response of {request} carries correlation id {correlation_id}, not {request.correlation_id}"
            )
        return body

    def ask(self, api: str, version: int, body: dict[str, Plain]) -> Any:
        self.send(api, version, body)
        return self.receive(_TIMEOUT_MS)

    def unexpected(self, duration_ms: float) -> Plain | None:
        """Return the body of a response that arrives within ``duration_ms``, or None."""
        frame = self._frames.receive(duration_ms)
        if frame is None:
            if self._frames.begun_bytes:
                raise ResponseError(f"{self._frames.begun_bytes} bytes of a response arrived")
            return None
        if not self.unanswered:
            raise ResponseError("a response arrived, but no request waits for one")
        request = self.unanswered.popleft()
        return decode_response(request.api, request.version, frame)[1]

    def close(self) -> None:
        self._stream.close()


@contextmanager
def open_client(server: Server, node: Node | None = None) -> Iterator[Client]:
    client = Client(server, _CLIENT_ID, node)
    try:
        yield client
    finally:
        client.close()


BROKER_RESOURCE = 4
_NAMES = {key: name for name, key in API_KEYS.items()}
_SOFTWARE = {"client_software_name": _CLIENT_ID, "client_software_version": "1"}
_NO_ANSWER = (BodyError, ConnectionClosedError, NoResponseError, ResponseError)


@frozen
class ServerFacts:
    """APIs and settings of a server.

    Attributes:
        apis: lowest and highest version by API.
        why_unknown: why the settings are unknown, or empty.
    """

    apis: Mapping[str, tuple[int, int]] = field(factory=dict)
    settings: Mapping[str, str] = field(factory=dict)
    why_unknown: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the facts as JSON data."""
        apis = {name: list(versions) for name, versions in sorted(self.apis.items())}
        return {"apis": apis, "settings": dict(sorted(self.settings.items())), "why_unknown": self.why_unknown}


def listed_apis(client: Client) -> dict[str, tuple[int, int]]:
    answered = client.ask("ApiVersions", 3, _SOFTWARE)["api_keys"]
    return {
        _NAMES.get(api["api_key"], str(api["api_key"])): (api["min_version"], api["max_version"]) for api in answered
    }


def query_facts(server: Server, keys: Collection[str], own_settings: Mapping[str, str]) -> ServerFacts:
    """Query the APIs of a server, and the settings ``keys``; ``own_settings`` override the server's."""
    with open_client(server) as client:
        apis = listed_apis(client)
    if not keys:
        return ServerFacts(apis, own_settings)
    if "DescribeConfigs" not in apis:
        return ServerFacts(apis, own_settings, "it does not list DescribeConfigs")
    try:
        found, why_unknown = _query_settings(server, keys)
    except _NO_ANSWER as error:
        found, why_unknown = {}, f"DescribeConfigs: {error}"
    return ServerFacts(apis, {**found, **own_settings}, why_unknown)


def list_topics(client: Client) -> dict[str, int]:
    answered = client.ask("Metadata", 4, {"topics": None, "allow_auto_topic_creation": False})["topics"]
    return {topic["name"]: len(topic["partitions"]) for topic in answered}


def list_groups(client: Client) -> set[str]:
    return {group["group_id"] for group in client.ask("ListGroups", 4, {"states_filter": []})["groups"]}


def _query_settings(server: Server, keys: Collection[str]) -> tuple[dict[str, str], str]:
    with open_client(server) as client:
        # Any broker suffices: group settings should be equal in a cluster.
        query = {"topics": [], "allow_auto_topic_creation": False}
        brokers = client.ask("Metadata", 4, query)["brokers"]
        if not brokers:
            return {}, "it lists no brokers"
        resource = {
            "resource_type": BROKER_RESOURCE,
            "resource_name": str(brokers[0]["node_id"]),
            "configuration_keys": sorted(keys),
        }
        (result,) = client.ask("DescribeConfigs", 1, {"resources": [resource], "include_synonyms": False})["results"]
    if result["error_code"] != "NONE":
        return {}, f"DescribeConfigs: {result['error_code']}"
    return {config["name"]: config["value"] for config in result["configs"] if config["value"] is not None}, ""
