"""Fast-forwarding of steady groups: skips repeated heartbeats and commits without changing the result.

A group is steady when its coordinator has it Stable, every live consumer is settled in that generation or epoch, all
use the same protocol, and no other client of the group is active. Until the next fault a consumer then repeats itself
with a period: the least common multiple of its heartbeat and commit intervals. A consumer without a request in flight
skips as many whole periods as fit before the next fault. Its clock stands still for them. It resumes
:meth:`FastForward.guard_ms` before the fault, so that each heartbeat and commit that the fault can affect is sent.

The trace stays the same, to the digest. A steady heartbeat changes the member's session deadline. A steady commit
changes offsets and times that the next one replaces. The real ones before the fault set both as if none had been
skipped. Latencies of messages and of the log depend on the moment alone, not on earlier events. Log offsets are not
part of the trace, because skipped commits are missing in the log. Meanwhile the coordinator receives just enough
heartbeats to keep the session.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from math import lcm
from typing import NamedTuple

from groupcoord.errors import ErrorCode
from groupcoord.laws import LawBrokenError
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    Heartbeat,
    HeartbeatResponse,
    Response,
)
from groupcoord.sim.actors.consumers import Consumer
from groupcoord.sim.actors.environment import GroupProtocol, Stage
from groupcoord.sim.actors.groups import SimulatedGroup
from groupcoord.sim.kernel import WORLD_RANK


class Disturbances:
    """Planned external events of a group.

    Args:
        windows: start and end of each fault, milliseconds since the Unix epoch.
        end_ms: end of the run, when the state must be as without skipping.
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
        """Return the start of the next event, or the current time during one."""
        index = bisect_right(self._starts, now_ms)
        if index and self._latest_ends[index - 1] >= now_ms:
            return now_ms
        return min(self._starts[index], self._end_ms) if index < len(self._starts) else self._end_ms


class Pace(NamedTuple):
    """Intervals of consumers of one protocol.

    Attributes:
        commit_interval_ms: interval of automatic commits, or None without them.
    """

    heartbeat_interval_ms: int
    session_timeout_ms: int
    commit_interval_ms: int | None

    @property
    def period_ms(self) -> int:
        return lcm(self.heartbeat_interval_ms, self.commit_interval_ms or 1)

    @property
    def longest_ms(self) -> int:
        return max(self.heartbeat_interval_ms, self.commit_interval_ms or 0)


class Skip(NamedTuple):
    """Skipped time of a consumer, with the heartbeat that keeps its session."""

    until_ms: int
    heartbeat: Heartbeat | ConsumerGroupHeartbeat


class FastForward:
    """Fast-forwarding of the consumers of one group."""

    def __init__(self, group: SimulatedGroup, stage: Stage, disturbances: Disturbances) -> None:
        member, settings = group.options.member, stage.cluster.settings_of(group.options.group_id)
        commit_interval_ms = max(member.auto_commit_interval_ms, 1) if member.enable_auto_commit else None
        self._paces = {
            GroupProtocol.CLASSIC: Pace(member.heartbeat_interval_ms, member.session_timeout_ms, commit_interval_ms),
            GroupProtocol.CONSUMER: Pace(
                settings.heartbeat_interval_ms, settings.session_timeout_ms, commit_interval_ms
            ),
        }
        self._group = group
        self._stage = stage
        self._disturbances = disturbances
        self._skipping: dict[Consumer, Skip] = {}
        self._keep_sessions_ms: int | None = None

    def guard_ms(self, pace: Pace) -> int:
        """Return how long before a fault consumers resume."""
        return 2 * pace.longest_ms + 10 * self._stage.cluster.options.most_latency_ms

    def _step_ms(self, pace: Pace) -> int:
        """Return the longest time without a heartbeat at the coordinator while time is skipped.

        The session must not expire between the last of these heartbeats and the first real one.
        """
        latency_ms = self._stage.cluster.options.most_latency_ms
        return pace.session_timeout_ms - pace.heartbeat_interval_ms - 4 * latency_ms - 1

    def consider(self, consumer: Consumer) -> None:
        """Skip time for a consumer that has just received a heartbeat response, if its group is steady."""
        member = consumer.member
        if consumer.in_flight or member is None or not member.is_steady:
            return
        pace = self._paces[consumer.protocol]
        if self._step_ms(pace) < pace.session_timeout_ms // 3 or not consumer.clock.keeps_time:
            return
        if pace.heartbeat_interval_ms <= self._stage.round_trip_ms:
            # A heartbeat that waits for the previous response is late, and so are those after it.
            return
        scheduler = self._stage.scheduler
        now_ms = scheduler.time_ms
        periods = (self._disturbances.next_ms(now_ms) - self.guard_ms(pace) - now_ms) // pace.period_ms
        if periods < 1 or not self._group.is_steady():
            return
        duration_ms = periods * pace.period_ms
        self._keep_sessions_by(now_ms + self._step_ms(pace))
        self._skipping[consumer] = Skip(now_ms + duration_ms, self._heartbeat_of(consumer))
        consumer.skip(duration_ms)

    def _heartbeat_of(self, consumer: Consumer) -> Heartbeat | ConsumerGroupHeartbeat:
        group_id, instance_id = self._group.options.group_id, consumer.config.group_instance_id
        member = consumer.member
        assert member is not None
        if consumer.protocol is GroupProtocol.CLASSIC:
            return Heartbeat(group_id, member.generation_id, member.member_id, instance_id)
        name = consumer.config.client_id
        return ConsumerGroupHeartbeat(group_id, member.member_id, member.generation_id, instance_id, client_id=name)

    def _keep_sessions_by(self, due_ms: int) -> None:
        if self._keep_sessions_ms is None or due_ms < self._keep_sessions_ms:
            self._keep_sessions_ms = due_ms
            self._stage.scheduler.at(due_ms, WORLD_RANK, self._keep_sessions, due_ms)

    def _keep_sessions(self, due_ms: int) -> None:
        if due_ms != self._keep_sessions_ms:
            return
        self._keep_sessions_ms = None
        group_id, cluster = self._group.options.group_id, self._stage.cluster
        now_ms = self._stage.scheduler.time_ms
        self._skipping = {c: skip for c, skip in self._skipping.items() if skip.until_ms > now_ms}
        if not self._skipping:
            return
        node = cluster.serving_node(group_id)
        assert node is not None, "nothing has disturbed the group"
        coordinator = node.coordinator
        assert coordinator is not None
        cluster.active[node] = None
        for consumer, skip in self._skipping.items():
            coordinator.submit(skip.heartbeat, consumer)
        for token, response in coordinator.take_replies():
            if not _is_steady(response, token.member.generation_id):
                raise LawBrokenError(f"the heartbeat of a steady member of {group_id!r} is answered {response}")
        step_ms = min(self._step_ms(self._paces[consumer.protocol]) for consumer in self._skipping)
        self._keep_sessions_by(now_ms + step_ms)


def _is_steady(response: Response | None, epoch: int) -> bool:
    match response:
        case HeartbeatResponse():
            return response.error_code is ErrorCode.NONE
        case ConsumerGroupHeartbeatResponse():
            return (response.error_code, response.member_epoch, response.assignment) == (ErrorCode.NONE, epoch, None)
        case _:
            return False
