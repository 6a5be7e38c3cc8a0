"""FindCoordinator, and requests that several log partitions answer in parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from attrs import evolve

from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.javacompat import partition_for
from groupcoord.core.messages import (
    NO_NODE,
    AlterShareGroupOffsetsResponse,
    CoordinatorType,
    DeleteShareGroupOffsetsResponse,
    FindCoordinator,
    FoundCoordinator,
    Node,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    Reply,
    Response,
    Token,
    TxnOffsetCommitResponse,
)
from groupcoord.core.router.authorization import Operation, Permissions
from groupcoord.core.topics import merge_results
from groupcoord.errors import ErrorCode

Owner = Callable[[int], Node | None]
"""Returns the node that coordinates a partition of ``__consumer_offsets``, or None."""

TransactionOwner = Callable[[str], Node | None]
"""Returns the node that coordinates the transactions of a transactional id, or None."""

ShareOwner = Callable[[str], Node | None]
"""Returns the node that coordinates a share-partition by its key, or None."""

# Group, topic id in base 64, and an index that fits into 32 bits.
_SHARE_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}:\d{1,9}", re.DOTALL)


@define(eq=False)
class Coordinators:
    """Nodes for FindCoordinator.

    Attributes:
        owner: returns the node of a log partition; None: always this one.
        transaction_owner: returns the node of a transactional id; None: always this one.
        share_owner: returns the node of a share-partition; None: there is no share coordinator.
    """

    NOT_STATE = ("node", "owner", "partition_count", "share_owner", "transaction_owner")

    node: Node
    owner: Owner | None
    partition_count: int
    transaction_owner: TransactionOwner | None
    share_owner: ShareOwner | None


def find_coordinator(
    request: FindCoordinator, key: str, cluster: Coordinators, refusal: ErrorCode = ErrorCode.NONE
) -> FoundCoordinator:
    """Return the coordinator of one key; ``refusal`` is an error of the permissions."""
    node: Node | None
    node, error_code = None, refusal
    if refusal is ErrorCode.NONE:
        # Unless a node is found.
        error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        match request.key_type:
            case CoordinatorType.GROUP:
                owner = cluster.owner
                # The empty group id is valid, and belongs to partition 0.
                node = cluster.node if owner is None else owner(partition_for(key, cluster.partition_count))
            case CoordinatorType.TRANSACTION:
                node = cluster.node if cluster.transaction_owner is None else cluster.transaction_owner(key)
            # A key of another form is INVALID_REQUEST, as an unknown type is.
            case CoordinatorType.SHARE if request.supports_share_keys and _SHARE_KEY.fullmatch(key):
                node = None if cluster.share_owner is None else cluster.share_owner(key)
            case _:
                error_code = ErrorCode.INVALID_REQUEST
    return FoundCoordinator(key, node or NO_NODE, ErrorCode.NONE if node else error_code)


@define(eq=False)
class Gather:
    """Request with a response that is combined from its parts.

    Attributes:
        results: by part; None if unanswered.
        missing: number of unanswered parts.
        combine: makes the response of all results.
    """

    token: Token
    results: list[Any]
    missing: int
    combine: Callable[[Sequence[Any]], Response]


@define(eq=False)
class Part:
    """Token of one part of a request.

    Attributes:
        place: position of the part's result.
        finish: makes the result of the part's answer.
    """

    gather: Gather
    place: int
    finish: Callable[[Any], Any]


class SplitRequests:
    """Splits requests, and combines the responses of their parts.

    Attributes:
        awaited: number of unanswered parts; while it is 0, replies pass unchanged.
    """

    NOT_COUNTED = ("awaited",)

    __slots__ = ("awaited",)

    def __init__(self) -> None:
        self.awaited = 0

    def gather(self, token: Token, results: list[Any], combine: Callable[[Sequence[Any]], Response]) -> Gather:
        missing = results.count(None)
        self.awaited += missing
        return Gather(token, results, missing, combine)

    def partly_refused(self, token: Token, refused: tuple[Any, ...]) -> Token:
        """Return the token for the rest of a request, of which the topics ``refused`` are answered already."""
        if not refused:
            return token
        return Part(self.gather(token, [None], itemgetter(0)), 0, partial(_merge, refused))

    def join(self, replies: list[Reply]) -> Iterator[Reply]:
        """Return the replies, with one for each complete split request."""
        for reply in replies:
            part = reply.token
            if not isinstance(part, Part):
                yield reply
                continue
            self.awaited -= 1
            gather = part.gather
            # Parts may be answered in any order; results have that of the request.
            gather.results[part.place] = part.finish(reply.response)
            gather.missing -= 1
            if not gather.missing:
                yield Reply(gather.token, gather.combine(gather.results))

    @staticmethod
    def original_tokens(tokens: list[Token]) -> list[Token]:
        gathers = dict.fromkeys(token.gather for token in tokens if isinstance(token, Part))
        return [token for token in tokens if not isinstance(token, Part)] + [gather.token for gather in gathers]


def _merge(refused: tuple[Any, ...], response: Response) -> Response:
    match response:
        # A top-level error stands alone.
        case AlterShareGroupOffsetsResponse(error_code=ErrorCode.NONE):
            return evolve(response, responses=refused + response.responses)
        case DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE):
            return evolve(response, responses=refused + response.responses)
        case OffsetDeleteResponse(error_code=ErrorCode.NONE) | OffsetCommitResponse() | TxnOffsetCommitResponse():
            return evolve(response, topics=merge_results(refused, response.topics))
    return response


REFUSED_FIRST = {ErrorCode.GROUP_AUTHORIZATION_FAILED: 0, ErrorCode.INVALID_GROUP_ID: 1}
"""Errors of groups that come first in a response."""


@frozen
class DescribedKind:
    """Descriptions of groups of one type.

    Attributes:
        described: the class of one group in a response.
        response: the class of the response.
        topics_of: returns the topics in a description.
        hidden: the message for a group with topics without DESCRIBE.
    """

    described: type
    response: type
    topics_of: Callable[[Any], Iterable[str]]
    hidden: str

    def answer(self, groups: Iterable[Any]) -> Any:
        ordered = sorted(groups, key=lambda group: REFUSED_FIRST.get(group.error_code, len(REFUSED_FIRST)))
        return self.response(tuple(ordered))

    def hide(self, group: Any, permissions: Permissions) -> Any:
        # One hidden topic hides the whole group (KafkaApis).
        # Sorted, so that authorizers see the same order in every process.
        if all(permissions.on_topic(topic, Operation.DESCRIBE) for topic in sorted(set(self.topics_of(group)))):
            return group
        return self.described(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, self.hidden)


def with_operations(group: Any, operations: int) -> Any:
    # Kafka leaves them out of descriptions with an error.
    return group if group.error_code is not ErrorCode.NONE else group._replace(authorized_operations=operations)
