"""Share groups and their share coordinator in one event loop, each with a slow log."""

from __future__ import annotations

import asyncio

import pytest

from groupcoord import Config, ErrorCode, GroupCoordinator, PartitionStatus
from groupcoord.aio import AsyncCoordinator, TaskLogStore
from groupcoord.coordinator.loading import LoadError
from groupcoord.coordinator.share_coordinator import EmbeddedShare, ShareCoordinator
from groupcoord.core.messages.share_state import (
    InitializeShareGroupState,
    ReadShareGroupState,
    StateToInitialize,
    StateTopicToInitialize,
    StateTopicToRead,
    StateTopicToWrite,
    StateToRead,
    StateToWrite,
    WriteShareGroupState,
)
from groupcoord.log_store import NotEnoughReplicasError, StorageError
from groupcoord.messages import (
    DescribeShareGroupOffsets,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResponse,
    ShareGroupToDescribe,
    ShareTopicToDescribe,
)
from groupcoord.testing.topics import Topics

from .test_coordinator import run
from .test_log_store import SlowStore

CONFIG = Config(
    group_share_assignment_interval_ms=0,
    offsets_topic_num_partitions=2,
    share_coordinator_state_topic_num_partitions=2,
    share_coordinator_write_timeout_ms=50,
)


class Program:
    """A program with both coordinators, which may start more than once on the same logs."""

    def __init__(self) -> None:
        self.groups, self.states = SlowStore(), SlowStore()
        self.topics = Topics(orders=2)

    def start(self) -> AsyncCoordinator:
        states = ShareCoordinator(config=CONFIG, log_store=TaskLogStore(self.states), topics=self.topics)
        share = EmbeddedShare(states, latest_offset=lambda topic, partition: 10)
        groups = GroupCoordinator(config=CONFIG, log_store=TaskLogStore(self.groups), topics=self.topics, share=share)
        return AsyncCoordinator(groups, share=share)

    def reading(self) -> ReadShareGroupState:
        topic_id = self.topics.topic_id("orders")
        assert topic_id is not None
        return ReadShareGroupState("crew", (StateTopicToRead(topic_id, (StateToRead(0, 0), StateToRead(1, 0))),))


async def joined(coordinator: AsyncCoordinator) -> ShareGroupHeartbeatResponse:
    answer = await coordinator.ask(ShareGroupHeartbeat("crew", "a", 0, None, ("orders",)))
    for _ in range(1_000):
        if answer.assignment:
            return answer
        answer = await coordinator.ask(ShareGroupHeartbeat("crew", "a", answer.member_epoch, None, ("orders",)))
        await asyncio.sleep(0)
    raise AssertionError(answer)


def test_groups_wait_for_the_states_of_their_partitions() -> None:
    """A member has partitions when both logs have taken what is to be written; a restart knows all of it."""
    program = Program()

    async def first() -> None:
        async with program.start() as coordinator:
            answer = await joined(coordinator)
            assert answer.assignment is not None
            assert [index for topic in answer.assignment for index in topic.partitions] == [0, 1]

    async def again() -> None:
        async with program.start() as coordinator:
            states = (await coordinator.ask(program.reading())).results[0].partitions
            assert [(state.error_code, state.start_offset) for state in states] == [(ErrorCode.NONE, -1)] * 2
            (group,) = (await coordinator.ask(DescribeShareGroupOffsets((ShareGroupToDescribe("crew"),)))).groups
            assert [len(topic.partitions) for topic in group.topics] == [2]

    run(first())
    run(again())


def test_how_much_is_left() -> None:
    """The embedding program's end offsets, less what the share coordinator counts as delivered."""
    program = Program()
    topic_id = program.topics.topic_id("orders")
    assert topic_id is not None
    begun = InitializeShareGroupState("crew", (StateTopicToInitialize(topic_id, (StateToInitialize(0, 1, 3),)),))
    written = WriteShareGroupState("crew", (StateTopicToWrite(topic_id, (StateToWrite(0, 1, 0, 3, (), 2),)),))
    wanted = ShareGroupToDescribe("crew", (ShareTopicToDescribe("orders", (0, 1)),))

    async def scenario() -> None:
        async with program.start() as coordinator:
            await coordinator.ask(begun)
            await coordinator.ask(written)
            (group,) = (await coordinator.ask(DescribeShareGroupOffsets((wanted,)))).groups
            assert [entry.lag for entry in group.topics[0].partitions] == [5, -1]

    run(scenario())


def test_a_log_that_refuses_or_hangs() -> None:
    """The request fails; the group retries, and requests that wait too long fail as well."""
    program = Program()

    async def scenario() -> None:
        async with program.start() as coordinator:
            program.states.failures.append(NotEnoughReplicasError("too few"))
            topic_id = program.topics.topic_id("orders")
            assert topic_id is not None
            entry = StateTopicToInitialize(topic_id, (StateToInitialize(0, 1, 0),))
            asked = InitializeShareGroupState("crew", (entry,))
            answer = await coordinator.ask(asked)
            assert answer.results[0].partitions[0].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            held = asyncio.Event()
            append = program.states.append

            async def hang(*arguments: object) -> int:
                await held.wait()
                return await append(*arguments)  # type: ignore[arg-type]

            program.states.append = hang  # type: ignore[method-assign]
            answer = await coordinator.ask(asked)
            assert answer.results[0].partitions[0].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            held.set()
            assert (await joined(coordinator)).assignment

    run(scenario())


def test_a_log_that_cannot_be_read() -> None:
    program = Program()

    def fail(partition: int) -> None:
        raise StorageError("gone")

    program.states.log.read = fail  # type: ignore[method-assign, assignment]

    async def scenario() -> None:
        coordinator = program.start()
        with pytest.raises(LoadError):
            await coordinator.start()
        assert coordinator.coordinator.status(0) is PartitionStatus.ACTIVE, "the log of the groups is another one"
        await coordinator.close()

    run(scenario())


def test_whoever_waits_at_the_end_is_told() -> None:
    program = Program()

    async def scenario() -> None:
        async with program.start() as coordinator:
            await joined(coordinator)
            topic_id = program.topics.topic_id("orders")
            assert topic_id is not None
            entry = StateTopicToInitialize(topic_id, (StateToInitialize(0, 5, 0),))
            waiting = coordinator.submit(InitializeShareGroupState("crew", (entry,)))
        assert waiting.result().results[0].partitions[0].error_code is ErrorCode.NOT_COORDINATOR

    run(scenario())
