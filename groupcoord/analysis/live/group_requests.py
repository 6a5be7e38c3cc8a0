"""Requests to group coordinators and their answers: lists, descriptions and offsets of groups of all types.

Versions are those of Kafka 3.0 and newer: from then on one OffsetFetch asks for several groups (KIP-709).
"""

from __future__ import annotations

from collections.abc import Collection

from groupcoord.analysis.live.cluster import (
    CommittedOffset,
    Coordinator,
    DescribedGroup,
    GroupOffsets,
    ListedGroup,
    ListedGroups,
)
from groupcoord.client import Request
from groupcoord.wire.schema import Values

CLASSIC, CONSUMER, SHARE, STREAMS = "Classic", "Consumer", "Share", "Streams"
"""Types of groups."""

_OFFSET_FETCH, _FIND_COORDINATOR, _DESCRIBE_GROUPS, _LIST_GROUPS = 9, 10, 15, 16
_DESCRIBE_CLUSTER, _CONSUMER_GROUP_DESCRIBE, _SHARE_GROUP_DESCRIBE, _STREAMS_GROUP_DESCRIBE = 60, 69, 77, 89
_DESCRIBE_SHARE_GROUP_OFFSETS = 90
_VERSIONS = {
    _FIND_COORDINATOR: (4, 6),
    _OFFSET_FETCH: (8, 9),  # with version 10 answers have ids in place of topics' names
    _DESCRIBE_GROUPS: (3, 6),
    _LIST_GROUPS: (2, 5),
    _DESCRIBE_CLUSTER: (0, 1),
    _CONSUMER_GROUP_DESCRIBE: (0, 1),
    _SHARE_GROUP_DESCRIBE: (1, 1),
    _STREAMS_GROUP_DESCRIBE: (0, 1),
    _DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),  # from version 1 on with the lag (KIP-1226)
}
DESCRIBED_BY = {
    CLASSIC: _DESCRIBE_GROUPS,
    CONSUMER: _CONSUMER_GROUP_DESCRIBE,
    SHARE: _SHARE_GROUP_DESCRIBE,
    STREAMS: _STREAMS_GROUP_DESCRIBE,
}
"""By type of group, the API that describes it."""

_DESCRIBE_BIT = 1 << 8
"""Kafka's operation DESCRIBE among those that an answer says a user may do."""


def cluster_request() -> Request:
    """Return the question what the user may do with the cluster."""
    return _request(_DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": True, "endpoint_type": 1})


def may_describe_cluster(values: Values) -> bool:
    """Tell by the answer whether the user may describe the cluster, and so is told of all its groups."""
    return bool(values["cluster_authorized_operations"] & _DESCRIBE_BIT)


def list_groups_request() -> Request:
    """Return the question for a broker's groups."""
    return _request(_LIST_GROUPS, {"states_filter": [], "types_filter": []})


def listed_groups(values: Values) -> ListedGroups:
    """Return the groups that a broker coordinates; before Kafka 3.8 all are classic ones, or of no told type."""
    groups = [
        ListedGroup(
            one["group_id"],
            (one.get("group_type") or CLASSIC).capitalize(),
            one.get("group_state", ""),
            one["protocol_type"],
        )
        for one in values["groups"]
    ]
    return ListedGroups(values["error_code"], tuple(groups))


def coordinators_request(group_ids: Collection[str]) -> Request:
    """Return the question which brokers coordinate groups."""
    return _request(_FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": list(group_ids)})


def found_coordinators(values: Values) -> dict[str, Coordinator]:
    """Return the coordinators of an answer by group."""
    return {one["key"]: Coordinator(one["error_code"], one["node_id"]) for one in values["coordinators"]}


def describe_request(group_type: str, group_ids: Collection[str]) -> Request:
    """Return the question for groups of a type and their members."""
    name = "groups" if group_type == CLASSIC else "group_ids"
    flags = dict.fromkeys(("include_authorized_operations", "include_topology_description"), False)
    return _request(DESCRIBED_BY[group_type], {name: list(group_ids), **flags})


def described_groups(group_type: str, values: Values) -> dict[str, DescribedGroup]:
    """Return the groups of an answer by id."""
    return {one["group_id"]: _described(group_type, one) for one in values["groups"]}


def _described(group_type: str, one: Values) -> DescribedGroup:
    if group_type != CLASSIC:
        topology = one.get("topology") or {}
        return DescribedGroup(
            one["error_code"],
            one["group_state"],
            group_type.lower(),
            one.get("assignor_name") or None,
            one["group_epoch"],
            one["assignment_epoch"],
            tuple(one["members"]),
            {sub["subtopology_id"]: _source_topics(sub) for sub in topology.get("subtopologies") or ()},
        )
    protocol = one["protocol_data"] or None
    return DescribedGroup(
        one["error_code"], one["group_state"], one["protocol_type"], protocol, None, None, tuple(one["members"])
    )


def _source_topics(subtopology: Values) -> tuple[str, ...]:
    return (*subtopology["source_topics"], *(one["name"] for one in subtopology["repartition_source_topics"]))


def offsets_request(group_ids: Collection[str]) -> Request:
    """Return the question for all committed offsets of groups."""
    wanted = [{"group_id": one, "member_id": None, "member_epoch": -1, "topics": None} for one in group_ids]
    return _request(_OFFSET_FETCH, {"groups": wanted, "require_stable": False})


def committed_offsets(values: Values) -> dict[str, GroupOffsets]:
    """Return the offsets of an answer by group."""
    return {
        group["group_id"]: GroupOffsets(
            group["error_code"],
            tuple(
                CommittedOffset(
                    topic["name"],
                    one["partition_index"],
                    one["committed_offset"],
                    one["committed_leader_epoch"],
                    one["metadata"] or "",
                    one["error_code"],
                )
                for topic in group["topics"]
                for one in topic["partitions"]
            ),
        )
        for group in values["groups"]
    }


def share_offsets_request(group_ids: Collection[str]) -> Request:
    """Return the request for the start offsets of share groups in all their partitions."""
    wanted = [{"group_id": one, "topics": None} for one in group_ids]
    return _request(_DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": wanted})


def share_offsets(values: Values) -> dict[str, GroupOffsets]:
    """Return the start offsets of an answer by group."""
    return {
        group["group_id"]: GroupOffsets(
            group["error_code"],
            tuple(
                CommittedOffset(
                    topic["topic_name"],
                    one["partition_index"],
                    one["start_offset"],
                    one["leader_epoch"],
                    "",
                    one["error_code"],
                    lag if (lag := one.get("lag", -1)) >= 0 else None,
                )
                for topic in group["topics"]
                for one in topic["partitions"]
            ),
        )
        for group in values["groups"]
    }


def _request(api_key: int, values: Values) -> Request:
    return Request(api_key, _VERSIONS[api_key], lambda version: values)
