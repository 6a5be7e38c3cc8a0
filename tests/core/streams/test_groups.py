"""Streams groups from join to leave: tasks move one step after the other, and what is missing is asked for."""

from __future__ import annotations

import pytest

from groupcoord import Config, ErrorCode, GroupCoordinator
from groupcoord.assignors import MemberTasks, StreamsGroupSpec
from groupcoord.core.groups.base.membership import STEADY_VALUES_MAX
from groupcoord.core.groups.streams.group import StreamsGroup
from groupcoord.core.host_queries import CreateInternalTopics
from groupcoord.errors import ConfigError
from groupcoord.log_store import NotEnoughReplicasError
from groupcoord.messages import (
    DeletedGroup,
    DeleteGroups,
    DeleteGroupsResponse,
    ListedGroup,
    ListGroups,
    StreamsStatusCode,
    Subtopology,
    TaskOffset,
    Topology,
)
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.core.streams.members import LINES, SETTINGS, WORD_COUNT, Threads, active, answered, statuses


@pytest.fixture
def topics() -> Topics:
    return Topics(lines=4)


@pytest.fixture
def driver(topics: Topics) -> Driver:
    return Driver(topics=topics, **SETTINGS)


@pytest.fixture
def threads(driver: Driver) -> Threads:
    return Threads(driver)


def test_tasks_move_when_they_are_given_back(threads: Threads) -> None:
    """A second member gets half of the tasks, once the first has said that it runs them no longer."""
    assert active(threads.join("a")) == {"0": (0, 1, 2, 3)}
    assert active(threads.join("b")) == {}
    assert active(threads.beat("a", 2)) == {"0": (0, 1)}
    assert active(threads.beat("b", 3)) is None
    assert answered(threads.beat("a", 2, {"0": (0, 1)})).member_epoch == 3
    assert active(threads.beat("b", 3)) == {"0": (2, 3)}
    assert threads.described.group_state == "Stable"


def test_who_leaves_frees_its_tasks(threads: Threads) -> None:
    """What a member leaves behind goes to who is left; with the last one the group is empty, and can be deleted."""
    threads.join("a")
    threads.join("b")
    threads.beat("a", 2)
    threads.beat("a", 2, {"0": (0, 1)})
    threads.beat("a", -1)
    assert active(threads.beat("b", 3)) == {"0": (0, 1, 2, 3)}
    threads.beat("b", -1)
    listed = threads.driver.coordinator.call(ListGroups()).groups
    assert listed == (ListedGroup("group", "streams", "Empty", "streams"),)
    deleted = threads.driver.submit(DeleteGroups(("group",))).answer(DeleteGroupsResponse)
    assert deleted.results == (DeletedGroup("group", ErrorCode.NONE),)
    assert threads.described.error_code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_steady_heartbeat_writes_nothing(threads: Threads) -> None:
    """The same heartbeat again and again is answered the same, from memory."""
    threads.join("a")
    answers = [answered(threads.beat("a", 2)) for _ in range(3)]
    assert len(set(answers)) == 1
    assert answers[1] is answers[2]
    assert answers[0].active_tasks is None


def test_a_silent_member_is_put_out(driver: Driver, threads: Threads) -> None:
    """After the session time-out a member is gone, and with it the last of the group."""
    threads.join("a")
    driver.advance(44_999)
    assert threads.described.members
    driver.advance(1)
    assert threads.described.group_state == "Empty"


def test_who_keeps_its_tasks_is_put_out(driver: Driver, threads: Threads) -> None:
    """A member that does not give tasks back within its rebalance time-out is gone, however alive it is."""
    threads.join("a", rebalance_timeout_ms=1_000)
    threads.join("b")
    threads.beat("a", 2)
    driver.advance(999)
    assert answered(threads.beat("a", 2, {"0": (0, 1, 2, 3)})).error_code is ErrorCode.NONE
    driver.advance(1)
    assert answered(threads.beat("a", 2)).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_group_waits_for_more_members(topics: Topics) -> None:
    """Tasks are assigned when the delay is over, with nobody asking."""
    driver = Driver(topics=topics, **{**SETTINGS, "group_streams_initial_rebalance_delay_ms": 3_000})
    threads = Threads(driver)
    first = threads.join("a")
    assert (statuses(first), answered(first).member_epoch) == ([StreamsStatusCode.ASSIGNMENT_DELAYED], 1)
    (status,) = answered(first).status
    assert status.detail == "Assignment delayed due to the configured initial rebalance delay."
    threads.join("b")
    driver.advance(3_000)
    assert [active(threads.beat("a", 1)), active(threads.beat("b", 1))] == [{"0": (0, 2)}, {"0": (1, 3)}]


def test_a_topology_can_not_be_replaced(threads: Threads) -> None:
    """A newer topology is refused, an older one is told to be stale, and the same in another order is the same."""
    other = Topology(1, (Subtopology("0", ("lines", "more")),))
    two = Topology(1, (Subtopology("0", ("lines",)), Subtopology("1", ("lines",))))
    threads.topology = two
    threads.join("a")
    for topology in (other, two._replace(epoch=2)):
        assert answered(threads.join("b", topology=topology)).error_code is ErrorCode.INVALID_REQUEST
    assert statuses(threads.join("b", topology=LINES)) == [StreamsStatusCode.STALE_TOPOLOGY]
    turned = Topology(1, two.subtopologies[::-1])
    assert answered(threads.join("c", topology=turned)).error_code is ErrorCode.NONE


def test_what_a_member_tells_of_its_tasks_is_described(threads: Threads) -> None:
    """Offsets are kept until others are told; they are forgotten with the member."""
    threads.join("a")
    threads.beat("a", 2, task_offsets=(TaskOffset("0", 1, 7), TaskOffset("0", 0, 5)))
    threads.beat("a", 2)
    (member,) = threads.described.members
    assert member.task_offsets == (TaskOffset("0", 0, 5), TaskOffset("0", 1, 7))
    threads.beat("a", -1)
    threads.join("a")
    assert threads.described.members[0].task_offsets == ()


def test_who_asks_for_shutdown_is_told_to_all(threads: Threads) -> None:
    """Every member is told from then on, until all are gone."""
    threads.join("a")
    threads.join("b")
    assert statuses(threads.beat("b", 3, shutdown_application=True)) == [StreamsStatusCode.SHUTDOWN_APPLICATION]
    assert statuses(threads.beat("a", 2)) == [StreamsStatusCode.SHUTDOWN_APPLICATION]
    threads.beat("a", -1)
    threads.beat("b", -1)
    assert statuses(threads.join("a")) == []


# ---------------------------------------------------------------- internal topics


class Creator:
    """A host that creates topics, or says why not."""

    def __init__(self) -> None:
        self.asked: list[CreateInternalTopics] = []
        self.reason = ""

    def create(self, question: CreateInternalTopics) -> dict[str, str]:
        """Note what is asked for."""
        self.asked.append(question)
        return {topic.name: self.reason for topic in question.topics} if self.reason else {}


def creating(topics: Topics) -> tuple[Driver, Creator]:
    """Return a driver of a coordinator that asks for topics."""
    creator = Creator()

    class Creating(Driver):
        coordinator_class = staticmethod(
            lambda **given: GroupCoordinator(**given, create_internal_topics=creator.create)
        )

    return Creating(topics=topics, **SETTINGS), creator


def changelog_partitions(threads: Threads) -> int:
    """Return how many partitions administrators are told that the only changelog has."""
    topology = threads.described.topology
    assert topology is not None
    assert topology.subtopologies is not None
    (changelog,) = topology.subtopologies[1].state_changelog_topics
    return changelog.partitions


def test_missing_internal_topics_are_asked_for(topics: Topics) -> None:
    """The host is asked for them with their partitions; when they are there, tasks are assigned."""
    driver, creator = creating(topics)
    threads = Threads(driver, WORD_COUNT)
    first = threads.join("a")
    assert statuses(first) == [StreamsStatusCode.MISSING_INTERNAL_TOPICS]
    assert [(topic.name, topic.partition_count) for topic in creator.asked[0].topics] == [("counts", 4), ("words", 4)]
    assert threads.described.group_state == "NotReady"
    assert answered(threads.beat("a", 2, {"9": (9,)})).error_code is ErrorCode.NONE  # nobody looks yet what is a task
    assert changelog_partitions(threads) == 0
    topics.create("words", 4)
    topics.create("counts", 4)
    driver.coordinator.topics_created(["words", "counts"])
    assert active(threads.beat("a", 2)) == {"0": (0, 1, 2, 3), "1": (0, 1, 2, 3)}
    assert changelog_partitions(threads) == 4


def test_a_topic_that_could_not_be_created_is_asked_for_again_later(topics: Topics) -> None:
    """The reason is told for two intervals of heartbeats, and the topic is not asked for meanwhile."""
    driver, creator = creating(topics)
    creator.reason = "no room"
    threads = Threads(driver, WORD_COUNT)
    threads.join("a")
    told = answered(threads.beat("a", 2)).status
    assert told is not None
    assert "Creation failed: counts (no room), words (no room)" in told[0].detail
    assert len(creator.asked) == 1
    driver.advance(10_000)
    threads.beat("a", 2)
    assert len(creator.asked) == 2


# ---------------------------------------------------------------- the log, and restarts


def test_who_meets_a_write_shares_the_next(topics: Topics) -> None:
    """Joins that meet a write wait for it, and are written together; of a refused write nothing stays."""
    driver = Driver(late=True, topics=topics, **SETTINGS)
    threads = Threads(driver)
    threads.join("a")
    later = [threads.join("b"), threads.join("c")]
    assert len(driver.store.waiting()) == 1
    driver.write_all()
    assert [answered(sent).member_epoch for sent in later] == [3, 4]
    refused = threads.join("d")
    driver.refuse(NotEnoughReplicasError("refused"))
    assert answered(refused).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [member.member_id for member in threads.described.members] == ["a", "b", "c"]


def test_a_loaded_group_goes_on(driver: Driver, threads: Threads) -> None:
    """After a restart members keep their tasks, and nothing is written for them."""
    threads.join("a")
    threads.join("b")
    before = threads.described
    driver.restart()
    assert threads.described == before
    assert active(threads.beat("a", 2)) == {"0": (0, 1)}


# ---------------------------------------------------------------- assignors


class AllToFirst:
    """Gives all tasks to the first member."""

    name = "all-to-first"

    def assign(self, group: StreamsGroupSpec) -> dict[str, MemberTasks]:
        """See :class:`groupcoord.assignors.TaskAssignor`."""
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
    """A coordinator with a name that nobody has is not made."""
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
