"""The header in front of every request."""

from __future__ import annotations

from attrs import define


@define
class RequestHeader:
    """Who asks what in which version.

    Attributes:
        api_key, api_version: which schema the body has, and the answer will have.
        correlation_id: the client's number for this request, repeated in the answer.
        client_id: the client's name for itself; "" where it sent null.
        reply_context: what the answer's form must know of the request in this version; set by the decoder, None mostly.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str = ""
    reply_context: object = None
