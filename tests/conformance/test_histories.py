"""Random histories that Kafka's own classes answered, replayed against groupcoord to the millisecond."""

from __future__ import annotations

import functools
import json
import lzma
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from groupcoord.conformance import Transcript, parse_transcript
from groupcoord.conformance.transcript import Send
from tests.conformance.exactness import ARCHIVE, CONSUMER_ARCHIVE, load_histories, replay_exactly
from tests.samples import portion, sampled
from tests.tables import as_one_test, check_all

HISTORIES_MIN, RESTARTS_MIN = 100, 30
CONSUMER_HISTORIES_MIN = 45
ALTERED = 12
NOT_COMPARED = {"throttle_time", "node_id", "port"}


load = functools.cache(load_histories)


@sampled
def test_answers_like_kafka_to_the_millisecond() -> None:
    """Every response is Kafka's, at Kafka's time."""
    histories = portion([*load(ARCHIVE), *load(CONSUMER_ARCHIVE)])
    check_all([(str(history), history) for history in histories], check_responses)


def check_responses(history: Transcript) -> None:
    report = replay_exactly([history])
    assert report.ok, report.describe()


def test_the_histories_hold_what_clients_do() -> None:
    """All requests of groups and of transactional offsets occur, and restarts in the midst of things."""
    histories = load(ARCHIVE)
    apis = {step.api for history in histories for step in history.steps if isinstance(step, Send)}
    assert apis == {
        "JoinGroup",
        "SyncGroup",
        "Heartbeat",
        "LeaveGroup",
        "OffsetCommit",
        "OffsetFetch",
        "OffsetDelete",
        "DescribeGroups",
        "ListGroups",
        "DeleteGroups",
        "InitProducerId",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
    }
    assert len(histories) >= HISTORIES_MIN
    assert sum(history.restarts for history in histories) >= RESTARTS_MIN


def test_the_histories_hold_what_members_of_consumer_groups_do() -> None:
    """Heartbeats of both versions, classic members among them, and topics that are created, extended and deleted."""
    histories = load(CONSUMER_ARCHIVE)
    sends = [step for history in histories for step in history.steps if isinstance(step, Send)]
    assert {step.version for step in sends if step.api == "ConsumerGroupHeartbeat"} == {0, 1}
    assert {"ConsumerGroupDescribe", "JoinGroup", "SyncGroup", "CreateTopics", "CreatePartitions", "DeleteTopics"} <= {
        step.api for step in sends
    }
    areas = Counter(history.area for history in histories)
    assert min(areas["consumer"], areas["mixed"]) >= CONSUMER_HISTORIES_MIN


# ---------------------------------------------------------------- the comparison itself


def documents() -> list[Any]:
    with lzma.open(ARCHIVE, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line, _ in zip(lines, range(ALTERED), strict=False)]


def values(body: Any) -> Iterator[tuple[Any, Any]]:
    """Return every number, truth value and error in a body as (container, key)."""
    for key, value in body.items() if isinstance(body, dict) else enumerate(body):
        if isinstance(value, dict | list):
            yield from values(value)
        elif key == "error_code" or (isinstance(value, int) and key not in NOT_COMPARED):
            yield body, key


def fails(document: Any) -> bool:
    return not replay_exactly([parse_transcript(json.dumps(document))]).ok


@as_one_test
@pytest.mark.parametrize("document", documents(), ids=lambda document: document["name"])
def test_a_value_that_is_not_kafkas_is_noticed(document: Any) -> None:
    """One value of one recorded answer is changed, and the history differs."""
    bodies = [step["body"] for step in document["steps"] if step["do"] == "recv"]
    container, key = random.Random(document["name"]).choice([found for body in bodies for found in values(body)])
    value = container[key]
    container[key] = "UNKNOWN_SERVER_ERROR" if isinstance(value, str) else not value if value in (True, False) else -7
    assert fails(document)


@pytest.mark.parametrize("shift_ms", [-1, 1])
def test_a_millisecond_is_noticed(shift_ms: int) -> None:
    for document in documents():
        waited = [step for step in document["steps"] if step["do"] == "recv" and step["took_ms"] > 0]
        if waited:
            waited[0]["took_ms"] += shift_ms
            assert fails(document)
