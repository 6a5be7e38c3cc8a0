"""DeleteGroups: key 42, versions 0-3, flexible from 2.

3: an error message in the answer; a 4.4 broker sends null for groups of this library's types, and so does this.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from groupcoord.core.messages import DeleteGroups, DeleteGroupsResponse
from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableGroupResultV3:
    """One group of version 3, which kio does not have."""

    __flexible__: ClassVar[bool] = True
    group_id: str = field(metadata={"kafka_type": "string"})
    error_code: int = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponseV3:
    """The answer in version 3, which kio does not have."""

    __flexible__: ClassVar[bool] = True
    throttle_time: int = field(metadata={"kafka_type": "timedelta_i32"})
    results: tuple[DeletableGroupResultV3, ...]


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DeleteGroups:
    return DeleteGroups(values["groups_names"])


def _response(response: DeleteGroupsResponse, header: RequestHeader) -> schema.Values:
    results = [
        {"group_id": result.group_id, "error_code": result.error_code, "error_message": None}
        for result in paced(response.results)
    ]
    return {"throttle_time_ms": 0, "results": results}


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, min(version, 2), _request)


def _encoder(version: int) -> Encoder:
    if version == 3:
        return schema.encoder_of(DeleteGroupsResponseV3, _response)
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "DeleteGroups", VersionRange(0, 3), 2, _decoder, _encoder)
