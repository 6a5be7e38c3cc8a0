"""Requests that are answered in parts: by several log partitions, or by a group and by what refuses before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from attrs import define, evolve

from groupcoord.core.messages import (
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponse,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    Response,
    TxnOffsetCommitResponse,
)
from groupcoord.core.replies import Reply, Token
from groupcoord.core.router.topics import merge_results
from groupcoord.errors import ErrorCode


@define(eq=False)
class Gather:
    """A request whose answer is put together from those of its parts.

    Attributes:
        token: of the request.
        results: by part; None for those that are not answered yet.
        missing: the number of these.
        combine: makes the answer of all results.
    """

    token: Token
    results: list[Any]
    missing: int
    combine: Callable[[Sequence[Any]], Response]


@define(eq=False)
class Part:
    """The token of one part of a request.

    Attributes:
        gather: the request.
        place: of the part's result.
        finish: makes the result of the part's answer.
    """

    gather: Gather
    place: int
    finish: Callable[[Any], Any]


def original_tokens(tokens: list[Token]) -> list[Token]:
    """Return the callers' tokens behind those that the core knows, each request's once."""
    gathers = dict.fromkeys(token.gather for token in tokens if isinstance(token, Part))
    return [token for token in tokens if not isinstance(token, Part)] + [gather.token for gather in gathers]


class SplitRequests:
    """Splits requests and joins the answers of their parts.

    Attributes:
        awaited: how many parts are still to come; while it is 0, replies need no look.
    """

    __slots__ = ("awaited",)

    def __init__(self) -> None:
        self.awaited = 0

    def gather(self, token: Token, results: list[Any], combine: Callable[[Sequence[Any]], Response]) -> Gather:
        """Return what gathers the results of a request; those that are None are still to come, at least one."""
        missing = results.count(None)
        self.awaited += missing
        return Gather(token, results, missing, combine)

    def partly_refused(self, token: Token, refused: tuple[Any, ...]) -> Token:
        """Return the token for the rest of a request, of which the topics ``refused`` are answered already."""
        if not refused:
            return token
        return Part(self.gather(token, [None], _only), 0, partial(_merge, refused))

    def join(self, replies: list[Reply]) -> Iterator[Reply]:
        """Return the replies, those of split requests as one; one that still lacks a part is left out."""
        for reply in replies:
            part = reply.token
            if not isinstance(part, Part):
                yield reply
                continue
            self.awaited -= 1
            gather = part.gather
            gather.results[part.place] = part.finish(reply.response)
            gather.missing -= 1
            if not gather.missing:
                yield Reply(gather.token, gather.combine(gather.results))


def _only(results: Sequence[Any]) -> Response:
    response: Response = results[0]
    return response


def _merge(refused: tuple[Any, ...], response: Response) -> Response:
    """Add the refused topics to a group's answer; a top-level error stands alone."""
    match response:
        case AlterShareGroupOffsetsResponse(error_code=ErrorCode.NONE):
            return evolve(response, responses=refused + response.responses)
        case DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE):
            return evolve(response, responses=refused + response.responses)
        case OffsetDeleteResponse(error_code=ErrorCode.NONE) | OffsetCommitResponse() | TxnOffsetCommitResponse():
            return evolve(response, topics=merge_results(refused, response.topics))
    return response
