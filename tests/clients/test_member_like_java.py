"""After a refused request, the member sends the same requests in the same order as Java's consumer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest

from tests.clients.fleet import SETTINGS
from tests.clients.like_java import asked_by_both, told_once
from tests.storage.real_broker import HAS_KAFKA

AT = {"FindCoordinator": 1, "JoinGroup": 2, "SyncGroup": 1, "Heartbeat": 4, "OffsetCommit": 1, "LeaveGroup": 1}
"""The number of the request to refuse. The second join names a member; by the fourth heartbeat all else is done."""

GENERAL = ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_SERVER_ERROR")
GROUP = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID")
DENIED = ("GROUP_AUTHORIZATION_FAILED",)
REFUSED = {
    "FindCoordinator": (*GENERAL, *DENIED),
    "JoinGroup": (*GENERAL, *GROUP, *DENIED, "GROUP_MAX_SIZE_REACHED", "INCONSISTENT_GROUP_PROTOCOL"),
    "SyncGroup": (*GENERAL, *GROUP, *DENIED),
    "Heartbeat": (*GENERAL, *GROUP, *DENIED),
    "OffsetCommit": (*GENERAL, *GROUP, *DENIED, "UNKNOWN_TOPIC_OR_PARTITION", "OFFSET_METADATA_TOO_LARGE"),
    "LeaveGroup": (*GENERAL, "UNKNOWN_MEMBER_ID"),
}
SCENARIOS = list(chain.from_iterable([f"{api}-{AT[api]}-{code}" for code in codes] for api, codes in REFUSED.items()))
CONFIG = {
    "heartbeat.interval.ms": 300,
    "session.timeout.ms": 6_000,
    "enable.auto.commit": False,
    "partition.assignment.strategy": "range",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_KAFKA, reason="there is no java, or there are no jars of Kafka 4"),
]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """Requests of Java's consumers and ours, by group."""
    with asked_by_both(tmp_path_factory.mktemp("data"), SCENARIOS, SETTINGS, CONFIG) as asked:
        yield asked


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_member_asks_as_java_does(asked: dict[str, list[str]], scenario: str) -> None:
    """One refusal, and from there on the same requests, to the leave."""
    assert told_once(asked[f"ours-{scenario}"]) == told_once(asked[f"others-{scenario}"])
