"""Hypothesis strategies for requests of share groups (KIP-932) and streams groups (KIP-1071), and for all requests."""

from __future__ import annotations

from typing import Any, TypeVar

from attrs import evolve
from hypothesis import strategies as st

from groupcoord.core.messages import (
    AlterShareGroupOffsets,
    CopartitionGroup,
    DeleteShareGroupOffsets,
    DescribeShareGroupOffsets,
    Endpoint,
    KeyValue,
    Request,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from groupcoord.core.messages.share_groups import (
    ShareGroupToDescribe,
    ShareOffsetToAlter,
    ShareTopicToAlter,
    ShareTopicToDescribe,
    ShareTopicToForget,
)
from groupcoord.core.share_partition.in_flight import AcknowledgeType
from groupcoord.testing import strategies as common
from groupcoord.testing.strategies import FEW, INT32_MAX, INT64_MAX, JOIN, LEAVE, LEAVE_FOR_A_WHILE, Strategy
from groupcoord.wire.share_messages import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    AcknowledgementBatch,
    ShareAcknowledge,
    ShareFetch,
    ShareFetchPartition,
    TopicIdEntry,
)

_PARTITIONS_MAX = 20

T = TypeVar("T", bound=tuple[Any, ...])


def _group_ids(given: Strategy[str] | None) -> Strategy[str]:
    return common.group_ids().filter(common.has_text) if given is None else given


def _topic_names(given: Strategy[str] | None) -> Strategy[str]:
    return common.topic_names() if given is None else given


# ---------------------------------------------------------------- the group


def share_group_heartbeats(
    *,
    group_ids: Strategy[str] | None = None,
    member_ids: Strategy[str] | None = None,
    member_epochs: Strategy[int] | None = None,
    topic_names: Strategy[str] | None = None,
    max_size: int = FEW,
) -> Strategy[ShareGroupHeartbeat]:
    """Return heartbeats of share groups: joins, full and short heartbeats, leaves.

    Args:
        group_ids: default: :func:`~groupcoord.testing.group_ids` that are not blank.
        member_ids: default: UUIDs, as members generate them.
        member_epochs: default: 0 (join), -1 (leave), and positive ones.
        topic_names: default: :func:`~groupcoord.testing.topic_names`.
        max_size: maximum number of topics.
    """
    full = st.builds(
        ShareGroupHeartbeat,
        _group_ids(group_ids),
        st.uuids().map(str) if member_ids is None else member_ids,
        st.sampled_from((JOIN, LEAVE)) | st.integers(0, INT32_MAX) if member_epochs is None else member_epochs,
        st.none() | st.text("abcxyz", min_size=1, max_size=8),
        st.lists(_topic_names(topic_names), min_size=1, max_size=max_size, unique=True).map(tuple),
        client_id=common.client_ids(),
        client_host=st.ip_addresses(v=4).map("/{}".format),
    )
    return st.builds(_share_heartbeat, full, st.booleans())


def _share_heartbeat(full: ShareGroupHeartbeat, is_short: bool) -> ShareGroupHeartbeat:
    is_whole = full.member_epoch == JOIN or not (is_short or full.member_epoch == LEAVE)
    return full if is_whole else evolve(full, rack_id=None, subscribed_topic_names=None)


def share_group_describe_requests(
    *, group_ids: Strategy[str] | None = None, max_size: int = FEW
) -> Strategy[ShareGroupDescribe]:
    """Return ShareGroupDescribe requests for up to ``max_size`` groups, by default of any id, also empty."""
    return st.builds(ShareGroupDescribe, common.several_groups(group_ids, max_size), st.booleans())


# ---------------------------------------------------------------- where groups stand


def describe_share_group_offsets_requests(
    *, group_ids: Strategy[str] | None = None, topic_names: Strategy[str] | None = None, max_size: int = FEW
) -> Strategy[DescribeShareGroupOffsets]:
    """Return DescribeShareGroupOffsets requests for up to ``max_size`` groups, with all or up to
    that number of topics.
    """
    partitions = st.lists(st.integers(0, _PARTITIONS_MAX), min_size=1, max_size=max_size, unique=True).map(tuple)
    topics = _each_once(st.builds(ShareTopicToDescribe, _topic_names(topic_names), partitions), max_size)
    groups = st.builds(ShareGroupToDescribe, _group_ids(group_ids), st.none() | topics)
    return st.builds(
        DescribeShareGroupOffsets,
        st.lists(groups, max_size=max_size, unique_by=lambda group: group.group_id).map(tuple),
    )


def alter_share_group_offsets_requests(
    *, group_ids: Strategy[str] | None = None, topic_names: Strategy[str] | None = None, max_size: int = FEW
) -> Strategy[AlterShareGroupOffsets]:
    """Return AlterShareGroupOffsets requests for up to ``max_size`` topics and partitions of each."""
    offset = st.builds(ShareOffsetToAlter, st.integers(0, _PARTITIONS_MAX), st.integers(-1, INT64_MAX))
    partitions = st.lists(offset, min_size=1, max_size=max_size, unique_by=lambda each: each.partition_index).map(tuple)
    topics = _each_once(st.builds(ShareTopicToAlter, _topic_names(topic_names), partitions), max_size)
    return st.builds(AlterShareGroupOffsets, _group_ids(group_ids), topics)


def delete_share_group_offsets_requests(
    *, group_ids: Strategy[str] | None = None, topic_names: Strategy[str] | None = None, max_size: int = FEW
) -> Strategy[DeleteShareGroupOffsets]:
    """Return DeleteShareGroupOffsets requests for up to ``max_size`` topics."""
    topics = _each_once(st.builds(ShareTopicToForget, _topic_names(topic_names)), max_size)
    return st.builds(DeleteShareGroupOffsets, _group_ids(group_ids), topics)


def _each_once(topics: Strategy[T], max_size: int) -> Strategy[tuple[T, ...]]:
    return st.lists(topics, min_size=1, max_size=max_size, unique_by=lambda topic: topic[0]).map(tuple)


# ---------------------------------------------------------------- records


def share_fetch_requests(
    *,
    group_ids: Strategy[str] | None = None,
    member_ids: Strategy[str] | None = None,
    session_epochs: Strategy[int] | None = None,
    max_size: int = FEW,
) -> Strategy[ShareFetch]:
    """Return ShareFetch requests with acknowledgements; one that opens a session has none.

    Args:
        group_ids, member_ids: as for :func:`share_group_heartbeats`.
        session_epochs: default: 0 (open), -1 (close), and positive ones.
        max_size: maximum number of topics, partitions of each, and batches of those.
    """
    sizes = st.integers(0, INT32_MAX)
    full = st.builds(
        ShareFetch,
        _group_ids(group_ids),
        st.uuids().map(str) if member_ids is None else member_ids,
        _session_epochs(FIRST_EPOCH) if session_epochs is None else session_epochs,
        max_wait_ms=sizes,
        min_bytes=sizes,
        max_bytes=sizes,
        max_records=st.integers(1, INT32_MAX),
        batch_size=st.integers(1, INT32_MAX),
        topics=_topics(max_size, may_renew=False),
        share_acquire_mode=st.integers(0, 1),
    )
    return full.map(_fetch)


def _fetch(full: ShareFetch) -> ShareFetch:
    if full.share_session_epoch != FIRST_EPOCH:
        return full
    topics = [
        TopicIdEntry(topic_id, tuple(ShareFetchPartition(partition.partition_index) for partition in partitions))
        for topic_id, partitions in full.topics
    ]
    return evolve(full, topics=tuple(topics))


def share_acknowledge_requests(
    *,
    group_ids: Strategy[str] | None = None,
    member_ids: Strategy[str] | None = None,
    session_epochs: Strategy[int] | None = None,
    max_size: int = FEW,
) -> Strategy[ShareAcknowledge]:
    """Return ShareAcknowledge requests, some of which renew locks (KIP-1222).

    Args:
        group_ids, member_ids: as for :func:`share_group_heartbeats`.
        session_epochs: default: -1 (close), and positive ones.
        max_size: as for :func:`share_fetch_requests`.
    """

    def of(may_renew: bool) -> Strategy[ShareAcknowledge]:
        return st.builds(
            ShareAcknowledge,
            _group_ids(group_ids),
            st.uuids().map(str) if member_ids is None else member_ids,
            _session_epochs(FIRST_EPOCH + 1) if session_epochs is None else session_epochs,
            _topics(max_size, may_renew=may_renew),
            st.just(may_renew),
        )

    return st.booleans().flatmap(of)


def _session_epochs(first: int) -> Strategy[int]:
    return st.sampled_from((first, FINAL_EPOCH)) | st.integers(first, INT32_MAX)


def _topics(max_size: int, *, may_renew: bool) -> Strategy[tuple[TopicIdEntry[ShareFetchPartition], ...]]:
    highest = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    kinds = st.lists(st.integers(AcknowledgeType.GAP, highest), min_size=1, max_size=max_size)
    acknowledged = st.tuples(st.integers(0, _PARTITIONS_MAX), kinds, st.booleans())
    partition = st.builds(
        ShareFetchPartition, st.integers(0, _PARTITIONS_MAX), st.lists(acknowledged, max_size=max_size).map(_batches)
    )
    partitions = st.lists(partition, min_size=1, max_size=max_size, unique_by=lambda each: each.partition_index)
    topic = st.builds(TopicIdEntry, st.uuids(), partitions.map(tuple))
    return st.lists(topic, max_size=max_size, unique_by=lambda each: each.topic_id).map(tuple)


def _batches(acknowledged: list[tuple[int, list[int], bool]]) -> tuple[AcknowledgementBatch, ...]:
    batches, offset = [], 0
    for skipped, kinds, is_same in acknowledged:
        first = offset + skipped
        offset = first + len(kinds)
        batches.append(AcknowledgementBatch(first, offset - 1, tuple(kinds[:1] if is_same else kinds)))
    return tuple(batches)


def topologies(*, topic_names: Strategy[str] | None = None, max_size: int = FEW) -> Strategy[Topology]:
    """Return topologies in which every internal topic is both written and read.

    Args:
        topic_names: source topics; default: :func:`~groupcoord.testing.topic_names`.
        max_size: maximum number of subtopologies, and of topics of each.
    """
    sources = st.lists(_topic_names(topic_names), min_size=1, max_size=max_size, unique=True).map(tuple)
    parts = st.lists(st.tuples(sources, st.booleans(), st.booleans()), min_size=1, max_size=max_size)
    return st.builds(_topology, st.integers(0, INT32_MAX), parts)


def _topology(epoch: int, parts: list[tuple[tuple[str, ...], bool, bool]]) -> Topology:
    """Return a topology whose parts may have a store, equal partition counts, and a topic to the next part."""
    subtopologies = []
    read: tuple[TopicInfo, ...] = ()
    for number, (sources, has_store, hands_on) in enumerate(parts):
        changelog = TopicInfo(f"store-{number}-changelog", topic_configs=(KeyValue("cleanup.policy", "compact"),))
        copartitioned = CopartitionGroup(repartition_source_topics=tuple(range(len(read))))
        written = TopicInfo(f"by-key-{number}-repartition")
        is_last = number == len(parts) - 1
        subtopologies.append(
            Subtopology(
                str(number),
                sources,
                state_changelog_topics=(changelog,) if has_store else (),
                repartition_sink_topics=(written.name,) if hands_on and not is_last else (),
                repartition_source_topics=read,
                copartition_groups=(copartitioned,) if read else (),
            )
        )
        read = (written,) if hands_on else ()
    return Topology(epoch, tuple(subtopologies))


def streams_group_heartbeats(
    *,
    group_ids: Strategy[str] | None = None,
    member_ids: Strategy[str] | None = None,
    instance_ids: Strategy[str | None] | None = None,
    member_epochs: Strategy[int] | None = None,
    topic_names: Strategy[str] | None = None,
    max_size: int = FEW,
) -> Strategy[StreamsGroupHeartbeat]:
    """Return heartbeats of streams groups (KIP-1071): joins, full and short heartbeats, leaves.

    Args:
        group_ids: default: :func:`~groupcoord.testing.group_ids` that are not blank.
        member_ids: default: :func:`~groupcoord.testing.member_ids`.
        instance_ids: default: None, or :func:`~groupcoord.testing.instance_ids` that are not blank. Only static members
            leave temporarily.
        member_epochs: default: 0 (join), -1 and -2 (leave), and positive ones.
        topic_names: source topics; default: :func:`~groupcoord.testing.topic_names`.
        max_size: maximum number of subtopologies, and of topics and tasks of each.
    """
    leaving = (JOIN, LEAVE, LEAVE_FOR_A_WHILE)
    texts = st.text("abcxyz", min_size=1, max_size=8)
    tasks = st.lists(
        st.builds(
            TaskIds, st.sampled_from("012"), st.lists(st.integers(0, _PARTITIONS_MAX), max_size=max_size).map(tuple)
        ),
        max_size=max_size,
        unique_by=lambda each: each.subtopology_id,
    ).map(tuple)
    offset = st.builds(TaskOffset, st.sampled_from("012"), st.integers(0, _PARTITIONS_MAX), st.integers(0, 2**63 - 1))
    offsets = st.none() | st.lists(
        offset, max_size=max_size, unique_by=lambda each: (each.subtopology_id, each.partition)
    ).map(tuple)
    full = st.builds(
        StreamsGroupHeartbeat,
        _group_ids(group_ids),
        common.member_ids() if member_ids is None else member_ids,
        st.sampled_from(leaving) | st.integers(0, INT32_MAX) if member_epochs is None else member_epochs,
        st.integers(0, INT32_MAX),
        st.none() | common.instance_ids().filter(common.has_text) if instance_ids is None else instance_ids,
        rack_id=st.none() | texts,
        rebalance_timeout_ms=st.integers(0, INT32_MAX),
        topology=topologies(topic_names=topic_names, max_size=max_size),
        active_tasks=tasks,
        standby_tasks=tasks,
        warmup_tasks=tasks,
        process_id=st.none() | texts,
        user_endpoint=st.none() | st.builds(Endpoint, texts, st.integers(0, 65_535)),
        client_tags=st.none()
        | st.lists(st.builds(KeyValue, texts, texts), max_size=max_size, unique_by=lambda pair: pair.key).map(tuple),
        task_offsets=offsets,
        task_end_offsets=offsets,
        shutdown_application=st.booleans(),
        client_id=common.client_ids(),
        client_host=st.ip_addresses(v=4).map("/{}".format),
    )
    return st.builds(_streams_heartbeat, full, st.booleans())


def _streams_heartbeat(full: StreamsGroupHeartbeat, is_short: bool) -> StreamsGroupHeartbeat:
    if full.member_epoch == JOIN:
        return evolve(full, active_tasks=(), standby_tasks=(), warmup_tasks=())
    if full.member_epoch > JOIN and not is_short:
        return evolve(full, topology=None)
    is_away = full.instance_id is None and full.member_epoch == LEAVE_FOR_A_WHILE
    epoch = LEAVE if is_away else full.member_epoch
    client_id = full.client_id
    return StreamsGroupHeartbeat(
        full.group_id, full.member_id, epoch, instance_id=full.instance_id, client_id=client_id
    )


def streams_group_describe_requests(
    *, group_ids: Strategy[str] | None = None, max_size: int = FEW
) -> Strategy[StreamsGroupDescribe]:
    """Return StreamsGroupDescribe requests for up to ``max_size`` groups, by default of any id, also empty."""
    return st.builds(StreamsGroupDescribe, common.several_groups(group_ids, max_size), st.booleans(), st.booleans())


def requests(*, group_ids: Strategy[str] | None = None, topic_names: Strategy[str] | None = None) -> Strategy[Request]:
    """Return the requests of members and administrators that a group coordinator receives, except those for records and
    offsets of share groups.

    Args:
        group_ids: default: those of each type.
        topic_names: default: :func:`~groupcoord.testing.topic_names`.
    """
    return st.one_of(
        common.join_requests(group_ids=group_ids),
        common.sync_requests(group_ids=group_ids),
        common.heartbeats(group_ids=group_ids),
        common.consumer_group_heartbeats(group_ids=group_ids, topic_names=topic_names),
        share_group_heartbeats(group_ids=group_ids, topic_names=topic_names),
        streams_group_heartbeats(group_ids=group_ids, topic_names=topic_names),
        common.leave_requests(group_ids=group_ids),
        common.commit_requests(group_ids=group_ids, topic_names=topic_names),
        common.transactional_commit_requests(group_ids=group_ids, topic_names=topic_names),
        common.fetch_requests(group_ids=group_ids, topic_names=topic_names),
        common.offset_delete_requests(group_ids=group_ids, topic_names=topic_names),
        common.describe_requests(group_ids=group_ids),
        common.consumer_group_describe_requests(group_ids=group_ids),
        share_group_describe_requests(group_ids=group_ids),
        streams_group_describe_requests(group_ids=group_ids),
        common.delete_requests(group_ids=group_ids),
        common.list_requests(),
        common.find_coordinator_requests(group_ids=group_ids),
    )
