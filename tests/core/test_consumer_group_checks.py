"""Checks of a consumer group's heartbeats and descriptions before the group is asked (KIP-848)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from attrs import evolve

from groupcoord import Config, ErrorCode, GroupCoordinator, ManualClock, Operation, ResourceType
from groupcoord.config import GroupType
from groupcoord.config.group_settings import ConsumerGroupSettings
from groupcoord.core.router.authorization import Permissions
from groupcoord.core.router.modern_groups import DESCRIBED_CONSUMER_GROUPS
from groupcoord.core.router.split_requests import with_operations
from groupcoord.messages import (
    AUTHORIZED_OPERATIONS_OMITTED,
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedPartitions,
    TopicPartitions,
)
from tests.core.denials import Rules

PARTITIONS = (TopicPartitions(UUID(int=1), (0,)),)
JOIN = ConsumerGroupHeartbeat(
    "g", "m", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=("open", "secret"), topic_partitions=()
)
MALFORMED = evolve(JOIN, member_id="")


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def coordinator(rules: Rules) -> GroupCoordinator:
    """A coordinator of which only what comes before a group is asked."""
    coordinator = GroupCoordinator(clock=ManualClock(), authorize=rules)
    coordinator.load_all()
    return coordinator


# ---------------------------------------------------------------- the switch


def test_what_the_configuration_leaves_out_is_not_supported(rules: Rules) -> None:
    """UNSUPPORTED_VERSION without a message comes before permissions and form, for each group that is named."""
    config = Config(group_coordinator_rebalance_protocols=(GroupType.CLASSIC,))
    classic = GroupCoordinator(config=config, authorize=rules)
    classic.load_all()
    rules.deny(Operation.READ, ResourceType.GROUP, "g")
    for request in (JOIN, MALFORMED):
        assert classic.call(request) == ConsumerGroupHeartbeatResponse(ErrorCode.UNSUPPORTED_VERSION)
    refused = classic.call(ConsumerGroupDescribe(("g", None, "g"), include_authorized_operations=True))
    assert refused.groups == tuple(
        DescribedConsumerGroup(group_id, ErrorCode.UNSUPPORTED_VERSION) for group_id in ("g", "", "g")
    )


# ---------------------------------------------------------------- heartbeats


def test_a_heartbeat_needs_to_read_the_group(coordinator: GroupCoordinator, rules: Rules) -> None:
    """Without READ on the group, nothing else is looked at."""
    rules.deny(Operation.READ, ResourceType.GROUP, "g")
    rules.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    for request in (JOIN, MALFORMED):
        refused = ConsumerGroupHeartbeatResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        assert coordinator.call(request) == refused


def test_a_heartbeat_needs_to_describe_every_topic_it_names(coordinator: GroupCoordinator, rules: Rules) -> None:
    """One that may not be described spoils the whole request, before its form is looked at."""
    rules.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    for request in (JOIN, MALFORMED):
        refused = ConsumerGroupHeartbeatResponse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert coordinator.call(request) == refused
    assert coordinator.call(evolve(MALFORMED, subscribed_topic_names=("open",))).error_code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": " \x01\x1f "}, "MemberId can't be empty."),
        ({"member_id": "", "group_id": ""}, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": -2, "instance_id": "i"}, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": 1, "requires_member_id": False}, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": -1, "requires_member_id": False}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"group_id": " ", "instance_id": ""}, "GroupId can't be empty."),
        ({"instance_id": "", "rack_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " ", "rebalance_timeout_ms": -1}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1, "topic_partitions": None}, "RebalanceTimeoutMs must be provided"),
        ({"topic_partitions": None, "subscribed_topic_names": None}, "TopicPartitions must be empty"),
        ({"topic_partitions": PARTITIONS}, "TopicPartitions must be empty"),
        ({"subscribed_topic_names": None}, "SubscribedTopicRegex must be non-null"),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
        ({"member_epoch": -3, "server_assignor": "nobody's"}, "MemberEpoch is invalid."),
    ],
)
def test_what_can_not_be_meant(coordinator: GroupCoordinator, changes: dict[str, Any], message: str) -> None:
    """INVALID_REQUEST says what is wrong first, in Kafka's order and words; nothing but code and message is set."""
    response = coordinator.call(evolve(JOIN, **changes))
    assert response.error_code is ErrorCode.INVALID_REQUEST
    assert message in (response.error_message or "")
    assert response == ConsumerGroupHeartbeatResponse(ErrorCode.INVALID_REQUEST, response.error_message)


@pytest.mark.parametrize("epoch", [0, 5, -1])
@pytest.mark.parametrize("assignor", ["nobody's", "", "Range"])
def test_an_unknown_assignor(coordinator: GroupCoordinator, assignor: str, epoch: int) -> None:
    """UNSUPPORTED_ASSIGNOR, whatever the request wants otherwise; letters count as they are."""
    response = coordinator.call(evolve(JOIN, server_assignor=assignor, member_epoch=epoch))
    assert response.error_code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert response.error_message == (
        f"ServerAssignor {assignor} is not supported. Supported assignors: uniform, range."
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"member_id": "", "requires_member_id": False},
        {"member_id": "\xa0"},
        {"member_id": "", "member_epoch": -2, "instance_id": "i", "requires_member_id": False},
        {"subscribed_topic_names": (), "rebalance_timeout_ms": 0},
        {"subscribed_topic_names": None, "subscribed_topic_regex": ""},
        {"member_epoch": 5, "rebalance_timeout_ms": -1, "topic_partitions": None, "subscribed_topic_names": None},
        {"member_epoch": 5, "topic_partitions": PARTITIONS, "server_assignor": "range"},
        {"member_epoch": -1},
        {"member_epoch": -2, "instance_id": "i"},
    ],
)
def test_a_good_heartbeat_gets_to_its_log_partition(coordinator: GroupCoordinator, changes: dict[str, Any]) -> None:
    """It is told the state of the log partition, which what can't be meant is not; a closed coordinator looks at
    neither.
    """
    request = evolve(JOIN, **changes)
    for partition in range(coordinator.config.offsets_topic_num_partitions):
        coordinator.unload(partition)
    assert coordinator.call(request) == ConsumerGroupHeartbeatResponse(ErrorCode.NOT_COORDINATOR)
    assert coordinator.call(evolve(request, rack_id="")).error_code is ErrorCode.INVALID_REQUEST
    coordinator.close()
    for either in (request, evolve(request, rack_id="")):
        assert coordinator.call(either) == ConsumerGroupHeartbeatResponse(ErrorCode.COORDINATOR_NOT_AVAILABLE)


# ---------------------------------------------------------------- descriptions


def described(*topics: str, targets: tuple[str, ...] = ()) -> DescribedConsumerGroup:
    def partitions(names: tuple[str, ...]) -> tuple[DescribedPartitions, ...]:
        return tuple(DescribedPartitions(UUID(int=1), name, (0,)) for name in names)

    member = DescribedConsumerMember(
        "m", None, None, 1, "c", "/127.0.0.1", topics, "", partitions(topics), partitions(targets)
    )
    return DescribedConsumerGroup("g", group_state="Stable", members=(member,))


@pytest.mark.parametrize("group", [described("open", "secret"), described("open", targets=("secret",))])
def test_a_group_with_a_topic_that_may_not_be_described(rules: Rules, group: DescribedConsumerGroup) -> None:
    """Nothing of the group is told, whether a member has the topic or is to have it; nor what is allowed on it."""
    rules.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    hidden = with_operations(DESCRIBED_CONSUMER_GROUPS.hide(group, Permissions(rules, "User:bob")), 3_400)
    assert (hidden.error_code, hidden.group_state, hidden.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "", ())
    assert hidden.error_message
    assert hidden.authorized_operations == AUTHORIZED_OPERATIONS_OMITTED


# ---------------------------------------------------------------- settings of groups


@pytest.mark.parametrize(
    ("own", "interval_ms", "session_ms"),
    [
        (
            ConsumerGroupSettings.of(Config(), {"session_timeout_ms": 50_000, "heartbeat_interval_ms": 6_000}),
            6_000,
            50_000,
        ),
        (None, 5_000, 45_000),
    ],
)
def test_the_core_asks_for_the_settings_of_a_group(
    own: ConsumerGroupSettings | None, interval_ms: int, session_ms: int
) -> None:
    """What the embedding program says of a group, or else the configuration, is told to members and ends sessions."""
    clock = ManualClock()
    settings = None if own is None else {"g": own}.__getitem__
    coordinator = GroupCoordinator(clock=clock, consumer_group_settings=settings)
    coordinator.load_all()
    assert coordinator.call(JOIN).heartbeat_interval_ms == interval_ms
    for passed_ms, member_count in ((session_ms - 1, 1), (1, 0)):
        clock.advance(passed_ms)
        coordinator.tick()
        (group,) = coordinator.call(ConsumerGroupDescribe(("g",))).groups
        assert len(group.members) == member_count
