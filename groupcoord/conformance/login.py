"""Logging in by SASL, as a client does on a connection before anything else (KIP-43, KIP-152)."""

from __future__ import annotations

import time
from typing import Any

from groupcoord.client import LoginRefusedError, sasl_exchange
from groupcoord.config.client_properties import ClientProperties
from groupcoord.conformance.entities import Plain, ResponseError, decode_response, encode_request
from groupcoord.conformance.frames import Frames
from groupcoord.conformance.targets import ConnectionClosedError, Stream

_TIMEOUT_MS = 20_000
_CLIENT_ID = "groupcoord-conformance"


class LoginFailedError(ConnectionClosedError):
    """The server refuses the log-in; the message holds its reason."""


def log_in(stream: Stream, properties: ClientProperties) -> None:
    """Log in on a connection that was just opened.

    Raises:
        LoginFailedError: the server refuses the mechanism or the credentials, or is not who it should be.
        ConnectionClosedError: the connection is gone, or no answer came in time.
    """
    mechanism = properties.sasl_mechanism
    frames = Frames(stream, lambda: time.monotonic() * 1000)
    try:
        handshake = _ask(frames, "SaslHandshake", 1, {"mechanism": mechanism})
        if handshake["error_code"] != "NONE":
            offered = ", ".join(handshake["mechanisms"]) or "none"
            raise LoginFailedError(f"the server refuses {mechanism}; it has {offered}")
        exchange = sasl_exchange(mechanism, properties.credentials)
        token = next(exchange)
        while token is not None:
            answered = _ask(frames, "SaslAuthenticate", 2, {"auth_bytes": {"hex": token.hex()}})
            if answered["error_code"] != "NONE":
                words = answered["error_message"] or answered["error_code"]
                raise LoginFailedError(f"the server refuses the log-in: {words}")
            token = exchange.send(bytes.fromhex(answered["auth_bytes"]["hex"]))
    except LoginRefusedError as error:
        raise LoginFailedError(str(error)) from error
    except ResponseError as error:
        raise ConnectionClosedError(f"the log-in failed: {error}") from error


def _ask(frames: Frames, api: str, version: int, body: dict[str, Plain]) -> Any:
    frames.send(encode_request(api, version, 0, _CLIENT_ID, body))
    answered = frames.receive(_TIMEOUT_MS)
    if answered is None:
        raise ConnectionClosedError(f"no answer to {api} within {_TIMEOUT_MS // 1000} s")
    return decode_response(api, version, answered)[1]
