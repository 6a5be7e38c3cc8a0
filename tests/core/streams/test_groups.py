"""Streams groups: steady heartbeats, shared writes, missing internal topics and custom assignors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from groupcoord import Config, ErrorCode, GroupCoordinator
from groupcoord.assignors import MemberTasks, StreamsGroupSpec
from groupcoord.core.groups.base.kind import STEADY_VALUES_MAX
from groupcoord.core.groups.streams.group import StreamsGroup
from groupcoord.errors import ConfigError
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.messages import ConsumerGroupHeartbeat
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
