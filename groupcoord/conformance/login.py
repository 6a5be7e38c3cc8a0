"""Logging in by SASL, as a client does on a connection before anything else (KIP-43, KIP-152)."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from groupcoord.config.client_properties import ClientProperties, Credentials
from groupcoord.conformance.entities import Plain, ResponseError, decode_response, encode_request
from groupcoord.conformance.frames import Frames
from groupcoord.conformance.targets import ConnectionClosedError, Stream

_TIMEOUT_MS = 20_000
_CLIENT_ID = "groupcoord-conformance"


class LoginRefusedError(ConnectionClosedError):
    """The server doesn't let the client in; the message has the server's words."""


def log_in(stream: Stream, properties: ClientProperties) -> None:
    """Log in on a connection that was just opened.

    Raises:
        LoginRefusedError: the server refuses the mechanism or the credentials, or is not who it should be.
        ConnectionClosedError: the connection is gone, or no answer came in time.
    """
    mechanism = properties.sasl_mechanism
    frames = Frames(stream, lambda: time.monotonic() * 1000)
    try:
        handshake = _ask(frames, "SaslHandshake", 1, {"mechanism": mechanism})
        if handshake["error_code"] != "NONE":
            offered = ", ".join(handshake["mechanisms"]) or "none"
            raise LoginRefusedError(f"the server refuses {mechanism}; it has {offered}")
        exchange = _exchange(mechanism, properties.credentials)
        token = next(exchange)
        while token is not None:
            answered = _ask(frames, "SaslAuthenticate", 2, {"auth_bytes": {"hex": token.hex()}})
            if answered["error_code"] != "NONE":
                words = answered["error_message"] or answered["error_code"]
                raise LoginRefusedError(f"the server refuses the log-in: {words}")
            token = exchange.send(bytes.fromhex(answered["auth_bytes"]["hex"]))
    except ResponseError as error:
        raise ConnectionClosedError(f"the log-in failed: {error}") from error


def _exchange(mechanism: str, credentials: Credentials) -> Generator[bytes | None, bytes, None]:
    """Yield what the client says, being sent what the server answered; None when all is said."""
    if mechanism == "PLAIN":
        yield f"\0{credentials.username}\0{credentials.password}".encode()
    elif mechanism == "OAUTHBEARER":
        if (yield f"n,,\x01auth=Bearer {credentials.unsecured_token(time.time())}\x01\x01".encode()):
            yield b"\x01"  # a refusal is only told when the client has taken note of its reason (RFC 7628)
    else:
        from scramp import ScramClient, ScramException

        try:
            client = ScramClient([mechanism], credentials.username, credentials.password)
            client.set_server_first((yield client.get_client_first().encode()).decode())
            client.set_server_final((yield client.get_client_final().encode()).decode())
        except ScramException as error:
            raise LoginRefusedError(f"the log-in by {mechanism} failed: {error}") from error
    yield None


def _ask(frames: Frames, api: str, version: int, body: dict[str, Plain]) -> Any:
    frames.send(encode_request(api, version, 0, _CLIENT_ID, body))
    answered = frames.receive(_TIMEOUT_MS)
    if answered is None:
        raise ConnectionClosedError(f"no answer to {api} within {_TIMEOUT_MS // 1000} s")
    return decode_response(api, version, answered)[1]
