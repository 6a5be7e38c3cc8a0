"""Endpoints of a streams group's members, and heartbeats that fail before they are answered."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord import ErrorCode
from groupcoord.messages import Endpoint
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.core.streams.members import SETTINGS, Threads, answered

A, B = Endpoint("a", 80), Endpoint("b", 80)


@pytest.fixture
def topics() -> Topics:
    return Topics(lines=4, counts=4)


@pytest.fixture
def threads(topics: Topics) -> Threads:
    return Threads(Driver(topics=topics, **SETTINGS))


def told(sent: Any) -> tuple[int, dict[str, list[tuple[int, ...]]] | None]:
    """Return the epoch of the endpoints, and for each host the partitions that it runs and has copies of."""
    answer = answered(sent)
    entries = answer.partitions_by_user_endpoint
    if entries is None:
        return answer.endpoint_information_epoch, None
    return answer.endpoint_information_epoch, {
        entry.user_endpoint.host: [
            tuple(p for topic in topics for p in topic.partitions)
            for topics in (entry.active_partitions, entry.standby_partitions)
        ]
        for entry in entries
    }


def test_nobody_with_an_endpoint_joins_while_topics_are_missing(topics: Topics, threads: Threads) -> None:
    """Kafka fails there, and so does every heartbeat that is to be told of the member (Kafka 4.4)."""
    topics.delete("lines")
    assert answered(threads.join("a", user_endpoint=A)).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert threads.driver.written() == []
    assert answered(threads.join("a")).error_code is ErrorCode.NONE


def test_what_fails_at_the_end_has_its_timers(topics: Topics) -> None:
    """Who can't be told of endpoints lives on, and has to give back what it was to, though nothing is written."""
    threads = Threads(Driver(topics=topics, **SETTINGS))
    threads.join("a", user_endpoint=A, rebalance_timeout_ms=1_000)
    threads.beat("a", 2)
    topics.delete("lines")
    threads.driver.coordinator.topics_changed(["lines"])
    written = len(threads.driver.written())
    assert answered(threads.beat("a", 2)).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (len(threads.driver.written()), threads.described.group_state) == (written, "Stable")
    threads.driver.advance(1_000)
    assert threads.described.members == ()
