"""Permissions: asked at every API as Kafka asks its authorizer, with its error shapes."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import pytest

from groupcoord import Config, ErrorCode, GroupCoordinator, ManualClock, Operation, ResourceType
from groupcoord.core.router.authorization import CLUSTER
from groupcoord.messages import (
    AlteredShareTopic,
    AlterShareGroupOffsets,
    CoordinatorType,
    DeletedGroup,
    DeleteGroups,
    DeleteShareGroupOffsets,
    DescribedShareTopic,
    DescribeGroups,
    DescribeShareGroupOffsets,
    FindCoordinator,
    GroupToFetch,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetToCommit,
    PartitionResult,
    ShareGroupToDescribe,
    ShareOffsetToAlter,
    ShareTopicToAlter,
    ShareTopicToDescribe,
    ShareTopicToForget,
    SyncGroup,
    SyncGroupResponse,
    TopicResult,
    TopicToCommit,
    TopicToDelete,
    TopicToFetch,
    TxnOffsetCommit,
)
from groupcoord.testing.topics import Topics
from tests.core.denials import Rules

NO_ID = UUID(int=0)
GROUP_FAILED = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def coordinator(rules: Rules) -> GroupCoordinator:
    coordinator = GroupCoordinator(
        config=Config(group_initial_rebalance_delay_ms=0), clock=ManualClock(), authorize=rules
    )
    coordinator.load_all()
    offsets = (OffsetToCommit(0, 5),)
    coordinator.call(OffsetCommit("g", (TopicToCommit("open", offsets), TopicToCommit("secret", offsets))))
    return coordinator


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (JoinGroup("g", "m", protocols=(JoinProtocol("p", b""),)), JoinGroupResponse(GROUP_FAILED)),
        (JoinGroup("g", "m", session_timeout_ms=-1), JoinGroupResponse(GROUP_FAILED)),
        (SyncGroup("g", 1, "m"), SyncGroupResponse(GROUP_FAILED)),
        (Heartbeat("g", 1, "m"), HeartbeatResponse(GROUP_FAILED)),
        (LeaveGroup("g", (LeavingMember("m"),)), LeaveGroupResponse(GROUP_FAILED)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_members_need_to_read_the_group(
    coordinator: GroupCoordinator, rules: Rules, request_: JoinGroup, response: JoinGroupResponse
) -> None:
    """Without READ on the group, member requests are refused before anything else; no member id is echoed."""
    rules.deny(Operation.READ, ResourceType.GROUP, "g")
    assert coordinator.call(request_) == response


def test_the_group_id_is_checked_after_the_permission(coordinator: GroupCoordinator, rules: Rules) -> None:
    """An empty group id that may not be read is an authorization error, else it is invalid."""
    assert coordinator.call(Heartbeat("", 1, "m")).error_code is ErrorCode.INVALID_GROUP_ID
    rules.deny(Operation.READ, ResourceType.GROUP, "")
    assert coordinator.call(Heartbeat("", 1, "m")).error_code is GROUP_FAILED


def test_the_principal_is_passed_on(coordinator: GroupCoordinator, rules: Rules) -> None:
    """The hook sees the principal that came with the request."""
    coordinator.call(Heartbeat("g", 1, "m"), "User:alice")
    assert "User:alice" in rules.principals


def test_commit_needs_to_read_the_group(coordinator: GroupCoordinator, rules: Rules) -> None:
    """Without READ on the group, every partition of a commit is refused, unknown topics too."""
    rules.deny(Operation.READ, ResourceType.GROUP, "g")
    topics = (TopicToCommit("open", (OffsetToCommit(0, 1), OffsetToCommit(-1, 1))),)
    results = (PartitionResult(0, GROUP_FAILED), PartitionResult(-1, GROUP_FAILED))
    assert coordinator.call(OffsetCommit("g", topics)).topics == (TopicResult("open", NO_ID, results),)


def test_commit_needs_to_read_each_topic(coordinator: GroupCoordinator, rules: Rules) -> None:
    """Topics without READ are refused on their own, before the rest of the answer."""
    rules.deny(Operation.READ, ResourceType.TOPIC, "secret")
    offsets = (OffsetToCommit(0, 9),)
    response = coordinator.call(OffsetCommit("g", (TopicToCommit("open", offsets), TopicToCommit("secret", offsets))))
    assert response.topics == (
        TopicResult("secret", NO_ID, (PartitionResult(0, TOPIC_FAILED),)),
        TopicResult("open", NO_ID, (PartitionResult(0, ErrorCode.NONE),)),
    )


@pytest.mark.parametrize(
    ("operation", "resource_type", "name", "error_code"),
    [
        (
            Operation.WRITE,
            ResourceType.TRANSACTIONAL_ID,
            "tx",
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (Operation.READ, ResourceType.GROUP, "g", GROUP_FAILED),
        (Operation.READ, ResourceType.TOPIC, "open", TOPIC_FAILED),
    ],
)
def test_transactional_commit_needs_all_three(
    coordinator: GroupCoordinator,
    rules: Rules,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    error_code: ErrorCode,
) -> None:
    """WRITE on the transactional id, READ on the group and READ on the topic, in this order."""
    rules.deny(operation, resource_type, name)
    topics = (TopicToCommit("open", (OffsetToCommit(0, 1),)),)
    response = coordinator.call(TxnOffsetCommit("g", topics, 1, 0, "tx"))
    assert response.topics == (TopicResult("open", NO_ID, (PartitionResult(0, error_code),)),)


def test_fetch_needs_to_describe_the_group(coordinator: GroupCoordinator, rules: Rules) -> None:
    """Without DESCRIBE on a group its fetch is refused as a whole, other groups' are not."""
    rules.deny(Operation.DESCRIBE, ResourceType.GROUP, "g")
    groups = coordinator.call(OffsetFetch((GroupToFetch("g"), GroupToFetch("other")))).groups
    assert [(group.group_id, group.error_code, group.topics) for group in groups] == [
        ("g", GROUP_FAILED, ()),
        ("other", ErrorCode.NONE, ()),
    ]


def test_fetch_of_named_topics_says_which_are_denied(coordinator: GroupCoordinator, rules: Rules) -> None:
    """Named topics without DESCRIBE come last, refused and without an offset."""
    rules.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    wanted = GroupToFetch("g", (TopicToFetch("secret", (0,)), TopicToFetch("open", (0,))))
    (group,) = coordinator.call(OffsetFetch((wanted,))).groups
    found = [(t.name, p.committed_offset, p.error_code) for t in group.topics for p in t.partitions]
    assert found == [("open", 5, ErrorCode.NONE), ("secret", -1, TOPIC_FAILED)]


def test_fetch_of_everything_hides_what_is_denied(coordinator: GroupCoordinator, rules: Rules) -> None:
    """Without names, topics without DESCRIBE are left out silently."""
    rules.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    (group,) = coordinator.call(OffsetFetch((GroupToFetch("g"),))).groups
    assert [topic.name for topic in group.topics] == ["open"]


def test_offset_delete_needs_to_delete_the_group(coordinator: GroupCoordinator, rules: Rules) -> None:
    """Without DELETE on the group the whole deletion is refused."""
    rules.deny(Operation.DELETE, ResourceType.GROUP, "g")
    assert coordinator.call(OffsetDelete("g", (TopicToDelete("open", (0,)),))) == OffsetDeleteResponse(GROUP_FAILED)


def test_offset_delete_needs_to_read_each_topic(coordinator: GroupCoordinator, rules: Rules) -> None:
    """Topics without READ are refused on their own."""
    rules.deny(Operation.READ, ResourceType.TOPIC, "secret")
    topics = (TopicToDelete("open", (0,)), TopicToDelete("secret", (0,)))
    assert coordinator.call(OffsetDelete("g", topics)) == OffsetDeleteResponse(
        ErrorCode.NONE,
        (
            TopicResult("secret", NO_ID, (PartitionResult(0, TOPIC_FAILED),)),
            TopicResult("open", NO_ID, (PartitionResult(0, ErrorCode.NONE),)),
        ),
    )


def test_describe_lists_denied_groups_first(coordinator: GroupCoordinator, rules: Rules) -> None:
    """Without DESCRIBE a group is answered without its state, before all others."""
    rules.deny(Operation.DESCRIBE, ResourceType.GROUP, "denied")
    groups = coordinator.call(DescribeGroups(("g", "denied"))).groups
    assert [(group.group_id, group.error_code, group.group_state) for group in groups] == [
        ("denied", GROUP_FAILED, ""),
        ("g", ErrorCode.NONE, "Empty"),
    ]


def test_describe_reports_what_is_allowed(coordinator: GroupCoordinator, rules: Rules) -> None:
    """Authorized operations are those that the hook allows, a bit for each."""
    rules.deny(Operation.DELETE, ResourceType.GROUP, "g")
    (group,) = coordinator.call(DescribeGroups(("g",), include_authorized_operations=True)).groups
    assert group.authorized_operations == 1 << 3 | 1 << 8 | 1 << 10 | 1 << 11


def test_list_shows_all_to_who_may_describe_the_cluster(coordinator: GroupCoordinator, rules: Rules) -> None:
    """DESCRIBE on the cluster shows every group; without it only those that may be described."""
    rules.deny(Operation.DESCRIBE, ResourceType.GROUP, "g")
    assert [group.group_id for group in coordinator.call(ListGroups()).groups] == ["g"]
    rules.denied.add((Operation.DESCRIBE, CLUSTER))
    assert coordinator.call(ListGroups()).groups == ()


def test_delete_needs_to_delete_each_group(coordinator: GroupCoordinator, rules: Rules) -> None:
    """Without DELETE on a group it stays, and others are deleted."""
    rules.deny(Operation.DELETE, ResourceType.GROUP, "g")
    results = coordinator.call(DeleteGroups(("g", "absent"))).results
    assert results == (DeletedGroup("g", GROUP_FAILED), DeletedGroup("absent", ErrorCode.GROUP_ID_NOT_FOUND))


@pytest.mark.parametrize(
    ("key_type", "resource_type", "error_code"),
    [
        (CoordinatorType.GROUP, ResourceType.GROUP, GROUP_FAILED),
        (
            CoordinatorType.TRANSACTION,
            ResourceType.TRANSACTIONAL_ID,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_find_coordinator_needs_to_describe_the_key(
    coordinator: GroupCoordinator,
    rules: Rules,
    key_type: CoordinatorType,
    resource_type: ResourceType,
    error_code: ErrorCode,
) -> None:
    """Without DESCRIBE on a key nobody is told its coordinator; other keys are answered."""
    rules.deny(Operation.DESCRIBE, resource_type, "denied")
    found = coordinator.call(FindCoordinator(key_type, ("denied", "other"))).coordinators
    assert [(entry.error_code, entry.node.node_id) for entry in found] == [(error_code, -1), (ErrorCode.NONE, 1)]


@pytest.mark.parametrize(
    ("supports_share_keys", "error_code"),
    [(True, ErrorCode.CLUSTER_AUTHORIZATION_FAILED), (False, ErrorCode.INVALID_REQUEST)],
)
def test_find_coordinator_of_share_groups(
    coordinator: GroupCoordinator, rules: Rules, supports_share_keys: bool, error_code: ErrorCode
) -> None:
    """They are for brokers: CLUSTER_ACTION is asked for, by those versions of the request that know them."""
    rules.denied.add((Operation.CLUSTER_ACTION, CLUSTER))
    request = FindCoordinator(CoordinatorType.SHARE, ("g:AAAAAAAAAAAAAAAAAAAAAQ:0",), supports_share_keys)
    assert coordinator.call(request).coordinators[0].error_code is error_code


def errors(topics: Iterable[DescribedShareTopic | AlteredShareTopic]) -> dict[str, list[ErrorCode]]:
    """Return the errors of the partitions of each topic."""
    return {topic.topic_name: [each.error_code for each in topic.partitions] for topic in topics}


def test_share_offsets_need_permissions_on_each_topic(rules: Rules) -> None:
    """Offsets of a share group need DESCRIBE on a topic, and their change READ; other topics are answered."""
    topics = Topics(open=1, secret=1)
    coordinator = GroupCoordinator(clock=ManualClock(), topics=topics, authorize=rules)
    coordinator.load_all()
    rules.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    rules.deny(Operation.READ, ResourceType.TOPIC, "secret")
    failed = {"open": [ErrorCode.NONE], "secret": [TOPIC_FAILED]}

    altered = [ShareTopicToAlter(name, (ShareOffsetToAlter(0, 5),)) for name in ("secret", "open")]
    assert errors(coordinator.call(AlterShareGroupOffsets("s", tuple(altered))).responses) == failed
    wanted = ShareGroupToDescribe("s", tuple(ShareTopicToDescribe(name, (0,)) for name in ("secret", "open")))
    described = coordinator.call(DescribeShareGroupOffsets((wanted,))).groups[0].topics
    assert errors(described) == failed
    everything = coordinator.call(DescribeShareGroupOffsets((ShareGroupToDescribe("s"),))).groups[0].topics
    assert errors(everything) == {"open": [ErrorCode.NONE]}
    forgotten = [ShareTopicToForget(name) for name in ("secret", "open")]
    deleted = coordinator.call(DeleteShareGroupOffsets("s", tuple(forgotten))).responses
    assert {topic.topic_name: topic.error_code for topic in deleted} == {name: code for name, (code,) in failed.items()}
