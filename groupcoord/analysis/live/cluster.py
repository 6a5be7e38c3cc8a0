"""Interface of a running cluster (metadata, offsets, batches, groups), and retries of its requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from attrs import frozen

from groupcoord.analysis.errors import TransientClusterError
from groupcoord.client import Request
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.schema.engine import Values

NO_BROKER = -1


class LogEnd(IntEnum):
    """Special timestamps of ListOffsets."""

    LATEST = -1
    EARLIEST = -2


@frozen
class TopicMetadata:
    """Metadata of a topic.

    Attributes:
        topic_id: zero from brokers before Kafka 2.8.
        leaders: id of the leader by partition; -1 without one.
    """

    name: str
    topic_id: UUID
    leaders: Mapping[int, int]


@frozen
class ClusterMetadata:
    """Metadata of the cluster and the requested topics.

    Attributes:
        errors: error codes of the other requested topics, by name.
    """

    cluster_id: str
    topics: Mapping[str, TopicMetadata]
    errors: Mapping[str, int]


class ListedOffset(NamedTuple):
    """An offset from ListOffsets, with its leader epoch; -1 if unknown."""

    error_code: int
    offset: int
    leader_epoch: int


class FetchedBytes(NamedTuple):
    """A Fetch response of one partition.

    Attributes:
        batches: contiguous; the first may start before the requested offset, the last may be cut short.
    """

    batches: bytes
    high_watermark: int
    log_start_offset: int


class ListedGroup(NamedTuple):
    """A group in the list of its coordinator; state and protocol type are empty if unknown."""

    group_id: str
    type: str
    state: str
    protocol_type: str


class ListedGroups(NamedTuple):
    """Groups of one broker that the user may describe."""

    error_code: int
    groups: tuple[ListedGroup, ...]


class Coordinator(NamedTuple):
    """Coordinator of a group."""

    error_code: int
    broker: int


class DescribedGroup(NamedTuple):
    """Description of a group and its members.

    Attributes:
        group_epoch: None in a classic group, like the epoch of its target assignment.
        members: as in the response, with kio's field names.
        subtopologies: source topics of each subtopology of a streams group.
    """

    error_code: int
    state: str
    protocol_type: str
    protocol: str | None
    group_epoch: int | None
    assignment_epoch: int | None
    members: tuple[Values, ...]
    subtopologies: Mapping[str, tuple[str, ...]] = {}


class CommittedOffset(NamedTuple):
    """A committed offset, or the start offset of a share group; -1 for none.

    Attributes:
        lag: lag of a share group from its coordinator; None if unknown.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error_code: int
    lag: int | None = None


class GroupOffsets(NamedTuple):
    """Committed offsets of a group in topics that the user may describe."""

    error_code: int
    offsets: tuple[CommittedOffset, ...]


class LiveCluster(Protocol):
    """Running cluster. Every call raises the errors of :mod:`groupcoord.analysis.errors`."""

    def metadata(self, topics: Sequence[str] | None) -> ClusterMetadata:
        """Request topics, or all for None, and cache the leaders of their partitions."""

    def list_offsets(
        self, partitions: Collection[TopicPartition], end: LogEnd, *, is_stable: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """Request offsets of partitions, with one request to each leader."""

    def fetch_raw(self, partition: TopicPartition, offset: int, max_bytes: int) -> FetchedBytes:
        """Fetch batches from an offset on as stored, including those of open and aborted transactions."""

    def brokers(self) -> Sequence[int]:
        """Return the ids of the present brokers."""

    def describe_configs(self, broker: int, names: Collection[str]) -> Mapping[str, str | None]:
        """Return the broker settings with these names; unknown ones are missing."""

    def is_told_all_groups(self) -> bool:
        """Return whether lists of groups are complete: the user has DESCRIBE on the cluster."""

    def list_groups(self, broker: int) -> ListedGroups:
        """Return the groups that a broker coordinates."""

    def coordinators(self, group_ids: Collection[str]) -> Mapping[str, Coordinator]:
        """Return the coordinators of groups, which need not exist."""

    def describe_groups(self, broker: int, group_type: str, group_ids: Collection[str]) -> Mapping[str, DescribedGroup]:
        """Return descriptions of groups by id."""

    def committed_offsets(self, broker: int, group_ids: Collection[str]) -> Mapping[str, GroupOffsets]:
        """Return all committed offsets by group."""

    def share_offsets(self, broker: int, group_ids: Collection[str]) -> Mapping[str, GroupOffsets]:
        """Return the start offsets of share groups by group."""

    def close(self) -> None:
        """Close all connections."""


class OffsetOutOfRangeError(Exception):
    """A fetch offset is outside the log."""


BACKOFF_MAX_MS = 1_000
"""``retry.backoff.max.ms`` of Kafka's clients: the backoff doubles up to this."""

SETTLE_MS = 2_000
"""Time to retry a part of a response, such as one partition's leader."""

T = TypeVar("T")


class Patience:
    """Retries with exponential backoff until success or a timeout."""

    def __init__(
        self,
        timeout_ms: int,
        backoff_ms: int,
        *,
        now_s: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._now_s = now_s
        self._wait = wait

    def try_for(self, work: Callable[[], T], mend: Callable[[], object] = lambda: None) -> T:
        deadline_s = self._now_s() + self._timeout_ms / 1000
        backoff_ms = self._backoff_ms
        while True:
            try:
                return work()
            except TransientClusterError:
                if self._now_s() + backoff_ms / 1000 >= deadline_s:
                    raise
            self._wait(backoff_ms / 1000)
            backoff_ms = min(2 * backoff_ms, BACKOFF_MAX_MS)
            with suppress(TransientClusterError):
                mend()

    def collect(self, work: Callable[[], T], is_whole: Callable[[T], bool]) -> T:
        """Return the first complete result of ``work``, or the last one after :data:`SETTLE_MS`."""
        found: list[T] = []

        def attempt() -> T:
            found[:] = [self.try_for(work)]
            if is_whole(found[0]):
                return found[0]
            raise TransientClusterError("a part is missing")

        settling = Patience(min(SETTLE_MS, self._timeout_ms), self._backoff_ms, now_s=self._now_s, wait=self._wait)
        try:
            return settling.try_for(attempt)
        except TransientClusterError:
            if not found:
                raise
            return found[0]

    def at(self, cluster: LiveCluster, partition: TopicPartition, work: Callable[[], T]) -> T:
        """Retry a request to a partition's leader; look the leader up again after each failure."""
        return self.try_for(work, lambda: cluster.metadata([partition.topic]))


CLASSIC, CONSUMER, SHARE, STREAMS = "Classic", "Consumer", "Share", "Streams"
_OFFSET_FETCH, _FIND_COORDINATOR, _DESCRIBE_GROUPS, _LIST_GROUPS = 9, 10, 15, 16
_DESCRIBE_CLUSTER, _CONSUMER_GROUP_DESCRIBE, _SHARE_GROUP_DESCRIBE, _STREAMS_GROUP_DESCRIBE = 60, 69, 77, 89
_DESCRIBE_SHARE_GROUP_OFFSETS = 90
_VERSIONS = {
    _FIND_COORDINATOR: (4, 6),
    _OFFSET_FETCH: (8, 9),  # version 10 replaces names of topics by ids
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
"""The API that describes groups of each type."""

_DESCRIBE_BIT = 1 << 8


def cluster_request() -> Request:
    return _request(_DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": True, "endpoint_type": 1})


def may_describe_cluster(values: Values) -> bool:
    return bool(values["cluster_authorized_operations"] & _DESCRIBE_BIT)


def list_groups_request() -> Request:
    return _request(_LIST_GROUPS, {"states_filter": [], "types_filter": []})


def listed_groups(values: Values) -> ListedGroups:
    """Return the groups that a broker coordinates; brokers before Kafka 3.8 give no type, which counts as classic."""
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
    return _request(_FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": list(group_ids)})


def found_coordinators(values: Values) -> dict[str, Coordinator]:
    return {one["key"]: Coordinator(one["error_code"], one["node_id"]) for one in values["coordinators"]}


def describe_request(group_type: str, group_ids: Collection[str]) -> Request:
    name = "groups" if group_type == CLASSIC else "group_ids"
    flags = dict.fromkeys(("include_authorized_operations", "include_topology_description"), False)
    return _request(DESCRIBED_BY[group_type], {name: list(group_ids), **flags})


def described_groups(group_type: str, values: Values) -> dict[str, DescribedGroup]:
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
    wanted = [{"group_id": one, "member_id": None, "member_epoch": -1, "topics": None} for one in group_ids]
    return _request(_OFFSET_FETCH, {"groups": wanted, "require_stable": False})


def committed_offsets(values: Values) -> dict[str, GroupOffsets]:
    """Return the offsets of a response by group."""
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
    wanted = [{"group_id": one, "topics": None} for one in group_ids]
    return _request(_DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": wanted})


def share_offsets(values: Values) -> dict[str, GroupOffsets]:
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
