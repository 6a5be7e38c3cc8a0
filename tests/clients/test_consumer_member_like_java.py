"""In a consumer group too: where a request is refused, the member asks on as Java's consumer does (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest

from tests.clients.like_java import Life, asked_by_both, told_once
from tests.storage.real_broker import HAS_KAFKA

GENERAL = ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_SERVER_ERROR")
GROUP = ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID", "STALE_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND")
DENIED = ("GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED")
JOINING = ("UNRELEASED_INSTANCE_ID", "UNSUPPORTED_ASSIGNOR", "UNSUPPORTED_VERSION", "GROUP_MAX_SIZE_REACHED")
JOINING += ("INVALID_REGULAR_EXPRESSION", "INVALID_REQUEST")
REFUSED = {
    "FindCoordinator-1": (*GENERAL, "GROUP_AUTHORIZATION_FAILED"),
    "ConsumerGroupHeartbeat-1": (*GENERAL, *GROUP, *DENIED, *JOINING),
    "ConsumerGroupHeartbeat-2": (*GENERAL, *GROUP, *DENIED),
    "ConsumerGroupHeartbeat-5": (*GENERAL, *GROUP, *DENIED),
    "OffsetCommit-1": (*GENERAL, *GROUP, *DENIED, "UNKNOWN_TOPIC_OR_PARTITION", "REQUEST_TIMED_OUT"),
}
"""The request to refuse and its number: the first heartbeat joins, the second acknowledges, the fifth says nothing."""

SCENARIOS = list(chain.from_iterable([f"{request}-{code}" for code in codes] for request, codes in REFUSED.items()))
SETTINGS = {
    "offsets.topic.num.partitions": 5,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 1_000,
}
LIFE = Life(6_500, 1_500)
CONFIG = {"group.protocol": "consumer", "enable.auto.commit": False}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_KAFKA, reason="there is no java, or there are no jars of Kafka 4"),
]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """Requests of Java's consumers and ours, by group."""
    with asked_by_both(tmp_path_factory.mktemp("data"), SCENARIOS, SETTINGS, CONFIG, LIFE) as asked:
        yield asked


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_member_asks_as_java_does(asked: dict[str, list[str]], scenario: str) -> None:
    """One refusal, and from there on the same requests, to the heartbeat that leaves."""
    assert told_once(asked[f"ours-{scenario}"]) == told_once(asked[f"others-{scenario}"])
