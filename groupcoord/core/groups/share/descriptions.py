"""Where share groups stand, as administrators see it: what the share coordinator has of them, and how much is left."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from attrs import define

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.groups.share.environment import ShareGroupEnvironment
from groupcoord.core.groups.share.group import ShareGroup
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.host_queries import AskShareCoordinator, ShareCoordinatorAnswered
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    DescribedShareGroupOffsets,
    DescribedShareOffset,
    DescribedShareTopic,
    ShareTopicToDescribe,
)
from groupcoord.core.messages.share_groups import UNKNOWN_OFFSET, DescribeOneShareGroup, DescribeOneShareGroupResponse
from groupcoord.core.messages.share_state import (
    ReadShareGroupStateSummary,
    ReadShareGroupStateSummaryResponse,
    StateSummary,
    StateTopicToRead,
    StateToRead,
)
from groupcoord.core.replies import Reply, Token
from groupcoord.errors import ErrorCode

NO_LEADER_EPOCH = 0
"""The share coordinator doesn't look at the leader epoch of who only asks."""


@define(eq=False)
class OffsetsToDescribe:
    """A request that waits for the share coordinator: what it asks of which topics, and their ids."""

    token: Token
    group_id: str
    topics: tuple[ShareTopicToDescribe, ...]
    topic_ids: Mapping[str, UUID]


class ShareOffsets:
    """Tells where the share groups of one log partition stand.

    Attributes:
        waiting: what was asked of the share coordinator, and it has not answered.
    """

    def __init__(self, context: HandlerContext, environment: ShareGroupEnvironment) -> None:
        self._context = context
        self._environment = environment
        self.waiting: list[OffsetsToDescribe] = []

    def describe(self, request: DescribeOneShareGroup, token: Token, now_ms: int) -> None:
        """Ask the share coordinator. Whether there is such a group is not looked at, as in Kafka."""
        topics, resolver = request.topics, self._environment.topics
        if topics is None:
            topics = self._initialized(request.group_id)
        topic_ids = {
            topic.topic_name: topic_id
            for topic in topics
            if (topic_id := resolver.topic_id(topic.topic_name)) is not None and topic_id.int
        }
        purpose = OffsetsToDescribe(token, request.group_id, topics, topic_ids)
        asked = [
            StateTopicToRead(
                topic_ids[topic.topic_name],
                tuple([StateToRead(index, NO_LEADER_EPOCH) for index in topic.partitions]),
            )
            for topic in topics
            if topic.topic_name in topic_ids and topic.partitions
        ]
        if not asked:
            self._context.effects.reply(token, self._response(purpose, {}, {}))
        elif not request.group_id:
            self._context.effects.replies += _refusals([purpose], ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self.waiting.append(purpose)
            summary = ReadShareGroupStateSummary(request.group_id, tuple(asked))
            names = {topic_id: name for name, topic_id in topic_ids.items()}
            question = AskShareCoordinator(self._context.partition, request.group_id, summary, purpose, names)
            self._context.effects.questions.append(question)

    def _initialized(self, group_id: str) -> tuple[ShareTopicToDescribe, ...]:
        """Return what a group has begun to read, of topics that exist."""
        group = self._context.visible(group_id)
        if not isinstance(group, ShareGroup):
            return ()
        resolver = self._environment.topics
        return tuple(
            [
                ShareTopicToDescribe(name, tuple(sorted(partitions)))
                for topic_id, (_, partitions) in group.state.state_partitions.initialized.items()
                if (name := resolver.topic_name(topic_id)) is not None
            ]
        )

    def answered(self, answer: ShareCoordinatorAnswered, now_ms: int) -> None:
        """The share coordinator has answered; whoever has asked may have been refused, as the log partition went."""
        purpose = answer.question.purpose
        if purpose not in self.waiting:
            return
        self.waiting.remove(purpose)
        response = answer.response
        if not isinstance(response, ReadShareGroupStateSummaryResponse):
            self._context.effects.replies += _refusals([purpose], ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        summaries = {
            (topic_id, summary.partition): summary for topic_id, results in response.results for summary in results
        }
        self._context.effects.reply(purpose.token, self._response(purpose, summaries, answer.latest_offsets))

    def _response(
        self,
        purpose: OffsetsToDescribe,
        summaries: Mapping[tuple[UUID, int], StateSummary],
        latest_offsets: Mapping[TopicPartition, int],
    ) -> DescribeOneShareGroupResponse:
        topics = []
        for name, partitions in purpose.topics:
            topic_id = purpose.topic_ids.get(name, ZERO_UUID)
            described = [
                _described(index, summaries.get((topic_id, index)), latest_offsets.get(TopicPartition(name, index)))
                for index in partitions
            ]
            topics.append(DescribedShareTopic(name, topic_id, tuple(described)))
        return DescribeOneShareGroupResponse(DescribedShareGroupOffsets(purpose.group_id, tuple(topics)))

    def refuse(self, error_code: ErrorCode) -> list[Reply]:
        """Return the refusals of all that waits."""
        waiting, self.waiting = self.waiting, []
        return _refusals(waiting, error_code)


def _described(index: int, summary: StateSummary | None, latest: int | None) -> DescribedShareOffset:
    if summary is None:
        return DescribedShareOffset(index)
    if summary.error_code is not ErrorCode.NONE:
        return DescribedShareOffset(index, error_code=summary.error_code, error_message=summary.error_message)
    start, count, lag = summary.start_offset, summary.delivery_complete_count, UNKNOWN_OFFSET
    if summary.has_lag and latest is not None:
        lag = latest - start - count
    return DescribedShareOffset(index, start, summary.leader_epoch, lag)


def _refusals(waiting: list[OffsetsToDescribe], error_code: ErrorCode) -> list[Reply]:
    return [
        Reply(
            purpose.token,
            DescribeOneShareGroupResponse(DescribedShareGroupOffsets(purpose.group_id, (), error_code)),
        )
        for purpose in waiting
    ]
