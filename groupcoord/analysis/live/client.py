"""Kafka cluster as the live tools query it: metadata, offsets, records, groups and their commits.

The event loop of its connections runs in a thread, so callers may run their own, as in a notebook.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID

from groupcoord.analysis.errors import (
    AccessError,
    ClusterError,
    InputError,
    TransientClusterError,
    check_error,
    error_name,
)
from groupcoord.analysis.live.cluster import (
    NO_BROKER,
    SETTLE_MS,
    ClusterMetadata,
    Coordinator,
    DescribedGroup,
    FetchedBytes,
    GroupOffsets,
    ListedGroups,
    ListedOffset,
    LiveCluster,
    LogEnd,
    OffsetOutOfRangeError,
    Patience,
    TopicMetadata,
    cluster_request,
    committed_offsets,
    coordinators_request,
    describe_request,
    described_groups,
    found_coordinators,
    list_groups_request,
    listed_groups,
    may_describe_cluster,
    offsets_request,
    share_offsets,
    share_offsets_request,
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

FETCH_WAIT_MAX_MS = 500
"""Time that a broker may wait for records."""

LIST_WAIT_MAX_MS = 30_000
"""Time that a broker may search tiered storage for an offset."""

_FETCH, _LIST_OFFSETS, _METADATA, _DESCRIBE_CONFIGS = 1, 2, 3, 32
_VERSIONS = {_FETCH: (4, 17), _LIST_OFFSETS: (2, 10), _METADATA: (4, 13), _DESCRIBE_CONFIGS: (1, 4)}
_TOPIC_IDS_FROM = {_FETCH: 13, _METADATA: 10}
_BROKER_RESOURCE = 4

T = TypeVar("T")


def _unlisted(error_code: ErrorCode) -> ListedOffset:
    return ListedOffset(error_code, -1, -1)


class KafkaCluster:
    """A :class:`groupcoord.analysis.live.cluster.LiveCluster` over the network."""

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
        wanted = None if topics is None else [{"name": name, "topic_id": ZERO_UUID} for name in topics]
        flags = (
            "allow_auto_topic_creation",
            "include_cluster_authorized_operations",
            "include_topic_authorized_operations",
        )
        values = {"topics": wanted, **dict.fromkeys(flags, False)}
        answer = self._ask_any(Request(_METADATA, _VERSIONS[_METADATA], lambda version: values))
        self._client.update(answer.values)
        found, errors = {}, {}
        for topic in answer.values["topics"]:
            name = topic["name"]
            if topic["error_code"] != ErrorCode.NONE:
                errors[name] = topic["error_code"]
                self._topics.pop(name, None)
                continue
            leaders = {one["partition_index"]: one["leader_id"] for one in topic["partitions"]}
            found[name] = TopicMetadata(name, topic.get("topic_id") or ZERO_UUID, leaders)
        self._topics |= found
        return ClusterMetadata(answer.values["cluster_id"] or "", found, errors)

    def list_offsets(
        self, partitions: Collection[TopicPartition], end: LogEnd, *, is_stable: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in partitions:
            by_leader[self._leader(partition)].append(partition)
        found = {one: _unlisted(ErrorCode.LEADER_NOT_AVAILABLE) for one in by_leader.pop(NO_BROKER, ())}
        answers = self._ask_all({leader: _list_offsets(led, end, is_stable) for leader, led in by_leader.items()})
        for leader in by_leader.keys() - answers.keys():
            found |= {one: _unlisted(ErrorCode.NETWORK_EXCEPTION) for one in by_leader[leader]}
        for topic in (topic for answer in answers.values() for topic in answer.values["topics"]):
            for one in topic["partitions"]:
                listed = ListedOffset(one["error_code"], one["offset"], one.get("leader_epoch", -1))
                found[TopicPartition(topic["name"], one["partition_index"])] = listed
        return found

    def fetch_raw(self, partition: TopicPartition, offset: int, max_bytes: int) -> FetchedBytes:
        leader = self._leader(partition)
        if leader == NO_BROKER:
            raise TransientClusterError(f"{partition.topic}-{partition.partition} has no leader")
        topic_id = self._topics[partition.topic].topic_id
        answer = self._ask(leader, _fetch(partition, topic_id, offset, max_bytes))
        values = answer.values
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
        (found,) = self._ask(broker, _describe_configs(broker, names)).values["results"]
        if found["error_code"] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise AccessError("cluster: this user lacks the permission DESCRIBE_CONFIGS")
        if found["error_code"] != ErrorCode.NONE:
            raise ClusterError(f"broker {broker}: its settings are unknown: {error_name(found['error_code'])}")
        return {one["name"]: one["value"] for one in found["configs"]}

    def is_told_all_groups(self) -> bool:
        return may_describe_cluster(self._ask_any(cluster_request()).values)

    def list_groups(self, broker: int) -> ListedGroups:
        return listed_groups(self._ask(broker, list_groups_request()).values)

    def coordinators(self, group_ids: Collection[str]) -> dict[str, Coordinator]:
        return found_coordinators(self._ask_any(coordinators_request(group_ids)).values)

    def describe_groups(self, broker: int, group_type: str, group_ids: Collection[str]) -> dict[str, DescribedGroup]:
        return described_groups(group_type, self._ask(broker, describe_request(group_type, group_ids)).values)

    def committed_offsets(self, broker: int, group_ids: Collection[str]) -> dict[str, GroupOffsets]:
        return committed_offsets(self._ask(broker, offsets_request(group_ids)).values)

    def share_offsets(self, broker: int, group_ids: Collection[str]) -> dict[str, GroupOffsets]:
        return share_offsets(self._ask(broker, share_offsets_request(group_ids)).values)

    # ------------------------------------------------------------ connections

    def _leader(self, partition: TopicPartition) -> int:
        topic = self._topics.get(partition.topic)
        if topic is None:
            topic = self.metadata([partition.topic]).topics.get(partition.topic)
        return NO_BROKER if topic is None else topic.leaders.get(partition.partition, NO_BROKER)

    def _ask(self, broker: int, request: Request) -> Answer:
        return self._run(self._client.send(broker, request))

    def _ask_any(self, request: Request) -> Answer:
        return self._run(self._client.send_to_any(request))

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


def _describe_configs(broker: int, names: Collection[str]) -> Request:
    one = {"resource_type": _BROKER_RESOURCE, "resource_name": str(broker), "configuration_keys": list(names)}
    values = {"resources": [one], "include_synonyms": False, "include_documentation": False}
    return Request(_DESCRIBE_CONFIGS, _VERSIONS[_DESCRIBE_CONFIGS], lambda version: values)


def _fetch(partition: TopicPartition, topic_id: UUID, offset: int, max_bytes: int) -> Request:
    one = {
        "partition": partition.partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    values = {
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
    oldest, newest = _VERSIONS[_FETCH]
    has_id = topic_id != ZERO_UUID
    return Request(_FETCH, (oldest, newest if has_id else _TOPIC_IDS_FROM[_FETCH] - 1), lambda version: values)


FIRST_ANSWER_MS = 4_000
"""Time for the first connection of a run: a wrong port never responds."""


@contextmanager
def connection(address: ClusterAddress, *, begins_run: bool = False) -> Iterator[tuple[LiveCluster, Patience]]:
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
