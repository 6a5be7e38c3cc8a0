"""DescribeUserScramCredentials: key 50, version 0, flexible (KIP-554)."""

from collections.abc import Mapping
from typing import Any

from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.login_messages import (
    DescribedUser,
    DescribeUserScramCredentials,
    DescribeUserScramCredentialsResponse,
)
from groupcoord.wire.pacing import paced

_KEY = 50


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> DescribeUserScramCredentials:
    users = values["users"]
    return DescribeUserScramCredentials(None if users is None else tuple(user["name"] for user in paced(users)))


def _response(response: DescribeUserScramCredentialsResponse, header: RequestHeader) -> schema.Values:
    return {
        "throttle_time_ms": 0,
        "error_code": response.error_code,
        "error_message": response.error_message,
        "results": [_user(user) for user in paced(response.results)],
    }


def _user(user: DescribedUser) -> schema.Values:
    return user._asdict() | {"credential_infos": [info._asdict() for info in user.credential_infos]}


def _decoder(version: int) -> Decoder:
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    return schema.response_encoder(_KEY, version, _response)


API = Api(_KEY, "DescribeUserScramCredentials", VersionRange(0, 0), 0, _decoder, _encoder)
