"""AlterUserScramCredentials: key 51, version 0, flexible (KIP-554)."""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.login_messages import (
    AlterUserScramCredentials,
    AlterUserScramCredentialsResponse,
    ScramDeletion,
    ScramUpsertion,
)
from groupcoord.wire.pacing import paced

_KEY = 51


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> AlterUserScramCredentials:
    return AlterUserScramCredentials(
        tuple(ScramDeletion(**deletion) for deletion in paced(values["deletions"])),
        tuple(ScramUpsertion(**upsertion) for upsertion in paced(values["upsertions"])),
    )


def _response(response: AlterUserScramCredentialsResponse, header: RequestHeader) -> schema.Values:
    return {"throttle_time_ms": 0, "results": [result._asdict() for result in paced(response.results)]}


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "AlterUserScramCredentials", VersionRange(0, 0), 0, _decoder, _encoder)
