"""In a consumer group (KIP-848), where a request is refused, the member and librdkafka ask alike, but for lookups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.like_java import LOOKUP, asked_by_both, live_in_librdkafka
from tests.clients.test_consumer_member_like_java import CONFIG, LIFE, SCENARIOS, SETTINGS

HEARTBEAT = "ConsumerGroupHeartbeat"
JOIN, TOLD, LEAVE = f"{HEARTBEAT} with epoch 0", f"{HEARTBEAT} with partitions", f"{HEARTBEAT} with epoch -1"
DIFFERENT = {
    # Java's consumer and the member tell everything after any error, librdkafka what the answer has left open.
    "ConsumerGroupHeartbeat-2-COORDINATOR_LOAD_IN_PROGRESS": [JOIN, TOLD, TOLD, "OffsetCommit", LEAVE],
    "ConsumerGroupHeartbeat-2-TOPIC_AUTHORIZATION_FAILED": [JOIN, TOLD, TOLD, "OffsetCommit", LEAVE],
    "ConsumerGroupHeartbeat-5-COORDINATOR_LOAD_IN_PROGRESS": [JOIN, TOLD, "OffsetCommit", LEAVE],
    "ConsumerGroupHeartbeat-5-TOPIC_AUTHORIZATION_FAILED": [JOIN, TOLD, "OffsetCommit", LEAVE],
    # A fenced instance id ends librdkafka's consumer wherever it meets it.
    "OffsetCommit-1-FENCED_INSTANCE_ID": [JOIN, TOLD, "OffsetCommit"],
}
"""What librdkafka asks where that is something else."""

LOSING = ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "REQUEST_TIMED_OUT")
COMPARED = [s for s in SCENARIOS if not (s.startswith("OffsetCommit") and s.endswith(LOSING))]
"""All but commits that lose the coordinator: whether a heartbeat or the commit is first to find it again is chance."""

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("client_libraries")]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """Requests of librdkafka's consumers and ours, by group."""
    directory = tmp_path_factory.mktemp("data")
    with asked_by_both(directory, COMPARED, SETTINGS, CONFIG, LIFE, live_in_librdkafka) as asked:
        yield asked


@pytest.mark.parametrize("scenario", COMPARED)
def test_the_member_asks_as_librdkafka_does(asked: dict[str, list[str]], scenario: str) -> None:
    """One refusal, and from there on the same requests, or those that are known to differ."""
    ours, theirs = ([api for api in asked[f"{who}-{scenario}"] if api != LOOKUP] for who in ("ours", "others"))
    assert theirs == DIFFERENT.get(scenario, ours)
    assert (theirs == ours) == (scenario not in DIFFERENT)
