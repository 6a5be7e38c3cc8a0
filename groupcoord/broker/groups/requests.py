"""Requests to the group coordinator that name many things: each is asked about once, however often it is named.

Kafka answers a request that names one group of 2,000 offsets 5,000 times with 200 MB. So is it done here; but what is
asked for several times is looked up once, and between two things others get their turn. The coordinator itself handles
what it is asked in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from attrs import evolve

from groupcoord.broker.answering import answers
from groupcoord.broker.connection import Connection
from groupcoord.broker.groups.offset_fetches import MANY_OFFSETS, OffsetFetches, OffsetsOfGroup, names_many
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.broker.work import Answer, Token, Work, each_long, portions
from groupcoord.coordinator import GroupCoordinator
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    NO_NODE,
    DeletedGroup,
    DeleteGroups,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedShareGroupOffsets,
    DescribedShareOffset,
    DescribedShareTopic,
    DescribeGroups,
    DescribeGroupsResponse,
    DescribeShareGroupOffsets,
    DescribeShareGroupOffsetsResponse,
    FindCoordinator,
    FindCoordinatorResponse,
    FoundCoordinator,
    LeaveGroup,
    LeaveGroupResponse,
    LeftMember,
    ListGroups,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    PartitionResult,
    ShareGroupToDescribe,
    ShareTopicToDescribe,
    TopicResult,
    TopicToDelete,
)
from groupcoord.core.router.authorization import Principal
from groupcoord.core.router.request_router import DESCRIBED_KINDS
from groupcoord.errors import ErrorCode
from groupcoord.wire import WireResponse

FEW_GROUPS = 8
"""No more are deleted at once, so that their records may share an append."""

MANY_MEMBERS = 1_000
"""So many leave in one go."""

NameT = TypeVar("NameT")
FoundT = TypeVar("FoundT")


Submit = Callable[[Any, Token, Principal], None]
"""Gives a request to the group coordinator; the token gets its answer, now or later."""


class GroupRequests:
    """Answers what clients ask of the group coordinator, where that isn't handed to it as it is.

    Args:
        coordinator: returns the coordinator.
        submit: gives it a request.
        topics: the topics that there are.
        prepare: sees to it that there are coordinators, when a connection's client looks for some; or returns that
            there are none.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        submit: Submit,
        topics: TopicRegistry,
        prepare: Callable[[Connection, FindCoordinator], FindCoordinatorResponse | None],
    ) -> None:
        self._coordinator = coordinator
        self._submit = submit
        self._topics = topics
        self._prepare = prepare

    def _ask(self, connection: Connection, request: Any) -> Work[Any]:
        """Return the coordinator's answer to a request, which may have to wait for the log."""
        answer = Answer()
        self._submit(request, answer, connection.principal)
        if not answer.is_done:
            yield answer
        return answer.response

    # ------------------------------------------------------------ offsets

    @answers(OffsetFetch)
    def fetch_offsets(self, connection: Connection, request: OffsetFetch) -> Work[WireResponse | None] | None:
        """Read committed offsets."""
        if names_many(request, self._committed):
            return OffsetFetches(
                request, lambda each: self._ask(connection, each), self._committed, self._topics
            ).work()
        self._submit(request, connection, connection.principal)
        return None

    def _committed(self, group_id: str | None) -> OffsetsOfGroup:
        """Return what is committed for a group, whoever may see it: to know how it is to be fetched."""
        if group_id is None:
            return {}
        coordinator = self._coordinator
        partition = coordinator.partition(coordinator.partition_of(group_id))
        return {} if partition is None else partition.hard.offsets.of_group(group_id)

    @answers(OffsetDelete)
    def delete_offsets(self, connection: Connection, request: OffsetDelete) -> Work[WireResponse | None]:
        """Delete committed offsets."""
        if sum(1 + len(topic.partition_indexes) for topic in request.topics) <= MANY_OFFSETS:
            whole: OffsetDeleteResponse = yield from self._ask(connection, request)
            return whole
        topics: list[TopicResult] = []
        for topic in request.topics:
            partitions: list[PartitionResult] = []
            for indexes in portions(topic.partition_indexes, MANY_OFFSETS):
                some = OffsetDelete(request.group_id, (TopicToDelete(topic.name, tuple(indexes)),))
                response: OffsetDeleteResponse = yield from self._ask(connection, some)
                if response.error_code is not ErrorCode.NONE:
                    return response
                partitions += (partition for found in response.topics for partition in found.partitions)
                yield None
            topics.append(TopicResult(topic.name, ZERO_UUID, tuple(partitions)))
        return OffsetDeleteResponse(ErrorCode.NONE, tuple(topics))

    # ------------------------------------------------------------ groups and members

    @answers(FindCoordinator)
    def find_coordinators(self, connection: Connection, request: FindCoordinator) -> Work[WireResponse | None]:
        """Tell who coordinates groups, at the address for clients of the listener that the connection came by."""
        if self._prepare(connection, evolve(request, keys=())) is not None:
            return self._prepare(connection, request)
        nodes = connection.nodes

        def find(key: str) -> Work[FoundCoordinator]:
            asked = request if len(request.keys) == 1 else evolve(request, keys=(key,))
            self._prepare(connection, asked)
            found: FoundCoordinator = (yield from self._ask(connection, asked)).coordinators[0]
            if nodes is None or found.node == NO_NODE:
                return found
            return found._replace(node=nodes[found.node.node_id])

        if len(request.keys) == 1:  # as most clients do
            return FindCoordinatorResponse(((yield from find(request.keys[0])),))
        return FindCoordinatorResponse(tuple((yield from _each_once(request.keys, find))))

    @answers(ListGroups)
    def list_groups(self, connection: Connection, request: ListGroups) -> Work[WireResponse | None]:
        """List groups."""
        response: WireResponse = yield from self._ask(connection, request)
        yield None
        return response

    @answers(DescribeGroups)
    def describe_groups(self, connection: Connection, request: DescribeGroups) -> Work[WireResponse | None]:
        """Describe classic groups. As in Kafka, those that the asker may not see come first."""

        def describe(group_id: str | None) -> Work[DescribedGroup]:
            asked = DescribeGroups((group_id,), request.include_authorized_operations)
            group: DescribedGroup = (yield from self._ask(connection, asked)).groups[0]
            return group

        groups = yield from _each_once(request.group_ids, describe)
        yield None  # what was found may be large
        denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return DescribeGroupsResponse(tuple(sorted(groups, key=lambda group: group.error_code is not denied)))

    @answers(*DESCRIBED_KINDS)
    def describe_groups_of_a_kind(self, connection: Connection, request: Any) -> Work[WireResponse | None]:
        """Describe groups of the kind that the request is about."""

        def describe(group_id: str | None) -> Work[Any]:
            return (yield from self._ask(connection, evolve(request, group_ids=(group_id,)))).groups[0]

        groups = yield from _each_once(request.group_ids, describe)
        yield None
        response: WireResponse = DESCRIBED_KINDS[type(request)].answer(groups)
        return response

    @answers(DescribeShareGroupOffsets)
    def describe_share_offsets(
        self, connection: Connection, request: DescribeShareGroupOffsets
    ) -> Work[WireResponse | None]:
        """Tell where share groups stand."""

        def ask(group_id: str, topics: tuple[ShareTopicToDescribe, ...] | None) -> Work[DescribedShareGroupOffsets]:
            asked = DescribeShareGroupOffsets((ShareGroupToDescribe(group_id, topics),))
            group: DescribedShareGroupOffsets = (yield from self._ask(connection, asked)).groups[0]
            return group

        def describe(wanted: ShareGroupToDescribe) -> Work[DescribedShareGroupOffsets]:
            group_id, topics = wanted
            if topics is None or sum(1 + len(topic.partitions) for topic in topics) <= MANY_OFFSETS:
                return (yield from ask(group_id, topics))
            described: list[DescribedShareTopic] = []
            for name, partitions in topics:
                found: list[DescribedShareOffset] = []
                for some in portions(partitions, MANY_OFFSETS):
                    group = yield from ask(group_id, (ShareTopicToDescribe(name, tuple(some)),))
                    if group.error_code is not ErrorCode.NONE:
                        return group
                    found += group.topics[0].partitions
                    yield None
                described.append(DescribedShareTopic(name, group.topics[0].topic_id, tuple(found)))
            described.sort(key=_is_refused)
            return DescribedShareGroupOffsets(group_id, tuple(described))

        return DescribeShareGroupOffsetsResponse(tuple((yield from _each_once(request.groups, describe))))

    @answers(DeleteGroups)
    def delete_groups(self, connection: Connection, request: DeleteGroups) -> Work[WireResponse | None]:
        """Delete groups."""
        if len(request.group_ids) <= FEW_GROUPS:
            whole: DeleteGroupsResponse = yield from self._ask(connection, request)
            return whole

        def delete(group_id: str | None) -> Work[tuple[DeletedGroup, ...]]:
            results: tuple[DeletedGroup, ...] = (yield from self._ask(connection, DeleteGroups((group_id,)))).results
            return results

        deleted = yield from each_long(dict.fromkeys(request.group_ids), delete)
        return DeleteGroupsResponse(tuple(result for results in deleted for result in results))

    @answers(LeaveGroup)
    def leave(self, connection: Connection, request: LeaveGroup) -> Work[WireResponse | None] | None:
        """Let members go."""
        if len(request.members) > MANY_MEMBERS:
            return self._leave(connection, request)
        self._submit(request, connection, connection.principal)
        return None

    def _leave(self, connection: Connection, request: LeaveGroup) -> Work[WireResponse | None]:
        left: list[LeftMember] = []
        for members in portions(request.members, MANY_MEMBERS):
            some = LeaveGroup(request.group_id, tuple(members))
            response: LeaveGroupResponse = yield from self._ask(connection, some)
            if response.error_code is not ErrorCode.NONE:
                return response
            left += response.members
            yield None
        return LeaveGroupResponse(ErrorCode.NONE, tuple(left))


def _is_refused(topic: DescribedShareTopic) -> bool:
    """Tell whether the asker may not see a topic: as in Kafka, such topics come last."""
    return bool(topic.partitions) and topic.partitions[0].error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _each_once(names: Sequence[NameT], ask_about: Callable[[NameT], Work[FoundT]]) -> Work[list[FoundT]]:
    """Ask once about each name, and return what was found for all of them, in their order."""
    once = dict.fromkeys(names)
    found = dict(zip(once, (yield from each_long(once, ask_about)), strict=True))
    return [found[name] for name in names]
