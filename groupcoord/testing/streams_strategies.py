"""Hypothesis strategies for what members of streams groups send (KIP-1071).

What :mod:`groupcoord.testing.strategies` says of its own holds for these.
"""

from __future__ import annotations

from attrs import evolve
from hypothesis import strategies as st

from groupcoord.core.javacompat.hashing import is_blank
from groupcoord.core.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from groupcoord.testing import strategies as common

__all__ = ["streams_group_describe_requests", "streams_group_heartbeats", "topologies"]

FEW = 3
INT32_MAX = 2**31 - 1
_PARTITIONS_MAX = 20


def topologies(*, topic_names: common.Strategy[str] | None = None, max_size: int = FEW) -> common.Strategy[Topology]:
    """Return topologies whose parts fit together: each internal topic that is written is read, and the reverse.

    Args:
        topic_names: of the topics that they read; all of :func:`~groupcoord.testing.topic_names` by default.
        max_size: how many subtopologies, and topics of each, at most.
    """
    names = common.topic_names() if topic_names is None else topic_names
    sources = st.lists(names, min_size=1, max_size=max_size, unique=True).map(tuple)
    parts = st.lists(st.tuples(sources, st.booleans(), st.booleans()), min_size=1, max_size=max_size)
    return st.builds(_topology, st.integers(0, INT32_MAX), parts)


def _topology(epoch: int, parts: list[tuple[tuple[str, ...], bool, bool]]) -> Topology:
    """Return a topology of which each part may have a store, equal partitions, and be read from by the next one."""
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
    group_ids: common.Strategy[str] | None = None,
    member_ids: common.Strategy[str] | None = None,
    instance_ids: common.Strategy[str | None] | None = None,
    member_epochs: common.Strategy[int] | None = None,
    topic_names: common.Strategy[str] | None = None,
    max_size: int = FEW,
) -> common.Strategy[StreamsGroupHeartbeat]:
    """Return heartbeats of streams groups (KIP-1071): joins, signs of life that say more or less, and departures.

    Args:
        group_ids: by default those of :func:`~groupcoord.testing.group_ids` that are not blank.
        member_ids: all of :func:`~groupcoord.testing.member_ids` by default.
        instance_ids: by default None, or those of :func:`~groupcoord.testing.instance_ids` that are not blank. Only
            members with one leave for a while.
        member_epochs: by default 0 (join), -1 and -2 (leave), and all others that are not negative.
        topic_names: of the topics that they read; all of :func:`~groupcoord.testing.topic_names` by default.
        max_size: how many subtopologies, topics and tasks of each, at most.
    """
    leaving = (JOIN_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH)
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
        common.group_ids().filter(_has_text) if group_ids is None else group_ids,
        common.member_ids() if member_ids is None else member_ids,
        st.sampled_from(leaving) | st.integers(0, INT32_MAX) if member_epochs is None else member_epochs,
        st.integers(0, INT32_MAX),
        st.none() | common.instance_ids().filter(_has_text) if instance_ids is None else instance_ids,
        rack_id=st.none() | texts,
        rebalance_timeout_ms=st.integers(0, INT32_MAX),
        topology=topologies(topic_names=topic_names, max_size=max_size),
        active_tasks=tasks,
        standby_tasks=tasks,
        warmup_tasks=tasks,
        process_id=st.none() | texts,
        user_endpoint=st.none() | st.builds(Endpoint, texts, st.integers(0, 65_535)),
        client_tags=st.none()
        | st.lists(st.builds(KeyValue, texts, texts), max_size=max_size, unique_by=_key).map(tuple),
        task_offsets=offsets,
        task_end_offsets=offsets,
        shutdown_application=st.booleans(),
        client_id=common.client_ids(),
        client_host=st.ip_addresses(v=4).map("/{}".format),
    )
    return st.builds(_heartbeat, full, st.booleans())


def _key(pair: KeyValue) -> str:
    return pair.key


def _has_text(text: str) -> bool:
    return not is_blank(text)


def _heartbeat(full: StreamsGroupHeartbeat, is_short: bool) -> StreamsGroupHeartbeat:
    """Return a heartbeat that a client could send with this epoch."""
    if full.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
        return evolve(full, active_tasks=(), standby_tasks=(), warmup_tasks=())
    if full.member_epoch > JOIN_GROUP_MEMBER_EPOCH and not is_short:
        return evolve(full, topology=None)
    is_away = full.instance_id is None and full.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH
    epoch = LEAVE_GROUP_MEMBER_EPOCH if is_away else full.member_epoch
    client_id = full.client_id
    return StreamsGroupHeartbeat(
        full.group_id, full.member_id, epoch, instance_id=full.instance_id, client_id=client_id
    )


def streams_group_describe_requests(
    *, group_ids: common.Strategy[str] | None = None, max_size: int = FEW
) -> common.Strategy[StreamsGroupDescribe]:
    """Return descriptions of up to ``max_size`` streams groups, by default of any id, the empty one included."""
    ids = common.group_ids(min_size=0) if group_ids is None else group_ids
    return st.builds(StreamsGroupDescribe, st.lists(ids, max_size=max_size).map(tuple), st.booleans(), st.booleans())
