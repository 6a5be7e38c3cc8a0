"""Where a share group without members stands: what is written and asked when that is altered, or forgotten.

Sources: ``GroupMetadataManager`` (``alterShareGroupOffsets``, ``sharePartitionsEligibleForOffsetDeletion``,
``shareGroupBuildPartitionDeleteRequest``) of Apache Kafka 4.4; KIP-932.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from attrs import evolve

from groupcoord.core.groups.base.known_topics import KnownTopics
from groupcoord.core.groups.base.refusal import RefusedError
from groupcoord.core.groups.share.draft import ShareDraft, StateChange, StateRequest
from groupcoord.core.groups.share.state_partitions import PartitionsByTopic, StatePartitions
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    AlteredShareTopic,
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsets,
    DeleteShareGroupOffsetsResponse,
    ForgottenShareTopic,
    ShareOffsetResult,
)
from groupcoord.core.messages.share_state import (
    DeleteShareGroupState,
    InitializeShareGroupState,
    StateToDelete,
    StateToInitialize,
    StateTopicToDelete,
    StateTopicToInitialize,
)
from groupcoord.errors import ErrorCode

ErrorCodes = Mapping[tuple[UUID, int], ErrorCode]
"""What the share coordinator has said of partitions."""


def check_empty(draft: ShareDraft) -> None:
    """Check that nobody is in a group.

    Raises:
        RefusedError: NON_EMPTY_GROUP.
    """
    if draft.state.members:
        raise RefusedError(ErrorCode.NON_EMPTY_GROUP)


# ---------------------------------------------------------------- alter


def draft_alteration(
    draft: ShareDraft, request: AlterShareGroupOffsets, topics: KnownTopics
) -> AlterShareGroupOffsetsResponse:
    """Draft that a group is to stand elsewhere, and return what is answered if the share coordinator agrees.

    Raises:
        RefusedError: NON_EMPTY_GROUP.
    """
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
    if partitions:  # also of topics of which no partition is known: Kafka writes that none of theirs begins
        draft.write(state.state_partitions.begin(partitions, topics.topic_name).to_record(state.group_id))
    if offsets:
        to_initialize = [
            StateTopicToInitialize(
                topic_id, tuple([StateToInitialize(index, state.epoch, offset) for index, offset in wanted.items()])
            )
            for topic_id, wanted in offsets.items()
        ]
        asked = InitializeShareGroupState(state.group_id, tuple(to_initialize))
        draft.changes.append(StateChange(asked, is_awaited=True))
    return AlterShareGroupOffsetsResponse(responses=tuple(responses))


def altered(response: AlterShareGroupOffsetsResponse, error_codes: ErrorCodes) -> AlterShareGroupOffsetsResponse:
    """Return the answer with what the share coordinator has said."""
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


# ---------------------------------------------------------------- forget


def draft_deletion(
    draft: ShareDraft, request: DeleteShareGroupOffsets, topics: KnownTopics
) -> DeleteShareGroupOffsetsResponse:
    """Draft that a group stands nowhere in some topics, and return what is answered if the share coordinator agrees.

    Of a group that never stood anywhere nothing is said, whatever the topics (Kafka 4.4).

    Raises:
        RefusedError: NON_EMPTY_GROUP.
    """
    check_empty(draft)
    state = draft.state
    known = state.state_partitions
    if not known.is_written:
        return DeleteShareGroupOffsetsResponse()
    existing = topics.existing([topic.topic_name for topic in request.topics])
    responses: list[ForgottenShareTopic] = []
    partitions: dict[UUID, frozenset[int]] = {}
    for (name,) in request.topics:
        topic = existing.get(name)
        if topic is not None and topic.topic_id in known.initialized:
            partitions[topic.topic_id] = known.initialized[topic.topic_id].partitions
        elif topic is not None and topic.topic_id in known.deleting:  # it could not be done before
            partitions[topic.topic_id] = frozenset(range(topic.partition_count))
        else:
            responses.append(ForgottenShareTopic(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            continue
        responses.append(ForgottenShareTopic(name, topic.topic_id))
    deleting = evolve(_deleting(known, partitions, topics), initializing=known.initializing)
    draft.write(deleting.to_record(state.group_id))
    if partitions:
        draft.changes.append(StateChange(_delete_request(state.group_id, partitions), is_awaited=True))
    return DeleteShareGroupOffsetsResponse(responses=tuple(responses))


def forgotten(response: DeleteShareGroupOffsetsResponse, error_codes: ErrorCodes) -> DeleteShareGroupOffsetsResponse:
    """Return the answer with what the share coordinator has said: of each topic its first error."""
    errors = _errors_of_topics(error_codes)
    topics = [topic._replace(error_code=errors.get(topic.topic_id, topic.error_code)) for topic in response.responses]
    return evolve(response, responses=tuple(topics))


def draft_group_deletion(draft: ShareDraft, topics: KnownTopics) -> DeleteShareGroupState | None:
    """Draft that a group stands nowhere any more; return what the share coordinator is asked, None if nothing.

    Where it stands nowhere since its offsets were deleted, it writes that once more, and asks for nothing (Kafka 4.4).
    """
    known = draft.state.state_partitions
    partitions: dict[UUID, frozenset[int]] = {}
    for topic_id, name in known.deleting.items():
        topic = topics.existing([name]).get(name)
        if topic is not None and topic.topic_id == topic_id:
            partitions[topic_id] = frozenset(range(topic.partition_count))
    for entries in (known.initialized, known.initializing):
        for topic_id, entry in entries.items():
            partitions[topic_id] = partitions.get(topic_id, frozenset()) | entry.partitions
    if not known.is_written:
        return None
    draft.write(_deleting(known, partitions, topics).to_record(draft.state.group_id))
    return _delete_request(draft.state.group_id, partitions)


def _deleting(known: StatePartitions, partitions: PartitionsByTopic, topics: KnownTopics) -> StatePartitions:
    """Return where states stand when those of topics are about to be forgotten."""
    rest = known.without_topics(partitions)
    names = {topic_id: known.name_of(topic_id, topics.topic_name) for topic_id in partitions}
    return evolve(rest, deleting={**rest.deleting, **names})


def _delete_request(group_id: str, partitions: PartitionsByTopic) -> DeleteShareGroupState:
    topics = [
        StateTopicToDelete(topic_id, tuple([StateToDelete(index) for index in sorted(indexes)]))
        for topic_id, indexes in partitions.items()
    ]
    return DeleteShareGroupState(group_id, tuple(topics))


# ---------------------------------------------------------------- what was asked, and answered


def partitions_of(request: StateRequest) -> PartitionsByTopic:
    """Return the partitions about which the share coordinator was asked."""
    return {topic_id: frozenset(entry.partition for entry in partitions) for topic_id, partitions in request.topics}


def first_error(error_codes: ErrorCodes) -> ErrorCode:
    """Return the first error that the share coordinator has told; NONE if there is none."""
    return next((code for code in error_codes.values() if code is not ErrorCode.NONE), ErrorCode.NONE)


def deleted_topics(error_codes: ErrorCodes) -> set[UUID]:
    """Return the topics of which nothing is left."""
    topic_ids = {topic_id for topic_id, _ in error_codes}
    errors = _errors_of_topics(error_codes)
    return {topic_id for topic_id in topic_ids if topic_id not in errors}


def _errors_of_topics(error_codes: ErrorCodes) -> dict[UUID, ErrorCode]:
    """Return the first error of each topic that has one."""
    errors: dict[UUID, ErrorCode] = {}
    for (topic_id, _), error_code in error_codes.items():
        if error_code is not ErrorCode.NONE:
            errors.setdefault(topic_id, error_code)
    return errors
