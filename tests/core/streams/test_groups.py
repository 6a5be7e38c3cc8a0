"""Streams groups: heartbeats, epochs, targets, topics, conversions and custom assignors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from groupcoord import Config, ErrorCode, GroupCoordinator
from groupcoord.assignors import MemberTasks, StreamsGroupSpec
from groupcoord.core.groups.base.kind import STEADY_VALUES_MAX
from groupcoord.core.groups.streams.group import StreamsGroup
from groupcoord.core.groups.streams.heartbeat import TASK_OFFSETS_MAX
from groupcoord.core.groups.streams.topology import InternalTopics
from groupcoord.core.host_queries import CreateInternalTopics, InternalTopic, InternalTopicsCreated
from groupcoord.errors import ConfigError
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    KeyValue,
    ListGroups,
    OffsetCommit,
    OffsetToCommit,
    TaskOffset,
    TopicToCommit,
)
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver, Group
from tests.core.streams.members import COUNTS, SETTINGS, Threads, active, answered
from tests.tables import as_one_test


@pytest.fixture
def topics() -> Topics:
    return Topics(lines=4)


@pytest.fixture
def driver(topics: Topics) -> Driver:
    return Driver(topics=topics, **SETTINGS)


@pytest.fixture
def threads(driver: Driver) -> Threads:
    return Threads(driver)


def test_a_steady_heartbeat_writes_nothing(threads: Threads) -> None:
    """The same heartbeat again and again is answered the same, from memory."""
    threads.join("a")
    answers = [answered(threads.beat("a", 2)) for _ in range(3)]
    assert len(set(answers)) == 1
    assert answers[1] is answers[2]
    assert answers[0].active_tasks is None


# ---------------------------------------------------------------- internal topics


def changelog_partitions(threads: Threads) -> int:
    """Return the partition count of the only changelog topic as it is described."""
    topology = threads.described.topology
    assert topology is not None
    assert topology.subtopologies is not None
    (changelog,) = topology.subtopologies[-1].state_changelog_topics
    return changelog.partitions


# ---------------------------------------------------------------- the log, and restarts


WRITES: dict[str, Callable[[Threads], object]] = {
    "of a commit in another group": lambda threads: Group(threads.driver, "other").commit(topic="lines"),
    "of a join in a classic group": lambda threads: Group(threads.driver, "other").join(),
    "of a consumer group": lambda threads: threads.driver.submit(
        ConsumerGroupHeartbeat(
            "other", "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=("lines",), topic_partitions=()
        )
    ),
    "of its own": lambda threads: threads.join("b"),
}


@as_one_test
@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_refused_write_discards_the_configured_topology(write: Callable[[Threads], object]) -> None:
    """Any refused write reverts all groups of the log partition to its last write (``CoordinatorRuntime``, 4.4)."""
    threads = Threads(Driver(late=True, topics=Topics(lines=4, counts=4), **SETTINGS), COUNTS)
    threads.join("a")
    threads.driver.write_all()
    threads.beat("a", 2)  # configures the topology, and writes nothing
    assert changelog_partitions(threads) == 0
    write(threads)
    threads.driver.refuse(NotEnoughReplicasError("refused"))
    Group(threads.driver, "third").commit(topic="lines")
    threads.driver.write_all()
    assert changelog_partitions(threads) == 0


# ---------------------------------------------------------------- assignors


class AllToFirst:
    """Gives all tasks to the first member."""

    name = "all-to-first"

    def assign(self, group: StreamsGroupSpec) -> dict[str, MemberTasks]:
        if len(group.members) > 2:
            raise RuntimeError("too many")
        everything = {name: tuple(range(part.task_count)) for name, part in group.subtopologies.items()}
        return {min(group.members): MemberTasks(everything)}


def test_an_assignor_of_ones_own_divides_tasks(topics: Topics) -> None:
    """``group.streams.assignors`` names it; if it fails, the request does, and nothing else."""

    class Own(Driver):
        coordinator_class = staticmethod(lambda **given: GroupCoordinator(**given, task_assignors=[AllToFirst()]))

    driver = Own(topics=topics, **SETTINGS, group_streams_assignors=("all-to-first",))
    threads = Threads(driver)
    threads.join("b")
    threads.join("a")
    assert threads.described.assignor_name == "all-to-first"
    assert active(threads.beat("b", 2)) == {}
    assert answered(threads.join("c")).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(threads.described.members) == 2


def test_an_assignor_that_is_not_there_is_refused() -> None:
    """A coordinator with an unknown assignor is not created."""
    with pytest.raises(ConfigError, match=r"group\.streams\.assignors"):
        GroupCoordinator(config=Config(group_streams_assignors=("nobody",)))


def test_a_heartbeat_that_names_very_much_is_not_remembered(threads: Threads) -> None:
    """Its sender decides how long it is; what others send is compared with the last."""
    threads.join("a")
    group = threads.driver.coordinator.partition(0).groups["group"]  # type: ignore[union-attr]
    assert isinstance(group, StreamsGroup)
    threads.beat("a", 2, {"0": (0,) * STEADY_VALUES_MAX})
    assert not group.steady
    threads.beat("a", 2, {"0": (0, 1, 2, 3)})
    assert list(group.steady) == ["a"]


# ---------------------------------------------------------------- epochs


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


# ---------------------------------------------------------------- targets


def test_who_has_no_tasks_when_the_group_rests_gets_them_with_another_epoch() -> None:
    """The target of the log stays as it is: what it was made for grows with the epoch."""
    threads = Threads(Driver(topics=Topics(lines=4), **SETTINGS))
    threads.join("a", instance_id="i")
    threads.join("b")
    threads.beat("a", 2, {}, instance_id="i")
    assert active(threads.beat("b", 3)) == {"0": (2, 3)}
    threads.join("c", instance_id="i")
    threads.beat("a", -2, instance_id="i")
    assert active(threads.join("a", instance_id="i")) == {}
    before = [member.target_assignment for member in threads.described.members]
    told = answered(threads.beat("a", 3, instance_id="i"))
    assert (told.member_epoch, dict(told.active_tasks or ())) == (4, {"0": (0, 1)})
    assert [member.target_assignment for member in threads.described.members] == before
    assert threads.described.assignment_epoch == 4


# ---------------------------------------------------------------- internal topics


INTERVAL_MS = 5_000
STORE, BY_KEY = InternalTopic("store-changelog", 2, -1), InternalTopic("by-key", 2, -1)


def test_a_topic_is_asked_for_once() -> None:
    """All members miss it; an answer that does not come within two intervals is not waited for."""
    topics = InternalTopics()
    assert topics.ask((STORE, BY_KEY), None, INTERVAL_MS, 0) == ((BY_KEY, STORE), "")
    assert topics.ask((STORE, BY_KEY), None, INTERVAL_MS, 2 * INTERVAL_MS - 1) == ((), "")
    assert topics.ask((STORE,), None, INTERVAL_MS, 2 * INTERVAL_MS) == ((STORE,), "")


def test_an_error_is_told_for_two_intervals() -> None:
    """Then the topic is requested again, and the error is dropped."""
    topics = InternalTopics()
    asked, _ = topics.ask((STORE, BY_KEY), None, INTERVAL_MS, 0)
    question = CreateInternalTopics(0, "app", asked, None)
    topics.created(InternalTopicsCreated(question, {STORE.name: "no room"}), INTERVAL_MS, 1_000)
    told = "; Creation failed: store-changelog (no room)."
    assert topics.ask((STORE,), None, INTERVAL_MS, 1_000) == ((), told)
    assert topics.ask((STORE,), None, INTERVAL_MS, 1_000 + 2 * INTERVAL_MS - 1) == ((), told)
    assert topics.ask((STORE,), None, INTERVAL_MS, 1_000 + 2 * INTERVAL_MS) == ((STORE,), "")


# ---------------------------------------------------------------- conversions


COMMIT = OffsetCommit("group", (TopicToCommit("lines", (OffsetToCommit(0, 5),)),))


def started(*, late: bool = False, **settings: Any) -> Threads:
    return Threads(Driver(late=late, topics=Topics(lines=4), **{**SETTINGS, **settings}))


def kinds(threads: Threads) -> list[tuple[str, str]]:
    """Return type and state of the group, as it is listed."""
    return [(group.group_type, group.group_state) for group in threads.driver.coordinator.call(ListGroups()).groups]


def test_a_classic_group_stays_if_the_join_is_refused() -> None:
    """Refused by the group or by the log; then no request waits."""
    threads = started(late=True, group_streams_initial_rebalance_delay_ms=3_000)
    threads.driver.submit(COMMIT)
    threads.driver.write_all()
    twice = threads.join("a", topology=threads.topology._replace(epoch=-1))
    assert answered(twice).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    refused = threads.join("a")
    threads.driver.refuse(NotEnoughReplicasError("refused"))
    assert answered(refused).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert kinds(threads) == [("classic", "Empty")]
    threads.driver.advance(2_000)
    threads.join("a")
    threads.driver.write_all()
    threads.beat("a", 1)
    threads.driver.advance(2_999)
    assert active(threads.beat("a", 1)) is None
