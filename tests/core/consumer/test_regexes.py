"""Regular expressions of a consumer group: when they are matched again, and a load without a resolver for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from groupcoord import Config, ErrorCode, GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.core.groups.consumer.group import ConsumerGroupEnvironment, ConsumerState
from groupcoord.core.groups.consumer.heartbeat import REFRESH_PAUSE_MS, needs_resolution
from groupcoord.core.groups.consumer.records import (
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
)
from groupcoord.testing.machine.modern_members import Kip848Consumer
from groupcoord.testing.topics import Topics

MATCHED_MS = 1_700_000_000_000


def is_due(after_ms: int, *, version: int) -> bool:
    """Return whether an expression is resolved again after a time, at a version of the topics."""
    config = Config(group_consumer_regex_refresh_interval_ms=60_000)
    environment = cast(
        ConsumerGroupEnvironment, SimpleNamespace(topics=SimpleNamespace(version=version), config=config)
    )
    member = ConsumerGroupMemberMetadataRecord("g", "a", None, None, "", "", subscribed_topic_regex="o.*")
    matched = ConsumerGroupRegularExpressionRecord("g", "o.*", ("orders",), 1, MATCHED_MS)
    state = ConsumerState.of("g", [member, matched])
    return needs_resolution(state, state, "o.*", environment, MATCHED_MS + after_ms)


def test_new_topics_wait_for_ten_seconds() -> None:
    """With new topics expressions are matched again when more than ten seconds have passed (Kafka 4.4)."""
    assert not is_due(REFRESH_PAUSE_MS, version=2)
    assert is_due(REFRESH_PAUSE_MS + 1, version=2)


def test_the_interval_must_be_over() -> None:
    """Without new topics, when more time than the refresh interval has passed (Kafka 4.4)."""
    assert not is_due(60_000, version=1)
    assert is_due(60_001, version=1)


def test_a_loaded_group_keeps_its_expressions_without_a_resolver() -> None:
    """A member may join with an expression that the loaded group uses, but not with a new one."""
    topics, clock, log_store = Topics(orders=2, other=2), ManualClock(MATCHED_MS), MemoryLogStore()
    config = Config(offsets_topic_num_partitions=1)

    def join(coordinator: GroupCoordinator, member_id: str, regex: str) -> ErrorCode:
        answer = coordinator.call(Kip848Consumer("", "g", member_id=member_id, topics=(), regex=regex).join_request())
        coordinator.tick()  # takes the answer of the resolver
        return answer.error_code

    before = GroupCoordinator(config=config, clock=clock, log_store=log_store, topics=topics, regexes=topics)
    before.load_all()
    assert join(before, "a", "or.*") is ErrorCode.NONE
    after = GroupCoordinator(config=config, clock=clock, log_store=log_store, topics=topics)
    after.load_all()
    assert join(after, "b", "or.*") is ErrorCode.NONE
    assert join(after, "c", "ot.*") is ErrorCode.INVALID_REGULAR_EXPRESSION
