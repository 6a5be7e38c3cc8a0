"""APIs of log-in and ACLs: what a client writes is read, and what is written a client reads."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord.errors import ErrorCode
from groupcoord.wire import RequestHeader, decode_request, encode_response
from groupcoord.wire.acl_messages import Acl, AclFilter, CreateAcls, DeleteAcls, DescribeAcls
from groupcoord.wire.login_messages import (
    AlteredUser,
    AlterUserScramCredentials,
    AlterUserScramCredentialsResponse,
    DescribedUser,
    DescribeUserScramCredentials,
    DescribeUserScramCredentialsResponse,
    SaslAuthenticate,
    SaslAuthenticateResponse,
    SaslHandshake,
    SaslHandshakeResponse,
    ScramCredentialInfo,
    ScramDeletion,
    ScramUpsertion,
)
from tests.tables import as_one_test
from tests.wire.kio_client import CORRELATION_ID, read_response, request_frame, versions_of
from tests.wire.sample_requests import BODIES

REQUESTS: dict[int, Any] = {
    29: DescribeAcls(2, "größe", 3, None, "10.0.0.1", 1, 3),
    30: CreateAcls((Acl(3, "größe", 4, "User:alice", "*", 3, 2),)),
    31: DeleteAcls((AclFilter(1, None, 2, "User:alice", None, 2, 1),)),
    36: SaslAuthenticate(b"\0alice\0secret"),
    50: DescribeUserScramCredentials(("größe", "alice")),
    51: AlterUserScramCredentials(
        (ScramDeletion("bob", 2),), (ScramUpsertion("größe", 1, 4096, b"salt", b"\xff" * 32),)
    ),
}
DESCRIBED = DescribedUser("größe", ErrorCode.NONE, "", (ScramCredentialInfo(1, 4096),))
RESPONSES: list[tuple[int, Any, dict[str, Any]]] = [
    (17, SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ("PLAIN", "OAUTHBEARER")),
     {"error_code": 33, "mechanisms": ["PLAIN", "OAUTHBEARER"]}),
    (36, SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "no", b"\x01", 7),
     {"error_code": 58, "error_message": "no", "auth_bytes": b"\x01", "session_lifetime": 7}),
    (50, DescribeUserScramCredentialsResponse((DESCRIBED,)),
     {"throttle_time": 0, "error_code": 0, "error_message": "", "results": [
         {"user": "größe", "error_code": 0, "error_message": "",
          "credential_infos": [{"mechanism": 1, "iterations": 4096}]}]}),
    (51, AlterUserScramCredentialsResponse((AlteredUser("bob", ErrorCode.RESOURCE_NOT_FOUND, "no"),)),
     {"throttle_time": 0, "results": [{"user": "bob", "error_code": 91, "error_message": "no"}]}),
]  # fmt: skip


@as_one_test
@pytest.mark.parametrize(("api_key", "version"), [(key, version) for key in REQUESTS for version in versions_of(key)])
def test_requests_are_read(api_key: int, version: int) -> None:
    """Every version of a request is read to the same value."""
    assert decode_request(request_frame(api_key, version, BODIES[api_key]), "/127.0.0.1")[1] == REQUESTS[api_key]


@pytest.mark.parametrize("version", versions_of(17))
def test_the_version_of_a_handshake_says_how_tokens_come(version: int) -> None:
    """After version 0 they come as they are, and since version 1 in requests."""
    request = decode_request(request_frame(17, version, BODIES[17]), "/127.0.0.1")[1]

    assert request == SaslHandshake("SCRAM-SHA-256", uses_requests=version >= 1)


@pytest.mark.parametrize(("api_key", "response", "values"), RESPONSES, ids=lambda value: str(value)[:30])
def test_answers_are_written(api_key: int, response: Any, values: dict[str, Any]) -> None:
    """What is written in every version a client reads; the session's lifetime is told from version 1 on."""
    for version in versions_of(api_key):
        frame = encode_response(RequestHeader(api_key, version, CORRELATION_ID), response)
        expected = {key: value for key, value in values.items() if key != "session_lifetime" or version >= 1}

        assert read_response(api_key, version, frame) == expected


def test_secrets_are_not_shown() -> None:
    """Neither tokens nor salted passwords stand in what Python prints of a request."""
    assert "secret" not in repr(REQUESTS[36])
    assert "xff" not in repr(REQUESTS[51])
