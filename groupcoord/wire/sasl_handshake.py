"""SaslHandshake: key 17, versions 0-1, never flexible (KIP-43).

1: tokens follow in SaslAuthenticate requests (KIP-152).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import NEVER_FLEXIBLE, Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.login_messages import SaslHandshake, SaslHandshakeResponse

_KEY = 17


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> SaslHandshake:
    return SaslHandshake(values["mechanism"], uses_requests=header.api_version >= 1)


def _response(response: SaslHandshakeResponse, header: RequestHeader) -> schema.Values:
    return response._asdict()


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "SaslHandshake", VersionRange(0, 1), NEVER_FLEXIBLE, _decoder, _encoder)
