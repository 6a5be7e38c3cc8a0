"""Checks of heartbeats and descriptions before the group: protocols, permissions, form (KIP-848, KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve

from groupcoord import Config, ErrorCode, GroupCoordinator, ManualClock, Operation, ResourceType
from groupcoord.config import GroupType
from groupcoord.config.group_settings import ConsumerGroupSettings
from groupcoord.core.router.authorization import Permissions
from groupcoord.core.router.modern_groups import DESCRIBED_CONSUMER_GROUPS, TOPOLOGY_VALUES_MAX
from groupcoord.core.router.split_requests import with_operations
from groupcoord.messages import (
    AUTHORIZED_OPERATIONS_OMITTED,
    AlteredShareTopic,
    AlterShareGroupOffsets,
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DeleteShareGroupOffsets,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedPartitions,
    DescribedShareTopic,
    DescribedStreamsGroup,
    DescribeShareGroupOffsets,
    Heartbeat,
    ShareGroupToDescribe,
    ShareOffsetToAlter,
    ShareTopicToAlter,
    ShareTopicToDescribe,
    ShareTopicToForget,
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdate,
    StreamsGroupTopologyDescriptionUpdateResponse,
    StreamsStatusCode,
    Subtopology,
    TopicInfo,
    Topology,
    TopologyDescriptionStatus,
)
from groupcoord.testing.topics import Topics
from tests.core.denials import Rules
from tests.tables import as_one_test

# ---------------------------------------------------------------- consumer groups


CONSUMER_JOIN = ConsumerGroupHeartbeat(
    "g", "m", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=("open", "secret"), topic_partitions=()
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
    assert coordinator.call(CONSUMER_JOIN).heartbeat_interval_ms == interval_ms
    for passed_ms, member_count in ((session_ms - 1, 1), (1, 0)):
        clock.advance(passed_ms)
        coordinator.tick()
        (group,) = coordinator.call(ConsumerGroupDescribe(("g",))).groups
        assert len(group.members) == member_count


# ---------------------------------------------------------------- streams groups


UPDATE = StreamsGroupTopologyDescriptionUpdate("g", "m", 0)


def topology(*topics: str, **parts: Any) -> Topology:
    return Topology(0, (Subtopology("0", topics or ("open", "secret"), **parts),))


JOIN = StreamsGroupHeartbeat(
    "g",
    "m",
    0,
    rebalance_timeout_ms=60_000,
    topology=topology(),
    active_tasks=(),
    standby_tasks=(),
    warmup_tasks=(),
)
MALFORMED = evolve(JOIN, member_id="")
STAY = {"member_epoch": 3, "topology": None}
NO_TASKS: dict[str, Any] = dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"))


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def coordinator(rules: Rules) -> GroupCoordinator:
    """A coordinator with two topics, which assigns at once."""
    config = Config(group_streams_initial_rebalance_delay_ms=0)
    topics = Topics(open=1, secret=1)
    coordinator = GroupCoordinator(config=config, clock=ManualClock(), topics=topics, authorize=rules)
    coordinator.load_all()
    return coordinator


# ---------------------------------------------------------------- the switch


@pytest.mark.parametrize(
    ("join", "response", "describe", "described"),
    [
        (JOIN, StreamsGroupHeartbeatResponse, StreamsGroupDescribe, DescribedStreamsGroup),
        (CONSUMER_JOIN, ConsumerGroupHeartbeatResponse, ConsumerGroupDescribe, DescribedConsumerGroup),
    ],
)
def test_what_is_switched_off_is_not_supported(
    rules: Rules, join: Any, response: Any, describe: Any, described: Any
) -> None:
    """UNSUPPORTED_VERSION without a message comes before permissions and form, for each group that is named."""
    config = Config(group_coordinator_rebalance_protocols=(GroupType.CLASSIC,))
    classic = GroupCoordinator(config=config, authorize=rules)
    classic.load_all()
    rules.deny(Operation.READ, ResourceType.GROUP, "g")
    for request in (join, evolve(join, member_id="")):
        assert classic.call(request) == response(ErrorCode.UNSUPPORTED_VERSION)
    refused = classic.call(describe(("g", None, "g"), include_authorized_operations=True)).groups
    assert refused == tuple(described(group_id, ErrorCode.UNSUPPORTED_VERSION) for group_id in ("g", "", "g"))
    assert classic.call(UPDATE) == StreamsGroupTopologyDescriptionUpdateResponse(ErrorCode.UNSUPPORTED_VERSION)


def test_groups_go_on_after_they_were_switched_off(coordinator: GroupCoordinator) -> None:
    """While the feature is at 0, requests are refused and members stay; then they go on as if nothing had been."""
    served = coordinator._router.served_protocols
    assert coordinator.call(JOIN).member_epoch == 2
    coordinator.serve(served - {GroupType.STREAMS})
    assert coordinator.call(evolve(JOIN, **STAY, **NO_TASKS)).error_code is ErrorCode.UNSUPPORTED_VERSION
    coordinator.serve(served)
    assert coordinator.call(evolve(JOIN, **{**STAY, **NO_TASKS, "member_epoch": 2})).member_epoch == 2


# ---------------------------------------------------------------- heartbeats


@as_one_test
@pytest.mark.parametrize(
    "parts",
    [
        {"repartition_sink_topics": ("secret",)},
        {"repartition_source_topics": (TopicInfo("secret"),)},
        {"state_changelog_topics": (TopicInfo("secret"),)},
    ],
)
def test_a_heartbeat_needs_to_describe_every_topic_of_its_topology(
    coordinator: GroupCoordinator, rules: Rules, parts: dict[str, Any]
) -> None:
    """One that may not be described spoils the whole request, before its form is looked at."""
    rules.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    for request in (JOIN, MALFORMED, evolve(JOIN, topology=topology("open", **parts))):
        assert coordinator.call(request) == StreamsGroupHeartbeatResponse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert coordinator.call(evolve(MALFORMED, topology=topology("open"))).error_code is ErrorCode.INVALID_REQUEST


def test_a_topology_that_says_too_much_is_refused(coordinator: GroupCoordinator) -> None:
    """All of it is looked at in one go, so that comes before anything else about it."""
    many = evolve(JOIN, topology=topology(*["__consumer_offsets"] * TOPOLOGY_VALUES_MAX))
    response = coordinator.call(many)
    assert (response.error_code, response.error_message) == (
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
        "The topology is too large.",
    )


def test_who_may_not_create_topics(coordinator: GroupCoordinator, rules: Rules) -> None:
    """A member joins, and the response lists the internal topics that it may not create."""
    rules.deny(Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster")
    rules.deny(Operation.CREATE, ResourceType.TOPIC, "c")
    answer = coordinator.call(evolve(JOIN, topology=topology("open", state_changelog_topics=(TopicInfo("c"),))))
    assert answer.error_code is ErrorCode.NONE
    ((code, detail),) = answer.status or ()
    assert code is StreamsStatusCode.MISSING_INTERNAL_TOPICS
    assert detail == "Internal topics are missing: c; Unauthorized to CREATE on topics c."


# ---------------------------------------------------------------- descriptions


def test_descriptions(coordinator: GroupCoordinator, rules: Rules) -> None:
    """Denied groups come first, then those without an id; a group with a denied topic has no details."""
    coordinator.call(JOIN)
    rules.deny(Operation.DESCRIBE, ResourceType.GROUP, "h")
    asked = StreamsGroupDescribe(("nope", "g", "h", ""), True, True)
    hidden, nameless, unknown, group = coordinator.call(asked).groups
    assert hidden == DescribedStreamsGroup("h", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert nameless == DescribedStreamsGroup("", ErrorCode.INVALID_GROUP_ID)
    assert unknown == DescribedStreamsGroup("nope", ErrorCode.GROUP_ID_NOT_FOUND, "Group nope not found.")
    assert (group.group_id, group.assignor_name, group.authorized_operations) == ("g", "sticky", 3_400)
    assert group.topology_description_status is TopologyDescriptionStatus.NOT_STORED
    (plain,) = coordinator.call(StreamsGroupDescribe(("g",))).groups
    assert plain.topology_description_status is TopologyDescriptionStatus.NOT_REQUESTED
    assert plain.authorized_operations < 0
    rules.deny(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
    *_, refused = coordinator.call(asked).groups
    message = "The described group uses topics that the client is not authorized to describe."
    assert refused == DescribedStreamsGroup("g", ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)


def test_no_description_of_a_topology_is_stored(coordinator: GroupCoordinator, rules: Rules) -> None:
    """There is no plugin for it; without READ on the group the error is GROUP_AUTHORIZATION_FAILED."""
    message = "The broker has no streams group topology description plugin configured."
    refused = StreamsGroupTopologyDescriptionUpdateResponse(ErrorCode.UNSUPPORTED_VERSION, message)
    assert coordinator.call(UPDATE) == refused
    rules.deny(Operation.READ, ResourceType.GROUP, "g")
    denied = StreamsGroupTopologyDescriptionUpdateResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert coordinator.call(UPDATE) == denied


# ---------------------------------------------------------------- the authorize hook


TOPIC_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_the_principal_is_passed_on(rules: Rules) -> None:
    """The hook sees the principal that came with the request."""
    coordinator = GroupCoordinator(clock=ManualClock(), authorize=rules)
    coordinator.call(Heartbeat("g", 1, "m"), "User:alice")
    assert rules.principals == {"User:alice"}


def errors(topics: Iterable[DescribedShareTopic | AlteredShareTopic]) -> dict[str, list[ErrorCode]]:
    return {topic.topic_name: [each.error_code for each in topic.partitions] for topic in topics}


def test_share_offsets_need_permissions_on_each_topic(rules: Rules) -> None:
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
