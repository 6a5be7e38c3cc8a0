"""Requests and responses of the coordinator as values: no bytes, no versions.

A field has the meaning of its newest version in Kafka 4.4. Fields that an older version lacks have their default;
different behaviour of older versions is a named flag. Times are milliseconds. The names here are public as
:mod:`groupcoord.messages`.

Do not change a message that was sent. The most frequent responses are not frozen, because that doubles the time to make
one.
"""

from typing import Any, NamedTuple

from groupcoord.core.messages.administration import *
from groupcoord.core.messages.commits import *
from groupcoord.core.messages.consumer_groups import *
from groupcoord.core.messages.membership import *
from groupcoord.core.messages.request import *
from groupcoord.core.messages.request import GroupRequest, Response
from groupcoord.core.messages.share_groups import *
from groupcoord.core.messages.streams_groups import *

NEVER_CHANGES = True  # all of its classes: see forking/copies.py

Token = Any
"""The caller's handle of a request, returned once with the response."""


class Waiting(NamedTuple):
    """Request that waits for a write of its group."""

    request: GroupRequest
    token: Token


class Reply(NamedTuple):
    """Response to the request with ``token``; None if Kafka never answers it."""

    token: Token
    response: Response | None
