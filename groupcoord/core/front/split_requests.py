"""Requests that are answered in parts: by several log partitions, or by a group and by what refuses before it."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, evolve

from groupcoord.core.front.topics import merge_results
from groupcoord.core.messages import (
    DeletedGroup,
    DeleteGroupsResponse,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    Response,
    TopicResult,
    TxnOffsetCommitResponse,
)
from groupcoord.core.replies import Reply, Token
from groupcoord.errors import ErrorCode


@define(eq=False)
class PartlyRefused:
    """Stands for the token of a request some topics of which were refused before the group saw it."""

    token: Token
    refused: tuple[TopicResult, ...]


@define(eq=False)
class SplitDeletion:
    """Stands for the token of a deletion of groups that ``missing`` log partitions have still to answer."""

    token: Token
    results: list[DeletedGroup]
    missing: int


def original_tokens(tokens: list[Token]) -> list[Token]:
    """Return the callers' tokens behind those that the core knows, each request's once."""
    distinct = dict.fromkeys(token for token in tokens if isinstance(token, PartlyRefused | SplitDeletion))
    plain = [token for token in tokens if not isinstance(token, PartlyRefused | SplitDeletion)]
    return plain + [split.token for split in distinct]


class SplitRequests:
    """Splits requests and joins the parts of their answers.

    Attributes:
        awaited: how many parts are still to come; while it is 0, replies need no look.
    """

    __slots__ = ("awaited",)

    def __init__(self) -> None:
        self.awaited = 0

    def partly_refused(self, token: Token, refused: tuple[TopicResult, ...]) -> Token:
        """Return the token for the rest of a request, of which the topics ``refused`` are answered already."""
        if not refused:
            return token
        self.awaited += 1
        return PartlyRefused(token, refused)

    def deletion(self, token: Token, results: list[DeletedGroup], missing: int) -> SplitDeletion:
        """Return the token for a deletion that ``missing`` log partitions answer, besides the ``results`` so far."""
        self.awaited += missing
        return SplitDeletion(token, results, missing)

    def join(self, replies: list[Reply]) -> Iterator[Reply]:
        """Return the replies, those of split requests as one; one that still lacks a part is left out."""
        for reply in replies:
            token, response = reply
            if isinstance(token, PartlyRefused):
                self.awaited -= 1
                yield Reply(token.token, _merge(token.refused, response))
            elif isinstance(token, SplitDeletion):
                assert isinstance(response, DeleteGroupsResponse)
                self.awaited -= 1
                token.results += response.results
                token.missing -= 1
                if not token.missing:
                    yield Reply(token.token, DeleteGroupsResponse(tuple(token.results)))
            else:
                yield reply


def _merge(refused: tuple[TopicResult, ...], response: Response | None) -> Response:
    """Add the refused topics to a group's answer; a top-level error stands alone."""
    match response:
        case OffsetDeleteResponse(error_code=ErrorCode.NONE) | OffsetCommitResponse() | TxnOffsetCommitResponse():
            return evolve(response, topics=merge_results(refused, response.topics))
    assert isinstance(response, OffsetDeleteResponse)
    return response
