"""A group of a snapshot as a view, as the records of the log give it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from groupcoord.analysis.fold.history.embedded import (
    NO_PARTITIONS,
    NO_SUBSCRIPTION,
    TopicPartitions,
    decode_partitions,
    decode_subscription,
)
from groupcoord.analysis.fold.history.views import CLASSIC, STREAMS, GroupView, MemberView
from groupcoord.analysis.live.cluster import DescribedGroup
from groupcoord.analysis.live.snapshots import GroupSnapshot
from groupcoord.core.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from groupcoord.records.structures import uuid_text
from groupcoord.wire.schema import Values

NO_GENERATION = -1
"""That of classic groups, whose generation no answer tells."""

NOT_TOLD = -1
"""Offsets in the log, times and time-outs that no answer tells."""


def view_of(group_type: str, described: DescribedGroup, *, by_name: bool = False) -> GroupView:
    """Return a group as it was described.

    Args:
        group_type: Classic, Consumer, Share or Streams.
        described: the answer.
        by_name: partitions go by the names of their topics, as in classic groups, and not as in the log: by ids of
            topics, and tasks of streams groups by subtopology.
    """
    if group_type == CLASSIC:
        is_consumer = described.protocol_type == CONSUMER_PROTOCOL_TYPE
        members = [_classic_member(one, is_consumer) for one in described.members]
    elif group_type == STREAMS:
        topics = {} if not by_name else described.subtopologies
        members = [_streams_member(one, topics) for one in described.members]
    else:
        members = [_consumer_member(one, by_name) for one in described.members]
    return GroupView(
        group_type,
        NO_GENERATION if described.group_epoch is None else described.group_epoch,
        described.protocol_type or None,
        described.protocol,
        None,
        {member.member_id: member for member in members},
        NOT_TOLD,
        NOT_TOLD,
        NOT_TOLD,
    )


def nothing_like(view: GroupView) -> GroupView:
    """Return the view of a group as it is before its first member, or once it is gone."""
    generation = NO_GENERATION if view.group_type == CLASSIC else view.generation
    return GroupView(view.group_type, generation, None, None, None, {}, NOT_TOLD, NOT_TOLD, NOT_TOLD)


def topic_names(described: DescribedGroup) -> dict[str, str]:
    """Return the names of the topics that members of a consumer or share group have, by id."""
    return {uuid_text(one["topic_id"].bytes): one["topic_name"] for one in _topics_of_members(described)}


def topics_of(group: GroupSnapshot) -> frozenset[str]:
    """Return the names of the topics that a group's members have."""
    if group.described is None:
        return frozenset()
    members = view_of(group.type, group.described, by_name=True).members.values()
    return frozenset(topic for member in members for topic, _ in member.assigned | member.held)


def owners_of(group: GroupSnapshot) -> dict[tuple[str, int], MemberView]:
    """Return the member that has each partition of a group, the first of several; none if members are not known."""
    if group.described is None:
        return {}
    owners: dict[tuple[str, int], MemberView] = {}
    for member in view_of(group.type, group.described, by_name=True).members.values():
        for place in sorted(member.held):
            owners.setdefault(place, member)
    return owners


def _topics_of_members(described: DescribedGroup) -> Iterator[Values]:
    for member in described.members:
        for name in ("assignment", "target_assignment"):
            yield from member[name]["topic_partitions"] if name in member else ()


def _classic_member(values: Values, is_consumer: bool) -> MemberView:
    metadata = values["member_metadata"]
    assigned = decode_partitions(values["member_assignment"]) if is_consumer else NO_PARTITIONS
    subscription = decode_subscription(metadata) if is_consumer and metadata else NO_SUBSCRIPTION
    return MemberView(
        values["member_id"],
        values.get("group_instance_id"),
        values["client_id"],
        values["client_host"],
        NOT_TOLD,
        None,
        subscription.topics,
        None,
        subscription.rack_id,
        subscription.owned,
        subscription.owned_generation,
        subscription.user_data,
        assigned,
        assigned,
        NOT_TOLD,
        metadata,
        NOT_TOLD,
        NOT_TOLD,
    )


def _consumer_member(values: Values, by_name: bool) -> MemberView:
    held = _partitions(values["assignment"], by_name)
    return MemberView(
        values["member_id"],
        values.get("instance_id"),
        values["client_id"],
        values["client_host"],
        NOT_TOLD,
        None,
        frozenset(values["subscribed_topic_names"]),
        values.get("subscribed_topic_regex") or None,
        values["rack_id"],
        NO_PARTITIONS,
        NO_GENERATION,
        None,
        _partitions(values["target_assignment"], by_name) if "target_assignment" in values else held,
        held,
        NOT_TOLD,
        b"",
        values["member_epoch"],
        NOT_TOLD,
    )


def _streams_member(values: Values, topics: Mapping[str, tuple[str, ...]]) -> MemberView:
    held = values["assignment"]
    return MemberView(
        values["member_id"],
        values["instance_id"],
        values["client_id"],
        values["client_host"],
        NOT_TOLD,
        None,
        frozenset(),
        None,
        values["rack_id"],
        NO_PARTITIONS,
        NO_GENERATION,
        None,
        _tasks(values["target_assignment"]["active_tasks"], topics),
        _tasks(held["active_tasks"], topics),
        NOT_TOLD,
        b"",
        values["member_epoch"],
        NOT_TOLD,
        standby=_tasks(held["standby_tasks"], topics),
        warmup=_tasks(held["warmup_tasks"], topics),
    )


def _tasks(tasks: Iterable[Values], topics: Mapping[str, tuple[str, ...]]) -> TopicPartitions:
    """Return tasks by subtopology, or by the names of its source topics, where these are given."""
    return frozenset(
        (name, partition)
        for one in tasks
        for name in topics.get(one["subtopology_id"], (one["subtopology_id"],))
        for partition in one["partitions"]
    )


def _partitions(assignment: Values, by_name: bool) -> TopicPartitions:
    return frozenset(
        (one["topic_name"] if by_name else uuid_text(one["topic_id"].bytes), partition)
        for one in assignment["topic_partitions"]
        for partition in one["partitions"]
    )
