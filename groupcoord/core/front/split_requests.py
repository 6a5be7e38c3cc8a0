"""Requests that are answered in parts: by several log partitions, or by a group and by what refuses before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import define, evolve

from groupcoord.core.front.authorization import Permissions
from groupcoord.core.front.share_groups import hide_offsets
from groupcoord.core.front.topics import merge_results
from groupcoord.core.messages import (
    AlterShareGroupOffsetsResponse,
    DeletedGroup,
    DeleteGroupsResponse,
    DeleteShareGroupOffsetsResponse,
    DescribedShareGroupOffsets,
    DescribedShareTopic,
    DescribeShareGroupOffsetsResponse,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    Response,
    TxnOffsetCommitResponse,
)
from groupcoord.core.messages.share_groups import DescribeOneShareGroupResponse
from groupcoord.core.replies import Reply, Token
from groupcoord.errors import ErrorCode


@define(eq=False)
class PartlyRefused:
    """Stands for the token of a request some topics of which were refused before the group saw it."""

    token: Token
    refused: tuple[Any, ...]


@define(eq=False)
class SplitDeletion:
    """Stands for the token of a deletion of groups that ``missing`` log partitions have still to answer."""

    token: Token
    results: list[DeletedGroup]
    missing: int


@define(eq=False)
class SplitDescription:
    """Stands for the token of a request to describe groups, each of which is answered by itself.

    Attributes:
        token: of the request.
        groups: in its order; None for those that are not answered yet.
        missing: how many are None.
    """

    token: Token
    groups: list[DescribedShareGroupOffsets | None]
    missing: int


@define(eq=False)
class PartOfDescription:
    """Stands for the token of what is asked of one group: its place, and what was refused of it before."""

    whole: SplitDescription
    place: int
    refused: tuple[DescribedShareTopic, ...]
    permissions: Permissions | None


def original_tokens(tokens: list[Token]) -> list[Token]:
    """Return the callers' tokens behind those that the core knows, each request's once."""
    tokens = [token.whole if isinstance(token, PartOfDescription) else token for token in tokens]
    splits = PartlyRefused | SplitDeletion | SplitDescription
    distinct = dict.fromkeys(token for token in tokens if isinstance(token, splits))
    plain = [token for token in tokens if not isinstance(token, splits)]
    return plain + [split.token for split in distinct]


class SplitRequests:
    """Splits requests and joins the parts of their answers.

    Attributes:
        awaited: how many parts are still to come; while it is 0, replies need no look.
    """

    __slots__ = ("awaited",)

    def __init__(self) -> None:
        self.awaited = 0

    def partly_refused(self, token: Token, refused: tuple[Any, ...]) -> Token:
        """Return the token for the rest of a request, of which the topics ``refused`` are answered already."""
        if not refused:
            return token
        self.awaited += 1
        return PartlyRefused(token, refused)

    def deletion(self, token: Token, results: list[DeletedGroup], missing: int) -> SplitDeletion:
        """Return the token for a deletion that ``missing`` log partitions answer, besides the ``results`` so far."""
        self.awaited += missing
        return SplitDeletion(token, results, missing)

    def description(self, token: Token, groups: list[DescribedShareGroupOffsets | None]) -> SplitDescription:
        """Return the token for a description of groups, of which those that are None are still to be described."""
        missing = groups.count(None)
        self.awaited += missing
        return SplitDescription(token, groups, missing)

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
            elif isinstance(token, PartOfDescription):
                assert isinstance(response, DescribeOneShareGroupResponse)
                self.awaited -= 1
                yield from _joined(token, response.group)
            else:
                yield reply


def _joined(part: PartOfDescription, group: DescribedShareGroupOffsets) -> Iterator[Reply]:
    """Yield the whole answer, if this was the last part of it."""
    if part.permissions is not None:
        group = hide_offsets(group, part.permissions)
    whole = part.whole
    whole.groups[part.place] = group._replace(topics=group.topics + part.refused)
    whole.missing -= 1
    if not whole.missing:
        groups = [described for described in whole.groups if described is not None]
        yield Reply(whole.token, DescribeShareGroupOffsetsResponse(tuple(groups)))


def _merge(refused: tuple[Any, ...], response: Response | None) -> Response:
    """Add the refused topics to a group's answer; a top-level error stands alone."""
    match response:
        case AlterShareGroupOffsetsResponse(error_code=ErrorCode.NONE):
            return evolve(response, responses=refused + response.responses)
        case DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE):
            return evolve(response, responses=refused + response.responses)
        case OffsetDeleteResponse(error_code=ErrorCode.NONE) | OffsetCommitResponse() | TxnOffsetCommitResponse():
            return evolve(response, topics=merge_results(refused, response.topics))
    assert response is not None
    return response
