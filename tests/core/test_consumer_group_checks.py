"""Checks of a consumer group's heartbeats and descriptions before the group (KIP-848)."""

from __future__ import annotations

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
)
from tests.core.denials import Rules

JOIN = ConsumerGroupHeartbeat(
    "g", "m", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=("open", "secret"), topic_partitions=()
)
MALFORMED = evolve(JOIN, member_id="")


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def coordinator(rules: Rules) -> GroupCoordinator:
    """Return a coordinator for checks that come before a group."""
    coordinator = GroupCoordinator(clock=ManualClock(), authorize=rules)
    coordinator.load_all()
    return coordinator


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


def described(*topics: str, targets: tuple[str, ...] = ()) -> DescribedConsumerGroup:
    def partitions(names: tuple[str, ...]) -> tuple[DescribedPartitions, ...]:
        return tuple(DescribedPartitions(UUID(int=1), name, (0,)) for name in names)

    member = DescribedConsumerMember(
        "m", None, None, 1, "c", "/127.0.0.1", topics, "", partitions(topics), partitions(targets)
    )
    return DescribedConsumerGroup("g", group_state="Stable", members=(member,))


@pytest.mark.parametrize("group", [described("open", "secret"), described("open", targets=("secret",))])
def test_a_group_with_a_topic_that_may_not_be_described(rules: Rules, group: DescribedConsumerGroup) -> None:
    """The group is described with an error and no details, whether a member has the topic or will get it."""
    rules.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    hidden = with_operations(DESCRIBED_CONSUMER_GROUPS.hide(group, Permissions(rules, "User:bob")), 3_400)
    assert (hidden.error_code, hidden.group_state, hidden.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "", ())
    assert hidden.error_message
    assert hidden.authorized_operations == AUTHORIZED_OPERATIONS_OMITTED


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
    """The embedding program's settings of a group replace the configuration: members get them, and they expire
    sessions.
    """
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
