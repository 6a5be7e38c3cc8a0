"""The authorize hook of a coordinator; what each API asks of it is in the transcripts of acl_group."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from groupcoord import ErrorCode, GroupCoordinator, ManualClock, Operation, ResourceType
from groupcoord.messages import (
    AlteredShareTopic,
    AlterShareGroupOffsets,
    DeleteShareGroupOffsets,
    DescribedShareTopic,
    DescribeShareGroupOffsets,
    Heartbeat,
    ShareGroupToDescribe,
    ShareOffsetToAlter,
    ShareTopicToAlter,
    ShareTopicToDescribe,
    ShareTopicToForget,
)
from groupcoord.testing.topics import Topics
from tests.core.denials import Rules

TOPIC_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def rules() -> Rules:
    return Rules()


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
