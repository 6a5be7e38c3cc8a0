"""Checks of a streams group's heartbeats and descriptions before the group (KIP-1071)."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from groupcoord import Config, ErrorCode, GroupCoordinator, ManualClock
from groupcoord.config import GroupType
from groupcoord.core.router.authorization import Operation, ResourceType
from groupcoord.core.router.modern_groups import TOPOLOGY_VALUES_MAX
from groupcoord.messages import (
    DescribedStreamsGroup,
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
from groupcoord.sim.cluster.topics import Topics
from tests.core.denials import Rules
from tests.tables import as_one_test

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
    topics = Topics({"open": 1, "secret": 1})
    coordinator = GroupCoordinator(config=config, clock=ManualClock(), topics=topics, authorize=rules)
    coordinator.load_all()
    return coordinator


# ---------------------------------------------------------------- the switch


def test_what_is_switched_off_is_not_supported(rules: Rules) -> None:
    """UNSUPPORTED_VERSION without a message comes before permissions and form, for each group that is named."""
    config = Config(group_coordinator_rebalance_protocols=(GroupType.CLASSIC,))
    classic = GroupCoordinator(config=config, authorize=rules)
    classic.load_all()
    rules.deny(Operation.READ, ResourceType.GROUP, "g")
    for request in (JOIN, MALFORMED):
        assert classic.call(request) == StreamsGroupHeartbeatResponse(ErrorCode.UNSUPPORTED_VERSION)
    assert classic.call(StreamsGroupDescribe(("g", None), True, True)).groups == (
        DescribedStreamsGroup("g", ErrorCode.UNSUPPORTED_VERSION),
        DescribedStreamsGroup("", ErrorCode.UNSUPPORTED_VERSION),
    )
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
