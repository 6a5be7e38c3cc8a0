"""Epochs of a streams group: changes that increase them, and heartbeats that are fenced or refused."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from groupcoord import ErrorCode
from groupcoord.core.groups.streams.heartbeat import TASK_OFFSETS_MAX
from groupcoord.messages import Endpoint, KeyValue, StreamsStatusCode, TaskOffset
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.core.streams.members import COUNTS, SETTINGS, WORD_COUNT, OwnSettings, Threads, answered, statuses
from tests.tables import as_one_test

HOME = Endpoint("home", 80)
ZONE = (KeyValue("zone", "a"),)


@pytest.fixture
def topics() -> Topics:
    return Topics(lines=4)


@pytest.fixture
def threads(topics: Topics) -> Threads:
    return Threads(Driver(topics=topics, **SETTINGS))


# ---------------------------------------------------------------- what begins an epoch


@as_one_test
@pytest.mark.parametrize(
    ("instance_id", "told", "begins_epoch"),
    [
        (None, {"process_id": "process-a", "rebalance_timeout_ms": 60_000, "client_tags": ()}, False),
        (None, {"rebalance_timeout_ms": 1}, True),
        (None, {"user_endpoint": HOME}, True),
        (None, {"client_id": "another"}, True),
        (None, {"client_host": "/10.0.0.1"}, True),
        ("i", {"rebalance_timeout_ms": 1}, False),
        ("i", {"user_endpoint": HOME}, False),
        ("i", {"client_id": "another"}, False),
        ("i", {"rack_id": "r"}, True),
        ("i", {"client_tags": ZONE}, True),
        ("i", {"process_id": "another"}, True),
    ],
)
def test_what_a_member_tells_may_begin_an_epoch(
    instance_id: str | None, told: dict[str, Any], begins_epoch: bool
) -> None:
    """Anything new of a dynamic member does, and of a static one what an assignor may look at."""
    threads = Threads(Driver(topics=Topics(lines=4), **SETTINGS))
    threads.join("a", instance_id=instance_id)
    threads.beat("a", 2, instance_id=instance_id, **told)
    assert threads.described.group_epoch == (3 if begins_epoch else 2)


def test_settings_of_the_assignment_begin_an_epoch(topics: Topics) -> None:
    """With the next heartbeat after they have changed; others, such as the session's length, don't."""
    driver = OwnSettings(topics)
    threads = Threads(driver)
    threads.join("a")
    for change, epoch in (
        ({"num_standby_replicas": 1}, 3),
        ({"rack_aware_assignment_tags": ("zone",)}, 4),
        ({"session_timeout_ms": 50_000}, 4),
    ):
        driver.settings = evolve(driver.settings, **change)
        threads.beat("a", threads.described.members[0].member_epoch)
        assert threads.described.group_epoch == epoch


def test_internal_topics_that_come_begin_an_epoch_though_no_hash_tells(topics: Topics) -> None:
    """A group whose topology is in order from now on says so with an epoch."""
    topics.create("counts", 3)
    threads = Threads(Driver(topics=topics, **SETTINGS), COUNTS)
    assert statuses(threads.join("a")) == [StreamsStatusCode.INCORRECTLY_PARTITIONED_TOPICS]
    assert (threads.described.group_state, threads.described.group_epoch) == ("NotReady", 2)


# ---------------------------------------------------------------- who may come


@as_one_test
@pytest.mark.parametrize(
    ("epoch", "runs", "error_code"),
    [
        (3, None, ErrorCode.NONE),
        (4, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, {"0": (0, 1)}, ErrorCode.NONE),
        (2, {"0": (0,)}, ErrorCode.NONE),
        (2, {}, ErrorCode.NONE),
        (2, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, {"0": (2,)}, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        (0, {}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_epochs(epoch: int, runs: dict[str, tuple[int, ...]] | None, error_code: ErrorCode) -> None:
    """The epoch before is good for a member that says what it runs, if it may run that."""
    threads = Threads(Driver(topics=Topics(lines=4), **SETTINGS))
    threads.join("a")
    threads.join("b")
    threads.beat("a", 2)
    threads.beat("a", 2, {"0": (0, 1)})  # has 0 and 1 at epoch 3, and had epoch 2 before
    assert answered(threads.beat("a", epoch, runs)).error_code is error_code


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


@pytest.mark.parametrize("field", ["task_offsets", "task_end_offsets"])
def test_offsets_name_each_task_once(threads: Threads, field: str) -> None:
    """Twice the same is refused; which tasks there are nobody asks."""
    threads.join("a")
    once, twice = (TaskOffset("9", 9, -1),), (TaskOffset("0", 0, 1), TaskOffset("0", 0, 1))
    assert answered(threads.beat("a", 2, **{field: once})).error_code is ErrorCode.NONE
    assert answered(threads.beat("a", 2, **{field: twice})).error_code is ErrorCode.INVALID_REQUEST


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


def test_statuses_come_in_the_order_of_kafka(topics: Topics) -> None:
    """What is stale, what is delayed, topics, a wish to shut down, and tags."""
    own = {"group_streams_rack_aware_assignment_tags": ("zone",), "group_streams_initial_rebalance_delay_ms": 3_000}
    threads = Threads(OwnSettings(topics, **own), WORD_COUNT)
    threads.topology = WORD_COUNT._replace(epoch=1)
    threads.join("a")
    threads.join("b", topology=WORD_COUNT)
    assert statuses(threads.beat("b", 1, shutdown_application=True)) == [
        StreamsStatusCode.STALE_TOPOLOGY,
        StreamsStatusCode.ASSIGNMENT_DELAYED,
        StreamsStatusCode.MISSING_INTERNAL_TOPICS,
        StreamsStatusCode.SHUTDOWN_APPLICATION,
        StreamsStatusCode.MISSING_CLIENT_TAGS,
    ]
