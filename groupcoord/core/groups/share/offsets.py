"""Start offsets of share groups: alter and delete them in empty groups, describe them with their lag.

Sources: ``GroupMetadataManager`` (``alterShareGroupOffsets``, ``sharePartitionsEligibleForOffsetDeletion``,
``shareGroupBuildPartitionDeleteRequest``) of Apache Kafka 4.4; KIP-932.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from attrs import evolve

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.fast_construct import define
from groupcoord.core.groups.share.group import (
    PartitionsByTopic,
    ShareDraft,
    ShareGroup,
    StateChange,
    StatePartitions,
    StateRequest,
)
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    AlteredShareTopic,
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsets,
    DeleteShareGroupOffsetsResponse,
    DescribedShareGroupOffsets,
    DescribedShareOffset,
    DescribedShareTopic,
    ForgottenShareTopic,
    Reply,
    ShareOffsetResult,
    ShareTopicToDescribe,
    Token,
)
from groupcoord.core.messages.request import RefusedError
from groupcoord.core.messages.share_groups import UNKNOWN_OFFSET, DescribeOneShareGroupResponse
from groupcoord.core.messages.share_state import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    ReadShareGroupStateSummary,
    StateSummary,
    StateToDelete,
    StateToInitialize,
    StateTopicToDelete,
    StateTopicToInitialize,
    StateTopicToRead,
    StateToRead,
)
from groupcoord.core.topics import KnownTopics
from groupcoord.errors import ErrorCode

NO_LEADER_EPOCH = 0
"""Leader epoch of reads, which the share coordinator does not check."""


@define(eq=False)
class OffsetsToDescribe:
    """Description that waits for the share coordinator."""

    token: Token
    group_id: str
    topics: tuple[ShareTopicToDescribe, ...]
    topic_ids: Mapping[str, UUID]


def initialized_partitions(group: ShareGroup, topics: KnownTopics) -> tuple[ShareTopicToDescribe, ...]:
    return tuple(
        [
            ShareTopicToDescribe(name, tuple(sorted(partitions)))
            for topic_id, (_, partitions) in group.state.state_partitions.initialized.items()
            if (name := topics.resolver.topic_name(topic_id)) is not None
        ]
    )


def summary_request(purpose: OffsetsToDescribe) -> ReadShareGroupStateSummary:
    """Return the request for the states to describe, of topics with an id and partitions."""
    topics = [
        StateTopicToRead(
            purpose.topic_ids[topic.topic_name],
            tuple([StateToRead(index, NO_LEADER_EPOCH) for index in topic.partitions]),
        )
        for topic in purpose.topics
        if topic.topic_name in purpose.topic_ids and topic.partitions
    ]
    return ReadShareGroupStateSummary(purpose.group_id, tuple(topics))


def described_offsets(
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


def _described(index: int, summary: StateSummary | None, latest: int | None) -> DescribedShareOffset:
    if summary is None:
        return DescribedShareOffset(index)
    if summary.error_code is not ErrorCode.NONE:
        return DescribedShareOffset(index, error_code=summary.error_code, error_message=summary.error_message)
    start, count, lag = summary.start_offset, summary.delivery_complete_count, UNKNOWN_OFFSET
    # Not clamped, as in Kafka: an altered offset beyond the end has a negative lag.
    if summary.has_lag and latest is not None:
        lag = latest - start - count
    return DescribedShareOffset(index, start, summary.leader_epoch, lag)


def refused_description(purpose: OffsetsToDescribe, error_code: ErrorCode) -> Reply:
    refused = DescribedShareGroupOffsets(purpose.group_id, (), error_code)
    return Reply(purpose.token, DescribeOneShareGroupResponse(refused))


ErrorCodes = Mapping[tuple[UUID, int], ErrorCode]
"""Results of the share coordinator by partition."""


def check_empty(draft: ShareDraft) -> None:
    if draft.state.members:
        raise RefusedError(ErrorCode.NON_EMPTY_GROUP)


# ---------------------------------------------------------------- alter


def draft_alteration(
    draft: ShareDraft, request: AlterShareGroupOffsets, topics: KnownTopics
) -> AlterShareGroupOffsetsResponse:
    """Draft new start offsets of a group; return the response on success."""
    check_empty(draft)
    state = draft.state
    existing = topics.existing([topic.topic_name for topic in request.topics])
    responses = []
    partitions: dict[UUID, frozenset[int]] = {}
    offsets: dict[UUID, dict[int, int]] = {}
    for name, wanted in request.topics:
        topic = existing.get(name)
        count = 0 if topic is None else topic.partition_count
        results = [
            ShareOffsetResult(index, ErrorCode.NONE if 0 <= index < count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for index, _ in wanted
        ]
        responses.append(AlteredShareTopic(name, ZERO_UUID if topic is None else topic.topic_id, tuple(results)))
        known = {index: offset for index, offset in wanted if 0 <= index < count}
        if topic is not None:
            partitions[topic.topic_id] = frozenset(known)
            if known:
                offsets.setdefault(topic.topic_id, {}).update(known)
    response = AlterShareGroupOffsetsResponse(responses=tuple(responses))
    if partitions:  # also without a known partition: Kafka writes the topic, empty
        draft.write(state.state_partitions.begin(partitions, topics.resolver.topic_name).to_record(state.group_id))
    if offsets:
        to_initialize = [
            StateTopicToInitialize(
                topic_id, tuple([StateToInitialize(index, state.epoch, offset) for index, offset in wanted.items()])
            )
            for topic_id, wanted in offsets.items()
        ]
        asked = InitializeShareGroupState(state.group_id, tuple(to_initialize))
        draft.changes.append(StateChange(asked, response))
    return response


def altered(response: AlterShareGroupOffsetsResponse, error_codes: ErrorCodes) -> AlterShareGroupOffsetsResponse:
    """Return the response with the results of the share coordinator."""
    topics = [
        topic._replace(
            partitions=tuple(
                [
                    result._replace(
                        error_code=error_codes.get((topic.topic_id, result.partition_index), result.error_code)
                    )
                    for result in topic.partitions
                ]
            )
        )
        for topic in response.responses
    ]
    return evolve(response, responses=tuple(topics))


# ---------------------------------------------------------------- delete


def draft_deletion(
    draft: ShareDraft, request: DeleteShareGroupOffsets, topics: KnownTopics
) -> DeleteShareGroupOffsetsResponse:
    """Draft the deletion of a group's offsets in topics; return the response on success."""
    check_empty(draft)
    state = draft.state
    known = state.state_partitions
    if not known.is_written:
        # Without a record of states the response is empty, even for unknown topics (Kafka 4.4).
        return DeleteShareGroupOffsetsResponse()
    existing = topics.existing([topic.topic_name for topic in request.topics])
    responses: list[ForgottenShareTopic] = []
    partitions: dict[UUID, frozenset[int]] = {}
    for (name,) in request.topics:
        topic = existing.get(name)
        if topic is not None and topic.topic_id in known.initialized:
            partitions[topic.topic_id] = known.initialized[topic.topic_id].partitions
        elif topic is not None and topic.topic_id in known.deleting:  # an earlier attempt has failed
            partitions[topic.topic_id] = frozenset(range(topic.partition_count))
        else:
            responses.append(ForgottenShareTopic(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            continue
        responses.append(ForgottenShareTopic(name, topic.topic_id))
    # Only initialized partitions move; those in initialization stay as they are.
    deleting = evolve(_deleting(known, partitions, topics), initializing=known.initializing)
    # Also without any topic to delete, as in Kafka.
    draft.write(deleting.to_record(state.group_id))
    response = DeleteShareGroupOffsetsResponse(responses=tuple(responses))
    if partitions:
        draft.changes.append(StateChange(_delete_request(state.group_id, partitions), response))
    return response


def forgotten(response: DeleteShareGroupOffsetsResponse, error_codes: ErrorCodes) -> DeleteShareGroupOffsetsResponse:
    """Return the response with the first error of each topic from the share coordinator."""
    errors = _errors_of_topics(error_codes)
    topics = [topic._replace(error_code=errors.get(topic.topic_id, topic.error_code)) for topic in response.responses]
    return evolve(response, responses=tuple(topics))


def draft_group_deletion(draft: ShareDraft, topics: KnownTopics) -> DeleteShareGroupState | None:
    """Draft the deletion of all share-partition states; return the request to the share coordinator, if any."""
    known = draft.state.state_partitions
    partitions: dict[UUID, frozenset[int]] = {}
    for topic_id, name in known.deleting.items():
        # Only of topics that still exist: the others lose their states with the topic.
        topic = topics.existing([name]).get(name)
        if topic is not None and topic.topic_id == topic_id:
            partitions[topic_id] = frozenset(range(topic.partition_count))
    for entries in (known.initialized, known.initializing):
        for topic_id, entry in entries.items():
            partitions[topic_id] = partitions.get(topic_id, frozenset()) | entry.partitions
    if not known.is_written:
        return None
    draft.write(_deleting(known, partitions, topics).to_record(draft.state.group_id))
    # Maybe without topics: Kafka 4.4 writes the record of an emptied group once more.
    return _delete_request(draft.state.group_id, partitions)


def _deleting(known: StatePartitions, partitions: PartitionsByTopic, topics: KnownTopics) -> StatePartitions:
    rest = known.without_topics(partitions)
    names = {topic_id: known.name_of(topic_id, topics.resolver.topic_name) for topic_id in partitions}
    return evolve(rest, deleting={**rest.deleting, **names})


def _delete_request(group_id: str, partitions: PartitionsByTopic) -> DeleteShareGroupState:
    topics = [
        StateTopicToDelete(topic_id, tuple([StateToDelete(index) for index in sorted(indexes)]))
        for topic_id, indexes in partitions.items()
    ]
    return DeleteShareGroupState(group_id, tuple(topics))


# ---------------------------------------------------------------- results of queries


def partitions_of(request: StateRequest) -> PartitionsByTopic:
    return {topic_id: frozenset(entry.partition for entry in partitions) for topic_id, partitions in request.topics}


def first_error(error_codes: ErrorCodes) -> ErrorCode:
    return next((code for code in error_codes.values() if code is not ErrorCode.NONE), ErrorCode.NONE)


def deleted_topics(error_codes: ErrorCodes) -> set[UUID]:
    """Return the topics without an error."""
    topic_ids = {topic_id for topic_id, _ in error_codes}
    errors = _errors_of_topics(error_codes)
    return {topic_id for topic_id in topic_ids if topic_id not in errors}


def _errors_of_topics(error_codes: ErrorCodes) -> dict[UUID, ErrorCode]:
    errors: dict[UUID, ErrorCode] = {}
    for (topic_id, _), error_code in error_codes.items():
        if error_code is not ErrorCode.NONE:
            errors.setdefault(topic_id, error_code)
    return errors
