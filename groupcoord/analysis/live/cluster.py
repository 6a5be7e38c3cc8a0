"""Running Kafka cluster as the live tools query it: metadata, offsets, records, groups and their commits.

The event loop of its connections runs in a thread, so callers may run their own, as in a notebook.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from attrs import define, field, frozen

from groupcoord.analysis.errors import (
    AccessError,
    ClusterError,
    InputError,
    TransientClusterError,
    check_error,
    error_name,
)
from groupcoord.analysis.live.settings import ClientSettings, ClusterAddress
from groupcoord.client import (
    Answer,
    ConnectionLostError,
    IncompatibleBrokerError,
    KafkaClient,
    LoginRefusedError,
    Request,
)
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.errors import ErrorCode
from groupcoord.schema.engine import Values
from groupcoord.wire.api import ProtocolError

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
    """Metadata of the cluster and the requested topics; ``errors`` has the error codes of other requested topics."""

    cluster_id: str
    topics: Mapping[str, TopicMetadata]
    errors: Mapping[str, int]


class ListedOffset(NamedTuple):
    """An offset from ListOffsets, with its leader epoch; -1 if unknown."""

    error_code: int
    offset: int
    leader_epoch: int


class FetchedBytes(NamedTuple):
    """A Fetch response of one partition: contiguous batches, of which the first may start before the requested offset,
    and the last may be cut short.
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
        lag: of a share group, from its coordinator; None if unknown.
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


class OffsetOutOfRangeError(Exception):
    """A fetch offset is outside the log."""


BACKOFF_MAX_MS = 1_000
"""``retry.backoff.max.ms`` of Kafka's clients: the backoff doubles up to this."""

SETTLE_MS = 2_000
"""Time to retry a part of a response, such as one partition's leader."""

T = TypeVar("T")


@define(eq=False)
class Patience:
    """Retries with exponential backoff until success or a timeout."""

    _timeout_ms: int
    _backoff_ms: int
    _now_s: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    _wait: Callable[[float], None] = field(default=time.sleep, kw_only=True)

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

    def at(self, cluster: KafkaCluster, partition: TopicPartition, work: Callable[[], T]) -> T:
        """Retry a request to a partition's leader; look the leader up again after each failure."""
        return self.try_for(work, lambda: cluster.metadata([partition.topic]))


CLASSIC, CONSUMER, SHARE, STREAMS = "Classic", "Consumer", "Share", "Streams"
FETCH_WAIT_MAX_MS = 500
"""Time that a broker may wait for records."""

LIST_WAIT_MAX_MS = 30_000
"""Time that a broker may search tiered storage for an offset."""

_FETCH, _LIST_OFFSETS, _METADATA, _OFFSET_FETCH, _FIND_COORDINATOR = 1, 2, 3, 9, 10
_DESCRIBE_GROUPS, _LIST_GROUPS, _DESCRIBE_CONFIGS, _DESCRIBE_CLUSTER = 15, 16, 32, 60
_CONSUMER_GROUP_DESCRIBE, _SHARE_GROUP_DESCRIBE, _STREAMS_GROUP_DESCRIBE = 69, 77, 89
_DESCRIBE_SHARE_GROUP_OFFSETS = 90
_VERSIONS = {
    _FETCH: (4, 17),
    _LIST_OFFSETS: (2, 10),
    _METADATA: (4, 13),
    _OFFSET_FETCH: (8, 9),  # version 10 replaces names of topics by ids
    _FIND_COORDINATOR: (4, 6),
    _DESCRIBE_GROUPS: (3, 6),
    _LIST_GROUPS: (2, 5),
    _DESCRIBE_CONFIGS: (1, 4),
    _DESCRIBE_CLUSTER: (0, 1),
    _CONSUMER_GROUP_DESCRIBE: (0, 1),
    _SHARE_GROUP_DESCRIBE: (1, 1),
    _STREAMS_GROUP_DESCRIBE: (0, 1),
    _DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),  # from version 1 on with the lag (KIP-1226)
}
_FETCH_BY_NAME = (4, 12)
DESCRIBED_BY = {
    CLASSIC: _DESCRIBE_GROUPS,
    CONSUMER: _CONSUMER_GROUP_DESCRIBE,
    SHARE: _SHARE_GROUP_DESCRIBE,
    STREAMS: _STREAMS_GROUP_DESCRIBE,
}
_BROKER_RESOURCE = 4
_DESCRIBE_BIT = 1 << 8


class KafkaCluster:
    """Running cluster. Every call raises the errors of :mod:`groupcoord.analysis.errors`."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._topics: dict[str, TopicMetadata] = {}
        self._client = KafkaClient(settings.properties, settings.ssl_context(), settings.request_timeout_ms / 1000)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="groupcoord-cluster", daemon=True)
        self._thread.start()
        try:
            self._run(self._client.refresh())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        try:
            self._run(self._client.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def metadata(self, topics: Sequence[str] | None) -> ClusterMetadata:
        """Request topics, or all for None, and cache the leaders of their partitions."""
        wanted = None if topics is None else [{"name": name, "topic_id": ZERO_UUID} for name in topics]
        flags = (
            "allow_auto_topic_creation",
            "include_cluster_authorized_operations",
            "include_topic_authorized_operations",
        )
        values = self._ask(None, _METADATA, {"topics": wanted, **dict.fromkeys(flags, False)})
        self._client.update(values)
        found, errors = {}, {}
        for topic in values["topics"]:
            name = topic["name"]
            if topic["error_code"] != ErrorCode.NONE:
                errors[name] = topic["error_code"]
                self._topics.pop(name, None)
                continue
            leaders = {one["partition_index"]: one["leader_id"] for one in topic["partitions"]}
            found[name] = TopicMetadata(name, topic.get("topic_id") or ZERO_UUID, leaders)
        self._topics |= found
        return ClusterMetadata(values["cluster_id"] or "", found, errors)

    def list_offsets(
        self, partitions: Collection[TopicPartition], end: LogEnd, *, is_stable: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """Request offsets of partitions, with one request to each leader."""
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in partitions:
            by_leader[self._leader(partition)].append(partition)
        missing = dict.fromkeys(by_leader.pop(NO_BROKER, ()), ErrorCode.LEADER_NOT_AVAILABLE)
        answers = self._ask_all({leader: _list_offsets(led, end, is_stable) for leader, led in by_leader.items()})
        for leader in by_leader.keys() - answers.keys():
            missing |= dict.fromkeys(by_leader[leader], ErrorCode.NETWORK_EXCEPTION)
        found = {partition: ListedOffset(error_code, -1, -1) for partition, error_code in missing.items()}
        for topic in (topic for answer in answers.values() for topic in answer.values["topics"]):
            for one in topic["partitions"]:
                listed = ListedOffset(one["error_code"], one["offset"], one.get("leader_epoch", -1))
                found[TopicPartition(topic["name"], one["partition_index"])] = listed
        return found

    def fetch_raw(self, partition: TopicPartition, offset: int, max_bytes: int) -> FetchedBytes:
        """Fetch batches from an offset on as stored, including those of open and aborted transactions."""
        leader = self._leader(partition)
        if leader == NO_BROKER:
            raise TransientClusterError(f"{partition.topic}-{partition.partition} has no leader")
        topic_id = self._topics[partition.topic].topic_id
        request = _fetch_request(partition, topic_id, offset, max_bytes)
        values = self._ask(leader, _FETCH, request, _FETCH_BY_NAME if topic_id == ZERO_UUID else _VERSIONS[_FETCH])
        check_error(values.get("error_code", ErrorCode.NONE), partition.topic, "READ")
        parts = [one for topic in values["responses"] for one in topic["partitions"]]
        if not parts:
            # A throttling broker returns only the delay, which may be any number.
            time.sleep(min(max(values["throttle_time_ms"], 0), self._settings.request_timeout_ms) / 1000)
            raise TransientClusterError(f"{partition.topic}-{partition.partition}: throttled by the broker")
        (found,) = parts
        if found["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRangeError
        check_error(found["error_code"], partition.topic, "READ")
        return FetchedBytes(bytes(found["records"] or b""), found["high_watermark"], found.get("log_start_offset", -1))

    # ------------------------------------------------------------ groups

    def brokers(self) -> Sequence[int]:
        self._run(self._client.refresh())
        if not self._client.brokers:
            raise TransientClusterError(f"{self._settings.bootstrap_servers}: the cluster does not name its brokers")
        return sorted(self._client.brokers)

    def describe_configs(self, broker: int, names: Collection[str]) -> dict[str, str | None]:
        """Return the broker settings with these names; unknown ones are missing."""
        one = {"resource_type": _BROKER_RESOURCE, "resource_name": str(broker), "configuration_keys": list(names)}
        values = {"resources": [one], "include_synonyms": False, "include_documentation": False}
        (found,) = self._ask(broker, _DESCRIBE_CONFIGS, values)["results"]
        if found["error_code"] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise AccessError("cluster: this user lacks the permission DESCRIBE_CONFIGS")
        if found["error_code"] != ErrorCode.NONE:
            raise ClusterError(f"broker {broker}: its settings are unknown: {error_name(found['error_code'])}")
        return {one["name"]: one["value"] for one in found["configs"]}

    def lists_all_groups(self) -> bool:
        """Return whether lists of groups are complete: the user has DESCRIBE on the cluster."""
        values = self._ask(None, _DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": True, "endpoint_type": 1})
        return bool(values["cluster_authorized_operations"] & _DESCRIBE_BIT)

    def list_groups(self, broker: int) -> ListedGroups:
        values = self._ask(broker, _LIST_GROUPS, {"states_filter": [], "types_filter": []})
        groups = [
            ListedGroup(
                one["group_id"],
                (one.get("group_type") or CLASSIC).capitalize(),  # no type before Kafka 3.8
                one.get("group_state", ""),
                one["protocol_type"],
            )
            for one in values["groups"]
        ]
        return ListedGroups(values["error_code"], tuple(groups))

    def coordinators(self, group_ids: Collection[str]) -> dict[str, Coordinator]:
        """Return the coordinators of groups, which need not exist."""
        values = self._ask(None, _FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": list(group_ids)})
        return {one["key"]: Coordinator(one["error_code"], one["node_id"]) for one in values["coordinators"]}

    def describe_groups(self, broker: int, group_type: str, group_ids: Collection[str]) -> dict[str, DescribedGroup]:
        name = "groups" if group_type == CLASSIC else "group_ids"
        flags = dict.fromkeys(("include_authorized_operations", "include_topology_description"), False)
        values = self._ask(broker, DESCRIBED_BY[group_type], {name: list(group_ids), **flags})
        return {one["group_id"]: _described(group_type, one) for one in values["groups"]}

    def committed_offsets(self, broker: int, group_ids: Collection[str]) -> dict[str, GroupOffsets]:
        wanted = [{"group_id": one, "member_id": None, "member_epoch": -1, "topics": None} for one in group_ids]
        values = self._ask(broker, _OFFSET_FETCH, {"groups": wanted, "require_stable": False})
        return _offsets_by_group(values, "name", "committed_offset", "committed_leader_epoch")

    def share_offsets(self, broker: int, group_ids: Collection[str]) -> dict[str, GroupOffsets]:
        wanted = [{"group_id": one, "topics": None} for one in group_ids]
        values = self._ask(broker, _DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": wanted})
        return _offsets_by_group(values, "topic_name", "start_offset", "leader_epoch")

    # ------------------------------------------------------------ connections

    def _leader(self, partition: TopicPartition) -> int:
        topic = self._topics.get(partition.topic)
        if topic is None:
            topic = self.metadata([partition.topic]).topics.get(partition.topic)
        return NO_BROKER if topic is None else topic.leaders.get(partition.partition, NO_BROKER)

    def _ask(self, broker: int | None, api_key: int, values: Values, versions: tuple[int, int] | None = None) -> Values:
        """Return the response of a broker, or of any for None."""
        request = Request(api_key, versions or _VERSIONS[api_key], lambda version: values)
        sent = self._client.send_to_any(request) if broker is None else self._client.send(broker, request)
        return self._run(sent).values

    def _ask_all(self, requests: Mapping[int, Request]) -> dict[int, Answer]:
        """Send requests to several brokers at once; return the responses, without those of lost or late brokers.

        A broker is late :data:`SETTLE_MS` after the first response.
        """

        async def ask() -> dict[int, Answer]:
            brokers = {
                asyncio.ensure_future(self._client.send(broker, one)): broker for broker, one in requests.items()
            }
            done: set[asyncio.Future[Answer]] = set()
            late = set(brokers)
            while late and not any(one.exception() is None for one in done):
                finished, late = await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
                done |= finished
            if late:
                finished, late = await asyncio.wait(late, timeout=SETTLE_MS / 1000)
                done |= finished
            for one in late:
                one.cancel()
            errors = [error for one in done if (error := one.exception()) is not None]
            are_lost = all(isinstance(error, ConnectionLostError) for error in errors)
            if errors and (len(errors) == len(brokers) or not are_lost):
                raise errors[0]
            return {broker: one.result() for one, broker in brokers.items() if one in done and not one.exception()}

        return self._run(ask())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        where = self._settings.bootstrap_servers
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except LoginRefusedError as error:
            raise AccessError(f"{where}: the log-in is refused: {error}") from error
        except ConnectionLostError as error:
            raise TransientClusterError(f"{where}: {error}") from error
        except (IncompatibleBrokerError, ProtocolError) as error:
            raise ClusterError(f"{where}: {error}") from error


def _list_offsets(partitions: Collection[TopicPartition], end: LogEnd, is_stable: bool) -> Request:
    by_topic: dict[str, list[Values]] = defaultdict(list)
    for topic, partition in partitions:
        one = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": int(end)}
        by_topic[topic].append(one)
    topics = [{"name": topic, "partitions": some} for topic, some in by_topic.items()]
    values = {"replica_id": -1, "isolation_level": int(is_stable), "topics": topics, "timeout_ms": LIST_WAIT_MAX_MS}
    return Request(_LIST_OFFSETS, _VERSIONS[_LIST_OFFSETS], lambda version: values)


def _fetch_request(partition: TopicPartition, topic_id: UUID, offset: int, max_bytes: int) -> Values:
    one = {
        "partition": partition.partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    return {
        "replica_id": -1,
        "max_wait_ms": FETCH_WAIT_MAX_MS,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": partition.topic, "topic_id": topic_id, "partitions": [one]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def _described(group_type: str, one: Values) -> DescribedGroup:
    topology = one.get("topology") or {}
    return DescribedGroup(
        one["error_code"],
        one["group_state"],
        one.get("protocol_type", group_type.lower()),
        one.get("protocol_data", one.get("assignor_name")) or None,
        one.get("group_epoch"),
        one.get("assignment_epoch"),
        tuple(one["members"]),
        {sub["subtopology_id"]: _source_topics(sub) for sub in topology.get("subtopologies") or ()},
    )


def _source_topics(subtopology: Values) -> tuple[str, ...]:
    return (*subtopology["source_topics"], *(one["name"] for one in subtopology["repartition_source_topics"]))


def _offsets_by_group(values: Values, topic_name: str, offset: str, epoch: str) -> dict[str, GroupOffsets]:
    found: dict[str, GroupOffsets] = {}
    for group in values["groups"]:
        offsets = [
            CommittedOffset(
                topic[topic_name],
                one["partition_index"],
                one[offset],
                one[epoch],
                one.get("metadata") or "",
                one["error_code"],
                lag if (lag := one.get("lag", -1)) >= 0 else None,
            )
            for topic in group["topics"]
            for one in topic["partitions"]
        ]
        found[group["group_id"]] = GroupOffsets(group["error_code"], tuple(offsets))
    return found


FIRST_ANSWER_MS = 4_000
"""Time for the first connection of a run: a wrong port never responds."""


@contextmanager
def connection(address: ClusterAddress, *, begins_run: bool = False) -> Iterator[tuple[KafkaCluster, Patience]]:
    """Connect to a cluster within the context; yield it with its retry policy."""
    try:
        settings = address.settings()
        longest_ms = FIRST_ANSWER_MS if begins_run else settings.default_api_timeout_ms
        first = Patience(min(settings.default_api_timeout_ms, longest_ms), settings.retry_backoff_ms)
        cluster = first.try_for(lambda: KafkaCluster(settings))
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed; try: pip install 'groupcoord[live]'") from error
    patience = Patience(settings.default_api_timeout_ms, settings.retry_backoff_ms)
    try:
        yield cluster, patience
    finally:
        cluster.close()


def cluster_id_of(address: ClusterAddress) -> str:
    with connection(address, begins_run=True) as (cluster, patience):
        return patience.try_for(lambda: cluster.metadata([])).cluster_id
