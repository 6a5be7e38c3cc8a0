"""Request header."""

from __future__ import annotations

from attrs import define


@define
class RequestHeader:
    """API, version and client of a request.

    Attributes:
        api_key, api_version: the schema of request and response.
        correlation_id: the client's number of the request, which the response repeats.
        client_id: the client id, "" for null.
        reply_context: what the encoder of the response needs to know of the request; set by the decoder, usually None.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str = ""
    reply_context: object = None
