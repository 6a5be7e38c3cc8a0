"""Who asked, and what they are answered: the smallest words that all handlers share."""

from __future__ import annotations

from typing import Any, NamedTuple

from groupcoord.core.messages import Response
from groupcoord.core.messages.request import GroupRequest

Token = Any
"""Whatever the caller gave with a request; it comes back with the answer, once."""


class Waiting(NamedTuple):
    """A request that met a write of its group: what it is answered depends on the log."""

    request: GroupRequest[Any]
    token: Token


class Reply(NamedTuple):
    """The answer to the request that came with ``token``; None: Kafka never answers it, so nothing is sent."""

    token: Token
    response: Response | None
