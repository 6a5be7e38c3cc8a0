"""Epochs of a streams group: changes that increase them, and heartbeats that are fenced or refused."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode
from groupcoord.core.groups.streams.heartbeat import TASK_OFFSETS_MAX
from groupcoord.messages import KeyValue, TaskOffset
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.core.streams.members import SETTINGS, Threads, answered
from tests.tables import as_one_test


@pytest.fixture
def topics() -> Topics:
    return Topics(lines=4)


@pytest.fixture
def threads(topics: Topics) -> Threads:
    return Threads(Driver(topics=topics, **SETTINGS))


# ---------------------------------------------------------------- who may come


@as_one_test
@pytest.mark.parametrize(
    ("runs", "is_task"),
    [
        ({"0": (0, 3)}, True),
        ({"0": ()}, True),
        ({"0": (4,)}, False),
        ({"0": (-1,)}, False),
        ({"1": ()}, False),
        ({"1": (0,)}, False),
    ],
)
def test_who_runs_what_is_no_task_is_refused(runs: dict[str, tuple[int, ...]], is_task: bool) -> None:
    """Each task that a member names must be one of the topology."""
    threads = Threads(Driver(topics=Topics(lines=4), **SETTINGS))
    threads.join("a")
    error_code = answered(threads.beat("a", 2, runs)).error_code
    assert error_code is (ErrorCode.NONE if is_task else ErrorCode.INVALID_REQUEST)


def test_offsets_of_very_many_tasks_are_refused(threads: Threads) -> None:
    """They are kept in memory, for each member."""
    threads.join("a")
    many = tuple(TaskOffset("0", number, 1) for number in range(TASK_OFFSETS_MAX + 1))
    assert answered(threads.beat("a", 2, task_offsets=many)).error_code is ErrorCode.INVALID_REQUEST
    assert answered(threads.beat("a", 2, task_offsets=many[1:])).error_code is ErrorCode.NONE


def test_tags_are_named_once(threads: Threads) -> None:
    """A tag that is named twice makes the request fail, as in Kafka."""
    twice = (KeyValue("zone", "a"), KeyValue("zone", "b"))
    assert answered(threads.join("a", client_tags=twice)).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
