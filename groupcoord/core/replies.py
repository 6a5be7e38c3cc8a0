"""Who asked, and what they are answered: the smallest words that all handlers share."""

from __future__ import annotations

from typing import Any, NamedTuple

from groupcoord.core.messages import Response

Token = Any
"""Whatever the caller gave with a request; it comes back with the answer, once."""


class Reply(NamedTuple):
    """The answer to the request that came with ``token``; None: Kafka never answers it, so nothing is sent."""

    token: Token
    response: Response | None
