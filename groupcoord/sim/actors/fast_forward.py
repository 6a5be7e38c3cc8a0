"""Fast-forwarding steady groups: the heartbeats that they repeat, and the commits that the next ones replace.

A group is steady when its coordinator has it Stable, every live consumer is settled in that generation, and nothing
else is alive in it. From then on, until the next fault, a consumer only repeats itself with a period: the least common
multiple of its heartbeat and commit intervals. Such a consumer, at a moment when none of its requests is under way,
skips as many whole periods as fit before the next fault: its clock stands still for them. :data:`guard_ms` before
the fault it goes on, so that each heartbeat and commit that the fault can meet is a real one.

The trace stays the same, to the digest. What a steady heartbeat changes is the member's session deadline; what a steady
commit changes are offsets and times that the next one replaces. The real ones before the fault set both as if none had
been skipped. How long messages take and when the log writes depends on the moment alone, never on how much went
before. Log offsets are not part of the trace: in the log, commits that were skipped are missing. Meanwhile the
coordinator hears of the consumer just often enough to keep its session.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from groupcoord.errors import ErrorCode
from groupcoord.laws import LawBrokenError
from groupcoord.messages import Heartbeat, HeartbeatResponse
from groupcoord.sim.actors.consumers import Consumer
from groupcoord.sim.actors.groups import SimulatedGroup
from groupcoord.sim.actors.stage import Stage
from groupcoord.sim.kernel.scheduler import WORLD_RANK


class Disturbances:
    """When something is planned to happen to a group from outside.

    Args:
        windows: (start, end) of each fault, milliseconds since the Unix epoch.
        end_ms: the end of the run, when everything must be as it would be.
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


class Skip(NamedTuple):
    """Until when a consumer skips time, and what keeps its session meanwhile."""

    until_ms: int
    heartbeat: Heartbeat


TAKEN = HeartbeatResponse(ErrorCode.NONE)


class FastForward:
    """Lets the consumers of one group skip what they repeat.

    Args:
        group: the group.
        stage: where it acts.
        disturbances: when it must not skip anything.
    """

    def __init__(self, group: SimulatedGroup, stage: Stage, disturbances: Disturbances) -> None:
        member, most_latency_ms = group.options.member, stage.cluster.options.most_latency_ms
        longest_ms = member.heartbeat_interval_ms
        if member.enable_auto_commit:
            longest_ms = max(longest_ms, member.auto_commit_interval_ms)
        self.guard_ms = 2 * longest_ms + 10 * most_latency_ms
        self._group = group
        self._stage = stage
        self._disturbances = disturbances
        self._period_ms = group.period_ms
        # From the last of these until the first real heartbeat, the session must not end.
        self._step_ms = member.session_timeout_ms - member.heartbeat_interval_ms - 4 * most_latency_ms - 1
        self._is_possible = self._step_ms >= member.session_timeout_ms // 3
        self._skipping: dict[Consumer, Skip] = {}

    def consider(self, consumer: Consumer) -> None:
        """Let a consumer skip what it may. It has just had the answer of a heartbeat."""
        member = consumer.member
        if consumer.in_flight or member is None or not member.is_steady:
            return
        if not self._is_possible or not consumer.clock.keeps_time:
            return
        scheduler = self._stage.scheduler
        now_ms = scheduler.time_ms
        periods = (self._disturbances.next_ms(now_ms) - self.guard_ms - now_ms) // self._period_ms
        if periods < 1 or not self._group.is_steady():
            return
        duration_ms = periods * self._period_ms
        if not self._skipping:
            scheduler.at(now_ms + self._step_ms, WORLD_RANK, self._keep_sessions)
        group_id, instance_id = self._group.options.group_id, consumer.config.group_instance_id
        heartbeat = Heartbeat(group_id, member.generation_id, member.member_id, instance_id)
        self._skipping[consumer] = Skip(now_ms + duration_ms, heartbeat)
        consumer.skip(duration_ms)

    def _keep_sessions(self, _: None) -> None:
        """Let the coordinator hear of those who skip time, so that it does not take them for dead."""
        group_id, cluster = self._group.options.group_id, self._stage.cluster
        now_ms = self._stage.scheduler.time_ms
        self._skipping = {c: skip for c, skip in self._skipping.items() if skip.until_ms > now_ms}
        if not self._skipping:
            return
        node = cluster.serving_node(group_id)
        assert node is not None, "nothing has disturbed the group"
        coordinator = node.coordinator
        assert coordinator is not None
        cluster.environment.active[node] = None
        for skip in self._skipping.values():
            coordinator.submit(skip.heartbeat)
        for _, response in coordinator.take_replies():
            if response != TAKEN:
                raise LawBrokenError(f"the heartbeat of a steady member of {group_id!r} is answered {response}")
        self._stage.scheduler.at(now_ms + self._step_ms, WORLD_RANK, self._keep_sessions)
