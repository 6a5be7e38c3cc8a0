"""Requests of members in these tests: one group, one topic, random assignments."""

from __future__ import annotations

from groupcoord import Config
from groupcoord.messages import (
    DescribeGroups,
    DescribeGroupsResponse,
    GroupToFetch,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    Request,
    SyncAssignment,
    SyncGroup,
    TopicToCommit,
)

GROUP, TOPIC = "crew", "rooms"
CONFIG = Config(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=10, offsets_topic_num_partitions=3)


def join(member_id: str = "") -> JoinGroup:
    return JoinGroup(
        GROUP, member_id, "work", (JoinProtocol("deal", b""),), 10_000, 10_000, requires_known_member_id=False
    )


def sync(joined: JoinGroupResponse) -> SyncGroup:
    assignments = tuple(SyncAssignment(member.member_id, member.member_id.encode()) for member in joined.members)
    return SyncGroup(GROUP, joined.generation_id, joined.member_id, assignments=assignments)


def commit(offset: int, group_id: str = GROUP) -> Request[OffsetCommitResponse]:
    return OffsetCommit(group_id, (TopicToCommit(TOPIC, (OffsetToCommit(0, offset),)),))


def fetch(group_id: str = GROUP) -> Request[OffsetFetchResponse]:
    return OffsetFetch((GroupToFetch(group_id),))


def committed(fetched: OffsetFetchResponse) -> list[int]:
    (group,) = fetched.groups
    return [offset.committed_offset for topic in group.topics for offset in topic.partitions]


def describe() -> Request[DescribeGroupsResponse]:
    return DescribeGroups((GROUP,))
