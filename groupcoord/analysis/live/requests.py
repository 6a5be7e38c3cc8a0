"""Requests as their schemas say it, in the form that aiokafka's connections send.

A connection of aiokafka knows which versions its broker takes, and asks a request to prepare itself for them. What it
wants then is a structure that writes its header and body and reads those of its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from io import BytesIO
from typing import Any, NamedTuple

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import RequestHeader_v1, RequestHeader_v2, ResponseHeader_v0, ResponseHeader_v1

from groupcoord.wire.newer_schemas import request_schema, response_schema
from groupcoord.wire.primitives import Reader, Writer
from groupcoord.wire.schema import Values, struct_reader, struct_writer


class Answer(NamedTuple):
    """The body of an answer: its version, and its fields by kio's names."""

    version: int
    values: Values


class Request:
    """A request that is not made for one version.

    Args:
        api_key: Kafka's number of what is asked.
        versions: the oldest and the newest that are asked.
        body: the fields by kio's names, for a version; more of them than it has are left out.
    """

    def __init__(self, api_key: int, versions: tuple[int, int], body: Callable[[int], Values]) -> None:
        self._api_key = api_key
        self._versions = versions
        self._body = body

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> PreparedRequest:
        """Return the request in the newest version that a broker takes too.

        Raises:
            IncompatibleBrokerVersion: there is none.
        """
        oldest, newest = self._versions
        least, most = versions.get(self._api_key, (0, -1))
        version = min(newest, most)
        if version < max(oldest, least):
            raise IncompatibleBrokerVersion(f"the broker does not take API {self._api_key} in a version known here")
        return PreparedRequest(self._api_key, version, self._body(version))


class PreparedRequest:
    """A request in one version, as a connection of aiokafka sends it. It stands for the type of its answer, too."""

    def __init__(self, api_key: int, version: int, values: Values) -> None:
        self.API_KEY = api_key
        self.API_VERSION = version
        self._form = _form(api_key, version)
        self._values = values

    @property
    def RESPONSE_TYPE(self) -> PreparedRequest:  # noqa: N802
        """What decodes the answer."""
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> RequestHeader_v1 | RequestHeader_v2:
        """Return the header."""
        header = RequestHeader_v2 if self._form.is_flexible else RequestHeader_v1
        return header(self, correlation_id=correlation_id, client_id=client_id)

    def encode(self) -> bytes:
        """Return the body."""
        return self._form.write(self._values)

    def parse_response_header(self, frame: BytesIO) -> Any:
        """Read the header of the answer."""
        return (ResponseHeader_v1 if self._form.is_flexible else ResponseHeader_v0).decode(frame)

    def decode(self, frame: BytesIO) -> Answer:
        """Read the body of the answer, behind its header."""
        values, _ = self._form.read(frame.getvalue(), frame.tell())
        return Answer(self.API_VERSION, values)


class _Form(NamedTuple):
    """How a version is written, and its answer read."""

    is_flexible: bool
    write: Writer
    read: Reader[Values]


@cache
def _form(api_key: int, version: int) -> _Form:
    request = request_schema(api_key, version)
    is_flexible: bool = request.__flexible__  # type: ignore[attr-defined]
    return _Form(is_flexible, struct_writer(request), struct_reader(response_schema(api_key, version)))
