"""Log stores that fail or break their contract: which data is lost, and which a new load restores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from groupcoord import (
    ErrorCode,
    GroupCoordinator,
    LogRecord,
    ManualClock,
    MemoryLogStore,
    PartitionStatus,
    Ticket,
)
from groupcoord.log_store import AppendTimedOutError, LogStoreError
from groupcoord.messages import (
    DeleteGroups,
    Heartbeat,
    OffsetCommit,
    OffsetToCommit,
    TopicToCommit,
)
from tests.core.driver import Driver, Group


def test_everything_under_way_fails() -> None:
    """Requests that wait for the log get the error, those that wait for members NOT_COORDINATOR."""
    driver = Driver(late=True)
    stable, preparing, completing = Group(driver, "s"), Group(driver, "p"), Group(driver, "c")
    stable.generation_of("@x")
    driver.write()
    stable.assign()
    completing.generation_of("y", "z")
    preparing.join("w")
    driver.write()
    sent = [stable.join("x", instance="x"), completing.sync("y-1"), stable.commit(1, member_id="x-2")]
    joins = preparing.join("v")
    driver.refuse(AppendTimedOutError(), 1)
    assert [entry.error for entry in sent] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    assert joins.error is ErrorCode.NOT_COORDINATOR
    assert driver.coordinator.next_deadline_ms() is None


class ScriptedStore(MemoryLogStore):
    """Answers appends from a script of offsets, None and exceptions; then like a log in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[int | BaseException | None] = []

    def append(self, partition: int, ticket: Ticket, records: Sequence[LogRecord]) -> int | None:
        """Follow the script."""
        if not self.script:
            return super().append(partition, ticket, records)
        step = self.script.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


@pytest.fixture
def coordinator(store: ScriptedStore) -> GroupCoordinator:
    """A coordinator of two log partitions."""
    driver = Driver(offsets_topic_num_partitions=2)
    coordinator = GroupCoordinator(config=driver.config, clock=ManualClock(), log_store=store)
    coordinator.load_all()
    return coordinator


def commit(group_id: str = "group", offset: int = 1) -> OffsetCommit:
    return OffsetCommit(group_id, (TopicToCommit("orders", (OffsetToCommit(0, offset),)),))


@pytest.mark.parametrize("error", [LogStoreError("injected"), KeyError("bug")], ids=["log store", "anything"])
def test_a_deletion_over_two_partitions_of_which_one_fails(
    coordinator: GroupCoordinator, store: ScriptedStore, error: Exception
) -> None:
    """The caller gets one response, with a result per group, whatever the store raised."""
    index = coordinator.partition_of("group")
    other = next(name for name in "abcdefgh" if coordinator.partition_of(name) != index)
    coordinator.submit(commit())
    coordinator.submit(commit(other))
    coordinator.take_replies()
    store.script, replies = [error], {}
    try:
        coordinator.submit(DeleteGroups(("group", other)), "mine")
    except KeyError:
        replies = dict(coordinator.take_replies())
        coordinator.submit(Heartbeat("group", 1, "m"), "next")
    replies |= dict(coordinator.take_replies())
    assert replies.keys() <= {"mine", "next"}
    assert dict(replies["mine"].results) == {"group": ErrorCode.UNKNOWN_SERVER_ERROR, other: ErrorCode.NONE}


class UnreadableStore(MemoryLogStore):
    """Raises what no log store should while it is read."""

    def read(self, partition: int) -> Iterator[LogRecord]:
        """Fail."""
        raise OSError("not a log store's error")


def test_a_store_that_raises_something_else_while_it_is_read() -> None:
    """The partition has failed and can be loaded again; it does not look as if it were loading."""
    coordinator = GroupCoordinator(clock=ManualClock(), log_store=UnreadableStore())
    with pytest.raises(Exception, match="not a log store's error"):
        coordinator.load(0)
    assert coordinator.status(0) is PartitionStatus.FAILED
