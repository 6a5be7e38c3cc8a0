"""When the expressions of a group are matched again: neither too soon after the last time, nor without a reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from groupcoord.config import Config
from groupcoord.core.groups.consumer.group import ConsumerGroupEnvironment
from groupcoord.core.groups.consumer.records import (
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
)
from groupcoord.core.groups.consumer.regexes import REFRESH_PAUSE_MS, needs_resolution
from groupcoord.core.groups.consumer.state import ConsumerState

MATCHED_MS = 1_700_000_000_000


def is_due(after_ms: int, *, version: int) -> bool:
    """Tell whether an expression is matched again so long after the last time, with the topics of this version."""
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
