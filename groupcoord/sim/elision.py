"""Leaving out what a steady group repeats: heartbeats, and commits that the next ones replace.

A group is steady when its coordinator has it Stable, every live consumer is settled in that generation, and nothing
else is alive in it. From then on, until the next fault, a consumer only repeats itself with a period: the least common
multiple of its heartbeat and commit intervals. Such a consumer, at a moment when none of its requests is under way,
leaves out as many whole periods as fit before the next fault: its clock stands still for them. :data:`guard_ms` before
the fault it goes on, so that each heartbeat and commit that the fault can meet is a real one.

The story stays the same, to the digest. What a steady heartbeat changes is the member's session deadline; what a steady
commit changes are offsets and times that the next one replaces. The real ones before the fault set both as if none had
been left out. How long messages take and when the log writes depends on the moment alone, never on how much went
before. Log offsets are not part of the story: in the log, commits that were left out are missing. Meanwhile the
coordinator hears of the consumer just often enough to keep its session.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from groupcoord.errors import ErrorCode
from groupcoord.laws import LawBrokenError
from groupcoord.messages import Heartbeat, HeartbeatResponse
from groupcoord.sim.scheduler import WORLD_RANK

if TYPE_CHECKING:
    from groupcoord.sim.consumers import Consumer
    from groupcoord.sim.groups import SimulatedGroup


class Disturbances:
    """When something is to happen to a group from outside.

    Args:
        windows: (start, end) of each fault, milliseconds since the Unix epoch.
        end_ms: the end of the story, which finds everything as it is.
    """

    def __init__(self, windows: Iterable[tuple[int, int]], end_ms: int) -> None:
        ordered = sorted(windows)
        self._end_ms = end_ms
        self._starts = [start for start, _ in ordered]
        self._latest_ends: list[int] = []
        latest = -1
        for _, end in ordered:
            latest = max(latest, end)
            self._latest_ends.append(latest)

    def next_ms(self, now_ms: int) -> int:
        """Return when the next one begins; now, if one is under way."""
        index = bisect_right(self._starts, now_ms)
        if index and self._latest_ends[index - 1] >= now_ms:
            return now_ms
        return min(self._starts[index], self._end_ms) if index < len(self._starts) else self._end_ms


class Sleep(NamedTuple):
    """Until when a consumer sleeps, and what keeps its session meanwhile."""

    until_ms: int
    heartbeat: Heartbeat


TAKEN = HeartbeatResponse(ErrorCode.NONE)


class Elision:
    """Leaves out what one group repeats.

    Args:
        group: the group.
        disturbances: when it must be awake.
        most_latency_ms: how long messages may take.
    """

    def __init__(self, group: SimulatedGroup, disturbances: Disturbances, most_latency_ms: int) -> None:
        member = group.options.member
        longest_ms = member.heartbeat_interval_ms
        if member.enable_auto_commit:
            longest_ms = max(longest_ms, member.auto_commit_interval_ms)
        self.guard_ms = 2 * longest_ms + 10 * most_latency_ms
        self._group = group
        self._disturbances = disturbances
        self._period_ms = group.period_ms
        # From the last of these until the first real heartbeat, the session must not end.
        self._step_ms = member.session_timeout_ms - member.heartbeat_interval_ms - 4 * most_latency_ms - 1
        self._is_possible = self._step_ms >= member.session_timeout_ms // 3
        self._sleepers: dict[Consumer, Sleep] = {}

    def consider(self, consumer: Consumer) -> None:
        """Let a consumer leave out what it may. It has just had an answer."""
        member = consumer.member
        if consumer.in_flight or member is None or not member.is_steady:
            return
        if not self._is_possible or not consumer.clock.keeps_time:
            return
        scheduler = self._group.world.scheduler
        now_ms = scheduler.time_ms
        periods = (self._disturbances.next_ms(now_ms) - self.guard_ms - now_ms) // self._period_ms
        if periods < 1 or not self._group.is_steady():
            return
        duration_ms = periods * self._period_ms
        if not self._sleepers:
            scheduler.at(now_ms + self._step_ms, WORLD_RANK, self._keep_sessions)
        group_id, instance_id = self._group.options.group_id, consumer.config.group_instance_id
        heartbeat = Heartbeat(group_id, member.generation_id, member.member_id, instance_id)
        self._sleepers[consumer] = Sleep(now_ms + duration_ms, heartbeat)
        consumer.leave_out(duration_ms)

    def _keep_sessions(self, _: None) -> None:
        """Let the coordinator hear of those who sleep, so that it does not take them for dead."""
        group_id, world = self._group.options.group_id, self._group.world
        now_ms = world.scheduler.time_ms
        self._sleepers = {c: sleep for c, sleep in self._sleepers.items() if sleep.until_ms > now_ms}
        if not self._sleepers:
            return
        node = world.cluster.serving_node(group_id)
        assert node is not None, "nothing has disturbed the group"
        coordinator = node.coordinator
        assert coordinator is not None
        world.cluster.active[node] = None
        for sleep in self._sleepers.values():
            coordinator.submit(sleep.heartbeat)
        for _, response in coordinator.take_replies():
            if response != TAKEN:
                raise LawBrokenError(f"the heartbeat of a steady member of {group_id!r} is answered {response}")
        world.scheduler.at(now_ms + self._step_ms, WORLD_RANK, self._keep_sessions)
