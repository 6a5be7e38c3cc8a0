"""Testing what depends on a consumer group's time, without waiting for it: seven days pass in milliseconds.

The code under test is ``Reader``: it decides where to start reading. A group that was away for more than a week has
lost its offsets (``offsets.retention.minutes``), and then ``Reader`` has to start at the beginning, not at the end. The
last test shows how a silent member is dropped after exactly its session time-out.

    pip install . pytest
    pytest examples/virtual_clock_test.py       (or: python examples/virtual_clock_test.py)
"""

from __future__ import annotations

import time

import pytest

from groupcoord import Config, ErrorCode, GroupCoordinator, ManualClock
from groupcoord.messages import (
    DescribeGroups,
    GroupToFetch,
    JoinGroup,
    JoinProtocol,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    SyncAssignment,
    SyncGroup,
    TopicToCommit,
    TopicToFetch,
)

SECOND_MS = 1_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


# ---------------------------------------------------------------- the code under test


class Reader:
    """Reads one partition for a group.

    Args:
        coordinator: who keeps the group's offsets.
        group_id: the group.
    """

    def __init__(self, coordinator: GroupCoordinator, group_id: str) -> None:
        self._coordinator = coordinator
        self._group_id = group_id

    def start_position(self) -> int:
        """Return the committed offset, or the beginning if there is none (any more)."""
        wanted = GroupToFetch(self._group_id, (TopicToFetch("orders", (0,)),))
        fetched = self._coordinator.call(OffsetFetch((wanted,)))
        return max(fetched.groups[0].topics[0].partitions[0].committed_offset, 0)

    def commit(self, position: int) -> None:
        """Remember how far the group has read."""
        topics = (TopicToCommit("orders", (OffsetToCommit(0, position),)),)
        self._coordinator.call(OffsetCommit(self._group_id, topics))


# ---------------------------------------------------------------- the tests


class World:
    """A coordinator and its clock.

    One log partition will do here; each of the usual 50 would look for expired offsets every ten minutes.
    """

    def __init__(self) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.coordinator = GroupCoordinator(config=Config(offsets_topic_num_partitions=1), clock=self.clock)
        self.coordinator.load_all()

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass from deadline to deadline, so that every timer fires at its exact moment."""
        end_ms = self.clock.now_ms() + duration_ms
        while (deadline_ms := self.coordinator.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.clock.advance_to(max(deadline_ms, self.clock.now_ms()))
            self.coordinator.tick()
        self.clock.advance_to(end_ms)


@pytest.fixture
def world() -> World:
    """A coordinator at a fixed time."""
    return World()


def test_a_reader_starts_over_after_a_week_of_silence(world: World) -> None:
    """Offsets live for seven days after the last commit; then the reader starts at the beginning."""
    reader = Reader(world.coordinator, "nightly-report")
    reader.commit(1_000_000)

    world.pass_time(7 * DAY_MS - 1)
    assert reader.start_position() == 1_000_000

    world.pass_time(1 + 10 * 60 * SECOND_MS)  # expiry is looked for every ten minutes
    assert reader.start_position() == 0


def test_a_commit_a_week_keeps_the_offset(world: World) -> None:
    """Every commit starts the seven days anew, for a year if need be."""
    reader = Reader(world.coordinator, "weekly-report")
    for week in range(52):
        assert reader.start_position() == week
        reader.commit(week + 1)
        world.pass_time(7 * DAY_MS - HOUR_MS)

    assert reader.start_position() == 52


def test_a_silent_member_is_dropped_after_its_session_timeout(world: World) -> None:
    """45 seconds after its last word, not a millisecond earlier, the member is gone and the group empty."""
    coordinator = world.coordinator
    coordinator.submit(JoinGroup("crew", protocols=(JoinProtocol("range", b""),), requires_known_member_id=False))
    world.pass_time(3 * SECOND_MS)  # group.initial.rebalance.delay.ms
    (joined,) = (reply.response for reply in coordinator.take_replies())
    everything = (SyncAssignment(joined.member_id, b"orders 0"),)
    synced = coordinator.call(SyncGroup("crew", joined.generation_id, joined.member_id, assignments=everything))
    assert synced.error_code is ErrorCode.NONE

    world.pass_time(45 * SECOND_MS - 1)
    assert state_of("crew", coordinator) == "Stable"

    world.pass_time(1)
    assert state_of("crew", coordinator) == "Empty"


def state_of(group_id: str, coordinator: GroupCoordinator) -> str:
    """Return a group's state as administrators see it."""
    return coordinator.call(DescribeGroups((group_id,))).groups[0].group_state


if __name__ == "__main__":
    for test, days in (
        (test_a_reader_starts_over_after_a_week_of_silence, "7 days"),
        (test_a_commit_a_week_keeps_the_offset, "362 days"),
        (test_a_silent_member_is_dropped_after_its_session_timeout, "48 seconds"),
    ):
        started_s = time.perf_counter()
        test(World())
        print(f"{test.__name__}: {days} in {(time.perf_counter() - started_s) * 1000:.1f} ms")
