"""What members of a streams group are told of each other's endpoints, and when."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord import ErrorCode
from groupcoord.messages import Endpoint
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.core.streams.members import COUNTS, SETTINGS, Threads, answered

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


def test_who_makes_a_group_is_told_epoch_0(threads: Threads) -> None:
    """It learns of its own entry, under an epoch that is forgotten with that heartbeat (Kafka 4.4)."""
    assert told(threads.join("a", user_endpoint=A)) == (0, {"a": [(0, 1, 2, 3), ()]})
    assert told(threads.beat("a", 2)) == (0, None)


def test_endpoints_are_told_to_who_does_not_know_them(threads: Threads) -> None:
    """Tasks that move and endpoints that change count the epoch up; whoever has another one is told all entries."""
    threads.join("a")
    assert told(threads.join("b", user_endpoint=B)) == (1, {"b": [(), ()]})
    assert told(threads.beat("a", 2, endpoint_information_epoch=1)) == (1, None)
    threads.beat("a", 2, {"0": (0, 1)})
    assert told(threads.beat("b", 3, endpoint_information_epoch=1)) == (2, {"b": [(2, 3), ()]})
    for known in (0, 1, 9):
        assert told(threads.beat("a", 3, endpoint_information_epoch=known)) == (2, {"b": [(2, 3), ()]})
    assert told(threads.beat("a", 3, endpoint_information_epoch=2)) == (2, None)


def test_who_joins_again_without_an_endpoint_has_none(threads: Threads) -> None:
    """A heartbeat that names none leaves it as it was."""
    threads.join("a")
    threads.join("a", user_endpoint=A)
    assert told(threads.beat("a", 3)) == (1, {"a": [(0, 1, 2, 3), ()]})
    assert told(threads.join("a")) == (2, {})
    assert told(threads.beat("a", 4, endpoint_information_epoch=2)) == (2, None)


def test_who_leaves_counts_nothing_up(threads: Threads) -> None:
    """What others are told next shows it."""
    threads.join("a")
    threads.join("b", user_endpoint=B)
    threads.beat("b", -1)
    assert told(threads.beat("a", 2, endpoint_information_epoch=1)) == (1, None)


def test_copies_are_told_apart(topics: Topics) -> None:
    """Each endpoint is told with what it runs and with what it has a copy of."""
    threads = Threads(Driver(topics=topics, **SETTINGS, group_streams_num_standby_replicas=1), COUNTS)
    threads.join("a", user_endpoint=A)
    threads.join("b", user_endpoint=B)
    threads.beat("a", 2)
    threads.beat("a", 2, {"0": (0, 1)})
    _, entries = told(threads.beat("b", 3))
    assert entries == {"a": [(0, 1), (2, 3)], "b": [(2, 3), (0, 1)]}


def test_a_restart_forgets_the_epoch(threads: Threads) -> None:
    """It begins with 0 again, and whoever knows another is told."""
    threads.join("a")
    threads.join("b", user_endpoint=B)
    threads.driver.restart()
    assert told(threads.beat("a", 2, endpoint_information_epoch=1)) == (0, {"b": [(), ()]})


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
