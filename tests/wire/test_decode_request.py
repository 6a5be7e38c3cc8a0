"""What a client writes with kio is what the adapter reads, for every API and version."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages import (
    DeleteGroups,
    DescribeGroups,
    FindCoordinator,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    SyncAssignment,
    SyncGroup,
    SyncGroupResponse,
    TopicToCommit,
    TopicToFetch,
)
from groupcoord.errors import ErrorCode
from groupcoord.wire import Answered, RequestHeader, decode_request
from groupcoord.wire.broker_messages import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitions,
    CreatePartitionsTopic,
    CreateTopics,
    DeleteTopics,
    Fetch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsTopic,
    Metadata,
    TopicReference,
)
from groupcoord.wire.feature_messages import ApiVersions
from tests.samples import portion, sampled
from tests.tables import as_one_test
from tests.wire.kio_client import CORRELATION_ID, request_frame, versions_of
from tests.wire.sample_requests import BODIES, OTHER_TOPIC_ID, TOPIC_ID

HOST = "/127.0.0.1"
NO_ID = UUID(int=0)


def decode(api_key: int, version: int, **changes: Any) -> Any:
    return decode_request(request_frame(api_key, version, BODIES[api_key] | changes), HOST)[1]


@as_one_test
@pytest.mark.parametrize("api_key", BODIES)
def test_header(api_key: int) -> None:
    """The header is read in every version of every API."""
    for version in versions_of(api_key):
        header, _ = decode_request(request_frame(api_key, version, BODIES[api_key]), HOST)
        assert (header.api_key, header.api_version) == (api_key, version)
        assert (header.correlation_id, header.client_id) == (CORRELATION_ID, "client")


@pytest.mark.parametrize("version", [0, 4])
def test_null_client_id(version: int) -> None:
    """A null client id is read as the empty one."""
    header, request = decode_request(request_frame(12, version, BODIES[12], client_id=None), HOST)
    assert header == RequestHeader(12, version, CORRELATION_ID, "")
    assert isinstance(request, Heartbeat)
    assert request.group_id == "group"


@as_one_test
@pytest.mark.parametrize("version", versions_of(11))
def test_join_group(version: int) -> None:
    """Before version 1 the session time-out stands for the rebalance time-out; flags tell what the version can do."""
    assert decode(11, version) == JoinGroup(
        group_id="group",
        member_id="member",
        protocol_type="consumer",
        protocols=(JoinProtocol("range", b"\x00\x01"), JoinProtocol("sticky", b"")),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=-5 if version >= 1 else 10_000,
        group_instance_id="instance" if version >= 5 else None,
        client_id="client",
        client_host=HOST,
        reason="why not" if version >= 8 else None,
        requires_known_member_id=version >= 4,
        supports_skip_assignment=version >= 9,
    )


@as_one_test
@pytest.mark.parametrize("version", versions_of(14))
def test_sync_group(version: int) -> None:
    """Protocol type and name are None where the version has none."""
    assert decode(14, version) == SyncGroup(
        "group",
        12,
        "member",
        "instance" if version >= 3 else None,
        "consumer" if version >= 5 else None,
        "range" if version >= 5 else None,
        (SyncAssignment("member", b"\x01"), SyncAssignment("other", b"")),
    )


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_sync_group_without_its_protocol(missing: str) -> None:
    """From version 5 on both have to be named, before anything else is looked at."""
    refused = Answered(SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    assert decode(14, 5, group_id="", **{missing: None}) == refused


@pytest.mark.parametrize("version", versions_of(12))
def test_heartbeat(version: int) -> None:
    """The instance id comes with version 3."""
    assert decode(12, version) == Heartbeat("group", 12, "member", "instance" if version >= 3 else None)
    assert decode(12, version, group_instance_id=None) == Heartbeat("group", 12, "member", None)


@as_one_test
@pytest.mark.parametrize("version", versions_of(13))
def test_leave_group(version: int) -> None:
    """Up to version 2 one member leaves; then a batch, in version 5 with reasons."""
    if version <= 2:
        expected: tuple[LeavingMember, ...] = (LeavingMember("member"),)
    else:
        expected = (
            LeavingMember("member", None, "bye" if version >= 5 else None),
            LeavingMember("", "instance", None),
        )
    assert decode(13, version) == LeaveGroup("group", expected)


@as_one_test
@pytest.mark.parametrize("version", versions_of(15))
def test_describe_groups(version: int) -> None:
    """Authorized operations can be asked for from version 3."""
    assert decode(15, version) == DescribeGroups(("group", ""), version >= 3)


@as_one_test
@pytest.mark.parametrize("version", versions_of(16))
def test_list_groups(version: int) -> None:
    """States filter from version 4, types filter from version 5."""
    states = ("Stable",) if version >= 4 else ()
    assert decode(16, version) == ListGroups(states, ("classic", "consumer") if version >= 5 else ())


@pytest.mark.parametrize("version", versions_of(42))
def test_delete_groups(version: int) -> None:
    """The names, the empty one too."""
    assert decode(42, version) == DeleteGroups(("group", ""))


@as_one_test
@pytest.mark.parametrize("version", versions_of(10))
def test_find_coordinator(version: int) -> None:
    """One key up to version 3, then several; share keys are known to version 6."""
    keys = ("group", "other") if version >= 4 else ("group",)
    assert decode(10, version) == FindCoordinator(0, keys, version >= 6)
    assert decode(10, version, key_type=-3).key_type == (-3 if version >= 1 else 0)


@as_one_test
@pytest.mark.parametrize("version", versions_of(8))
def test_offset_commit(version: int) -> None:
    """Every field of every version, null and empty metadata told apart."""

    def topic(name: str, topic_id: Any, *partitions: OffsetToCommit) -> TopicToCommit:
        return TopicToCommit(None, partitions, topic_id) if version >= 10 else TopicToCommit(name, partitions)

    def partition(index: int, offset: int, leader_epoch: int, metadata: str | None) -> OffsetToCommit:
        return OffsetToCommit(index, offset, leader_epoch if version >= 6 else -1, metadata)

    assert decode(8, version) == OffsetCommit(
        "group",
        (
            topic(
                "orders",
                TOPIC_ID,
                partition(3, 2**40, 5, "größe"),
                partition(4, 0, -1, None),
                partition(5, -1, 0, ""),
            ),
            topic("bills", OTHER_TOPIC_ID),
        ),
        12,
        "member",
        "instance" if version >= 7 else None,
        86_400_000 if version <= 4 else -1,
        supports_member_epoch=version >= 9,
    )


@as_one_test
@pytest.mark.parametrize("version", versions_of(8))
def test_offset_commit_without_instance(version: int) -> None:
    """A null instance id is None."""
    assert decode(8, version, group_instance_id=None).group_instance_id is None


@sampled
@as_one_test
@pytest.mark.parametrize("count", portion([257, 1_000, 256, 255, 2, 1, 0]))
@pytest.mark.parametrize("version", versions_of(8))
def test_offset_commit_of_any_size(version: int, count: int) -> None:
    """However many there are, with metadata alike, of other lengths, or null, which is read as none."""

    def partition(index: int, metadata: str | None = "") -> dict[str, Any]:
        return {
            "partition_index": index,
            "committed_offset": 2**40 + index,
            "committed_leader_epoch": index,
            "committed_metadata": metadata,
        }

    def offset(index: int, metadata: str | None = "") -> OffsetToCommit:
        return OffsetToCommit(index, 2**40 + index, index if version >= 6 else -1, metadata)

    def commit(partitions: list[dict[str, Any]]) -> Any:
        topics = [{"name": "orders", "topic_id": TOPIC_ID, "partitions": partitions} for _ in range(2)]
        return decode(8, version, topics=topics)

    expected = tuple(map(offset, range(count)))
    assert [topic.partitions for topic in commit([*map(partition, range(count))]).topics] == [expected] * 2
    for metadata in ("m", None, "größe", "m" * 126, "m" * 127, "m" * 300):
        last = [topic.partitions for topic in commit([*map(partition, range(count)), partition(7, metadata)]).topics]
        assert last == [(*expected, offset(7, metadata or ""))] * 2
        alike = [topic.partitions for topic in commit([partition(index, metadata) for index in range(count)]).topics]
        assert alike == [tuple([offset(index, metadata or "") for index in range(count)])] * 2


@as_one_test
@pytest.mark.parametrize("version", versions_of(9))
def test_offset_fetch(version: int) -> None:
    """One group up to version 7, several after; null topics mean all; topic ids in version 10."""

    def topic(name: str, topic_id: Any, *indexes: int) -> TopicToFetch:
        return TopicToFetch(None, indexes, topic_id) if version >= 10 else TopicToFetch(name, indexes)

    topics = (topic("orders", TOPIC_ID, 3, 0), topic("bills", OTHER_TOPIC_ID))
    if version <= 7:
        groups: tuple[GroupToFetch, ...] = (GroupToFetch("group", topics),)
    elif version == 8:
        groups = (GroupToFetch("group", topics), GroupToFetch("", None))
    else:
        groups = (GroupToFetch("group", topics, "member", 6), GroupToFetch("", None))
    assert decode(9, version) == OffsetFetch(groups, version >= 7, version >= 10)
    assert not decode(9, version, require_stable=False).require_stable


@as_one_test
@pytest.mark.parametrize("version", range(2, 8))
def test_offset_fetch_of_everything(version: int) -> None:
    """Null topics of a single group mean all of its topics."""
    assert decode(9, version, topics=None).groups == (GroupToFetch("group", None),)


@pytest.mark.parametrize("version", versions_of(18))
def test_api_versions(version: int) -> None:
    """The client's software is named from version 3."""
    assert decode(18, version) == (ApiVersions("some-client", "1.2.3") if version >= 3 else ApiVersions())


@as_one_test
@pytest.mark.parametrize("version", versions_of(3))
def test_metadata(version: int) -> None:
    """What the version lacks is at its default."""
    assert decode(3, version) == Metadata(
        (TopicReference("orders"), TopicReference("bills")),
        version <= 3,
        8 <= version <= 10,
        version >= 8,
    )
    if version >= 12:
        by_id = [{"name": None, "topic_id": TOPIC_ID}]
        assert decode(3, version, topics=by_id).topics == (TopicReference(None, TOPIC_ID),)
        nothing = {"name": None, "topic_id": NO_ID}
        assert decode(3, version, topics=[nothing, *by_id]).topics[1] == TopicReference(None, TOPIC_ID)


def test_metadata_of_everything() -> None:
    """All topics are an empty list in version 0 and null afterwards, where an empty list is none."""
    assert decode(3, 0, topics=[]).topics is None
    for version in versions_of(3)[1:]:
        assert decode(3, version, topics=None).topics is None
        assert decode(3, version, topics=[]).topics == ()


@as_one_test
@pytest.mark.parametrize("version", versions_of(19))
def test_create_topics(version: int) -> None:
    """All versions have the same fields."""
    topic = CreatableTopic(
        "orders",
        -1,
        1,
        (CreatableReplicaAssignment(0, (1, 2)),),
        (CreatableTopicConfig("retention.ms", "7"), CreatableTopicConfig("cleanup.policy", None)),
    )
    assert decode(19, version) == CreateTopics((topic,), 1234, True)


@pytest.mark.parametrize("version", versions_of(37))
def test_create_partitions(version: int) -> None:
    """All versions have the same fields; null assignments are None."""
    topics = (CreatePartitionsTopic("orders", 6, ((1,), (2,))), CreatePartitionsTopic("bills", 7, None))
    assert decode(37, version) == CreatePartitions(topics, 1234, True)


@as_one_test
@pytest.mark.parametrize("version", versions_of(20))
def test_delete_topics(version: int) -> None:
    """Names up to version 5, then names or ids."""
    second = TopicReference(None, TOPIC_ID) if version >= 6 else TopicReference("bills")
    assert decode(20, version) == DeleteTopics((TopicReference("orders"), second), 1234)


@as_one_test
@pytest.mark.parametrize("version", versions_of(2))
def test_list_offsets(version: int) -> None:
    """What the version lacks is at its default."""
    partition = ListOffsetsPartition(3, -2, 7 if version >= 4 else -1)
    topics = (ListOffsetsTopic("orders", (partition,)),)
    lowest = {7: -3, 8: -4, 9: -5, 10: -5, 11: -6}.get(version, -2)
    assert decode(2, version) == ListOffsets(topics, -1, int(version >= 2), 4000 if version >= 10 else 0, lowest)


@as_one_test
@pytest.mark.parametrize("version", versions_of(1))
def test_fetch(version: int) -> None:
    """Names up to version 12, then ids; the follower's fields of newer versions are passed over."""
    by_id = version >= 13
    partition = FetchPartition(
        4,
        2**40,
        1000,
        9 if version >= 9 else -1,
        8 if version >= 12 else -1,
        6 if version >= 5 else -1,
    )
    assert decode(1, version) == Fetch(
        (FetchTopic(None if by_id else "orders", TOPIC_ID if by_id else ZERO_UUID, (partition,)),),
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50_000,
        isolation_level=1,
        session_id=77 if version >= 7 else 0,
        session_epoch=3 if version >= 7 else -1,
        forgotten_topics=(
            (ForgottenTopic(None if by_id else "bills", OTHER_TOPIC_ID if by_id else ZERO_UUID, (1, 2)),)
            if version >= 7
            else ()
        ),
        cluster_id="cluster" if version >= 12 else None,
        rack_id="rack" if version >= 11 else "",
    )


@as_one_test
@pytest.mark.parametrize("version", versions_of(1))
def test_what_stands_behind_a_fetch(version: int) -> None:
    """Each of what comes behind the topics is read, whichever of it there is, or none."""
    forgotten = {"topic": "bills", "topic_id": OTHER_TOPIC_ID, "partitions": [1]}
    for topics in ([], [forgotten]):
        for rack_id in ("", "r"):
            for cluster_id in (None, "c"):
                request = decode(1, version, forgotten_topics_data=topics, rack_id=rack_id, cluster_id=cluster_id)
                assert len(request.forgotten_topics) == (len(topics) if version >= 7 else 0)
                assert request.rack_id == (rack_id if version >= 11 else "")
                assert request.cluster_id == (cluster_id if version >= 12 else None)


def test_fetch_of_a_follower() -> None:
    """The replica id is a plain field up to version 14 and a tagged one after."""
    for version in versions_of(1):
        state = {"replica_id": 5, "replica_epoch": 1}
        assert decode(1, version, replica_id=5, replica_state=state).replica_id == 5


def test_memoryview_frame() -> None:
    """A frame may be a view into a larger buffer."""
    frame = request_frame(12, 4, BODIES[12])
    view = memoryview(b"abc" + frame + b"def")[3:-3]
    assert decode_request(view, HOST) == decode_request(frame, HOST)
