"""SaslAuthenticate: key 36, versions 0-2, flexible from 2 (KIP-152).

1: the lifetime of the session (KIP-368).
"""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.login_messages import SaslAuthenticate, SaslAuthenticateResponse

_KEY = 36


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> SaslAuthenticate:
    return SaslAuthenticate(values["auth_bytes"])


def _response(response: SaslAuthenticateResponse, header: RequestHeader) -> schema.Values:
    return response._asdict()


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "SaslAuthenticate", VersionRange(0, 2), 2, _decoder, _encoder)
