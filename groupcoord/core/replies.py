"""Tokens and replies of requests."""

from __future__ import annotations

from typing import Any, NamedTuple

from groupcoord.core.messages import Response
from groupcoord.core.messages.request import GroupRequest

Token = Any
"""The caller's handle of a request, returned once with the response."""


class Waiting(NamedTuple):
    """Request that waits for a write of its group."""

    request: GroupRequest[Any]
    token: Token


class Reply(NamedTuple):
    """Response to the request with ``token``; None if Kafka never answers it."""

    token: Token
    response: Response | None
