"""Groups of simulated consumers: whether they are steady or at rest, and fast-forwarding of steady ones.

A group is steady when it is Stable and every live consumer is settled in its generation or epoch. All of them use the
same protocol, and no other client of the group is active. Until the next fault a consumer then repeats itself
with a period: the least common multiple of its heartbeat and commit intervals. A consumer without a request in flight
skips as many whole periods as fit before the next fault. Its clock stands still for them. It resumes
:meth:`FastForward.guard_ms` before the fault, so that each heartbeat and commit that the fault can affect is sent.

The trace stays the same, to the digest: skipped heartbeats and commits change only session deadlines and offsets, which
the real ones before the fault set again. Latencies of messages and of the log depend on the moment alone. Log offsets
are not part of the trace, because skipped commits are missing in the log. Meanwhile the coordinator receives just
enough heartbeats to keep the session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import lcm
from typing import NamedTuple
from uuid import UUID

from groupcoord.config import MigrationPolicy
from groupcoord.core.groups.classic.group import GroupState
from groupcoord.core.groups.consumer.group import ConsumerGroup, ConsumerGroupState, ConsumerMember
from groupcoord.core.groups.group import Group
from groupcoord.core.groups.group_types import as_classic_group, as_consumer_group
from groupcoord.core.timers import TimerKind
from groupcoord.errors import ErrorCode
from groupcoord.events import Cause, Event, GroupLoaded, GroupRemoved, RebalanceCompleted, RebalanceStarted
from groupcoord.laws import require
from groupcoord.member import TopicPartition
from groupcoord.member.membership import MemberState
from groupcoord.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    Heartbeat,
    HeartbeatResponse,
    Node,
    Response,
)
from groupcoord.sim.actors.consumers import Consumer
from groupcoord.sim.actors.environment import GroupOptions, GroupProtocol, Stage
from groupcoord.sim.actors.observations import GroupObservations
from groupcoord.sim.kernel import WORLD_RANK, ignore

LOOK_INTERVAL_MS = 1_000
"""Time for which an unsteady group is not examined again, unless an event affects it."""


class Seat(NamedTuple):
    """Member of a group as its coordinator knows it. ``partitions`` is None if only the leader knows its assignment."""

    generation_id: int
    heard_ms: int | None
    partitions: frozenset[TopicPartition] | None


class SimulatedGroup:
    """Consumers of one group."""

    def __init__(self, options: GroupOptions, stage: Stage, first_number: int) -> None:
        self.options = options
        self.stage = stage
        self.on_heartbeat: Callable[[Consumer], None] = ignore
        self.scripted_clients = 0
        self.has_changed_protocol = False
        self.observations = GroupObservations(stage.topics.partitions_of(options.topics), stage.start_ms)
        self.consumers = [Consumer(first_number + index, index, self) for index in range(options.consumer_count)]
        self._first_partitions = stage.topics.partitions_of(options.topics)
        self._is_steady = False
        self._looks_again_ms = 0
        self._is_rebalancing = False
        self._has_lost_rebalance = False

    @property
    def requests_sent(self) -> int:
        return sum(consumer.requests_sent for consumer in self.consumers)

    def coordinator_event(self, event: Event) -> None:
        self.disturbed()
        match event:
            case RebalanceStarted():
                self._is_rebalancing = True
            case RebalanceCompleted():
                self._is_rebalancing = self._has_lost_rebalance = False
            case GroupRemoved() if event.cause is not Cause.UNLOAD:
                self._is_rebalancing = False
            case GroupLoaded():  # the request to rejoin is not in the log
                self._has_lost_rebalance = self._is_rebalancing

    def disturbed(self) -> None:
        self._is_steady, self._looks_again_ms = False, 0

    def is_steady(self) -> bool:
        """Return whether all consumers and the coordinator are settled in the same state."""
        if self.scripted_clients or self.options.processing_ms[1]:
            return False
        now_ms = self.stage.scheduler.time_ms
        if not self._is_steady and now_ms >= self._looks_again_ms:
            self._is_steady, self._looks_again_ms = self._find_steady(), now_ms + LOOK_INTERVAL_MS
        return self._is_steady

    def _find_steady(self) -> bool:
        if any(consumer.will_restart for consumer in self.consumers):
            return False
        alive = [consumer for consumer in self.consumers if consumer.is_alive]
        if self.options.regex or len({consumer.protocol for consumer in alive}) > 1:
            # Regular expressions are matched periodically, and the two protocols have different heartbeat intervals.
            return False
        if any(self.stage.topics.partition_count(p.topic) is None for consumer in alive for p in consumer.owned):
            # Commits for a deleted topic fail and are retried at once.
            return False
        known = self.stage.cluster.known_group(self.options.group_id)
        return known is not None and self._is_made_of(alive, *known)

    def _is_made_of(self, consumers: list[Consumer], group: Group | None, node: Node) -> bool:
        if group is None or not self._is_stable(group):
            return False
        seats = self._seats(group)
        return len(consumers) == len(seats) and all(
            (seat := seats.get(consumer.member_id)) is not None
            and _is_settled(consumer, seat, node)
            and self._is_heard(consumer, seat)
            for consumer in consumers
        )

    def _is_stable(self, group: Group) -> bool:
        if (classic := as_classic_group(group)) is not None:
            return classic.state is GroupState.STABLE and not classic.pending_members and not classic.pending_sync
        modern = as_consumer_group(group)
        return modern is not None and self._is_stable_consumer_group(modern)

    def _is_stable_consumer_group(self, group: ConsumerGroup) -> bool:
        if group.writing is not None or group.waiting or group.is_resolving:
            return False
        if group.is_topics_look_due and group.state.classic_member_count < len(group.state.members):
            # The next heartbeat may find changed topics, except in the classic protocol.
            return False
        matched = {name for found in group.state.resolved.values() for name in found.topics}
        if not matched.issubset(self.stage.topics.names()):
            return False  # deleted topics are noticed when expressions are matched again
        return group.group_state is ConsumerGroupState.STABLE or self._is_left_to_classic_members(group)

    def _is_left_to_classic_members(self, group: ConsumerGroup) -> bool:
        """Return whether all members of a consumer group use the classic protocol and it can't be converted.

        A departure creates a new epoch but, as in Kafka, no new target.
        """
        if self.stage.cluster.config.group_consumer_migration_policy.allows_downgrade:
            return False
        state = group.state
        is_theirs = bool(state.members) and state.classic_member_count == len(state.members)
        return is_theirs and all(map(state.is_settled, state.members.values()))

    def _seats(self, group: Group) -> dict[str, Seat]:
        if (modern := as_consumer_group(group)) is not None:
            topics = self.stage.topics
            # Classic members are not notified of a deleted topic, and keep it even if another topic gets its name.
            name = topics.names_by_id.get if self._is_left_to_classic_members(modern) else topics.topic_name
            return {key: self._seat_in(modern, member, name) for key, member in modern.state.members.items()}
        classic = as_classic_group(group)
        assert classic is not None
        return {
            member_id: Seat(
                classic.generation_id, _heard(member.session_timer.deadline_ms, member.session_timeout_ms), None
            )
            for member_id, member in classic.members.items()
        }

    def _seat_in(self, group: ConsumerGroup, member: ConsumerMember, topic_name: Callable[[UUID], str | None]) -> Seat:
        classic = member.metadata.classic_member_metadata
        settings = self.stage.cluster.settings_of(group.group_id)
        timeout_ms = settings.session_timeout_ms if classic is None else classic.session_timeout_ms
        deadline_ms = group.timer(TimerKind.MEMBER_SESSION, member.member_id).deadline_ms
        partitions = frozenset(
            TopicPartition(topic_name(topic_id) or "", index) for topic_id, index in member.partitions()
        )
        return Seat(member.assignment.member_epoch, _heard(deadline_ms, timeout_ms), partitions)

    def _is_heard(self, consumer: Consumer, seat: Seat) -> bool:
        assert consumer.member is not None
        interval_ms = consumer.member.heartbeat_interval_ms
        latest_ms = self.stage.scheduler.time_ms - interval_ms - self.stage.round_trip_ms
        return seat.heard_ms is not None and seat.heard_ms >= latest_ms

    def is_at_rest(self) -> bool:
        """Return whether it is steady with one owner per partition, or empty without live consumers.

        Consumers that the group's size limit or the migration policy keeps out go on trying; that counts as rest.
        """
        known = self.stage.cluster.known_group(self.options.group_id)
        if self.scripted_clients or known is None:
            return False
        group, node = known
        candidates = [consumer for consumer in self.consumers if not self._is_kept_out(consumer, group)]
        inside = [consumer for consumer in candidates if consumer.is_alive]
        if group is not None and self._is_full(group):
            inside = [consumer for consumer in inside if consumer.member_id in group.member_ids()]
        elif any(consumer.will_restart for consumer in candidates):
            return False
        if not inside:
            return group is None or (group.is_empty if as_classic_group(group) is None else not group.member_ids())
        return self._is_made_of(inside, group, node) and self._is_shared_out(inside, group)

    def member_ids(self) -> list[str]:
        known = self.stage.cluster.known_group(self.options.group_id)
        group = None if known is None else known[0]
        return [c.member_id for c in self.consumers if c.is_alive and not self._is_kept_out(c, group)]

    def _is_kept_out(self, consumer: Consumer, group: Group | None) -> bool:
        """Return whether a consumer can't join because the group has the other protocol (KIP-848)."""
        policy = self.stage.cluster.config.group_consumer_migration_policy
        if (modern := as_consumer_group(group)) is not None:
            is_refused = consumer.protocol is GroupProtocol.CLASSIC and policy is MigrationPolicy.DISABLED
            return is_refused and not modern.is_empty
        is_refused = consumer.protocol is GroupProtocol.CONSUMER and not policy.allows_upgrade
        return is_refused and group is not None and bool(group.member_ids())

    def _is_full(self, group: Group) -> bool:
        return len(group.member_ids()) >= group.max_size(self.stage.cluster.config)

    def _is_shared_out(self, inside: list[Consumer], group: Group | None) -> bool:
        owned = [partition for consumer in inside for partition in consumer.owned]
        found = set(owned)
        least, most = self._expected(inside, group)
        return len(found) == len(owned) and least - self._left_unowned(group) <= found <= most

    def _left_unowned(self, group: Group | None) -> set[TopicPartition]:
        """Return partitions that static consumers of a classic group have revoked without rejoining.

        One that restarts first (KIP-429) resumes its place without a new generation (KIP-345), so they have no owner.
        """
        classic = as_classic_group(group)
        if classic is None or not self.options.is_static:
            return set()
        now = classic.generation_id
        return {partition for one in self.consumers for partition, when in one.given_up.items() if when == now}

    def _expected(self, inside: list[Consumer], group: Group | None) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """Return the partitions that must have an owner, and those that may have one.

        Both are all partitions of existing topics as long as a member watches the topics, as a classic leader does once
        it has computed an assignment. Otherwise new partitions may have no owner, and deleted ones may keep theirs:

        - A restarted static leader skips the assignment, and watches the current topics (KIP-814).
        - A group is loaded after its conversion to classic (KIP-848), and the request to rejoin is not in the log.
        - All members of a consumer group use the classic protocol and it can't be converted.

        If a static member converts a group, the current assignments become the target, without topics' new partitions.
        """
        topics = self.stage.topics
        wanted = set(topics.partitions_of(self.options.subscribed(topics.names())))
        remembered = set(topics.remembered_partitions_of(self.options.subscribed(topics.remembered_names())))
        if (modern := as_consumer_group(group)) is not None:
            if self._is_left_to_classic_members(modern):
                return set(), remembered
            return (wanted if modern.state.assignment_timestamp_ms > 0 else set()), wanted
        if any(consumer.has_assigned for consumer in inside):
            return wanted, wanted
        if self.options.is_static and not self.has_changed_protocol:
            return {p for p in self._first_partitions if not topics.was_deleted(p.topic)}, remembered
        is_unwatched = self.options.is_static or self._has_lost_rebalance
        return (set(), remembered) if is_unwatched else (wanted, wanted)


def _heard(deadline_ms: int | None, session_timeout_ms: int) -> int | None:
    return None if deadline_ms is None else deadline_ms - session_timeout_ms


def _is_settled(consumer: Consumer, seat: Seat, node: Node) -> bool:
    member = consumer.member
    return (
        member is not None
        and not consumer.is_frozen
        and not consumer.is_busy
        and not consumer.is_restless
        and consumer.is_connected()
        and member.state is MemberState.STABLE
        and member.generation_id == seat.generation_id
        and member.coordinator == node
        and (seat.partitions is None or seat.partitions == consumer.owned.keys())
        and None not in consumer.owned.values()
    )


class Population:
    """Consumer groups of a run, in the order of the options and by id."""

    def __init__(self, options: Sequence[GroupOptions], stage: Stage) -> None:
        self.groups: list[SimulatedGroup] = []
        for group_options in options:
            self.groups.append(SimulatedGroup(group_options, stage, sum(len(g.consumers) for g in self.groups)))
        self.consumers: list[Consumer] = [consumer for group in self.groups for consumer in group.consumers]
        self.by_id = {group.options.group_id: group for group in self.groups}
        self._stage = stage

    def grow(self, topic: str, partition_count: int) -> None:
        """Add partitions to a topic, or create it; nodes and consumers see that at once.

        A recreated topic has at least its former number of partitions: sticky assignors of the classic protocol keep
        partitions that no longer exist, as in Java.
        """
        stage = self._stage
        old_count = stage.topics.partition_count(topic)
        partition_count = max(partition_count, len(stage.topics.remembered_partitions_of((topic,))))
        if old_count is not None and partition_count <= old_count:
            return
        was = "is created with" if old_count is None else f"grows from {old_count} to"
        stage.record(f"{topic} {was} {partition_count} partitions")
        added = stage.cluster.set_partition_count(topic, partition_count)
        for group in self.groups:
            if group.options.subscribes_to(topic):
                group.observations.add_partitions(added, stage.scheduler.time_ms)
        self._update_metadata()

    def delete(self, topic: str) -> None:
        stage = self._stage
        gone = stage.topics.partitions_of((topic,))
        if not gone:
            return
        stage.record(f"{topic} is deleted")
        stage.cluster.delete_topic(topic)
        for group in self.groups:
            if group.options.subscribes_to(topic):
                group.observations.remove_partitions(gone, stage.scheduler.time_ms)
        self._update_metadata()

    def _update_metadata(self) -> None:
        for consumer in self.consumers:
            consumer.metadata_changed()


class Disturbances:
    """Planned external events of a group.

    Args:
        windows: start and end of each fault, milliseconds since the Unix epoch.
        end_ms: end of the run, when the state must be as without skipping.
    """

    def __init__(self, windows: Iterable[tuple[int, int]], end_ms: int) -> None:
        self._windows = deque(sorted(windows))
        self._end_ms = end_ms

    def next_ms(self, now_ms: int) -> int:
        """Return the start of the next event, or the current time during one; the time must not decrease."""
        windows = self._windows
        while windows and windows[0][1] < now_ms:
            windows.popleft()
        return min(max(windows[0][0], now_ms), self._end_ms) if windows else self._end_ms


class Pace(NamedTuple):
    """Intervals of consumers of one protocol; None without automatic commits."""

    heartbeat_interval_ms: int
    session_timeout_ms: int
    commit_interval_ms: int | None

    @property
    def period_ms(self) -> int:
        return lcm(self.heartbeat_interval_ms, self.commit_interval_ms or 1)

    @property
    def longest_ms(self) -> int:
        return max(self.heartbeat_interval_ms, self.commit_interval_ms or 0)


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
        self._skipping: dict[Consumer, int] = {}  # until when
        self._keep_sessions_ms: int | None = None

    def guard_ms(self, pace: Pace) -> int:
        return 2 * pace.longest_ms + 10 * self._stage.cluster.options.most_latency_ms

    def _step_ms(self, pace: Pace) -> int:
        """Return the longest time without a heartbeat at the coordinator while time is skipped."""
        latency_ms = self._stage.cluster.options.most_latency_ms
        return pace.session_timeout_ms - pace.heartbeat_interval_ms - 4 * latency_ms - 1

    def consider(self, consumer: Consumer) -> None:
        """Skip time for a consumer that has just received a heartbeat response, if its group is steady."""
        member = consumer.member
        if consumer.in_flight or member is None or not member.is_steady:
            return
        pace = self._paces[consumer.protocol]
        if self._step_ms(pace) < pace.session_timeout_ms // 3 or consumer.clock.drift_ppm:
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
        self._skipping[consumer] = now_ms + duration_ms
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
        self._skipping = {c: until_ms for c, until_ms in self._skipping.items() if until_ms > now_ms}
        if not self._skipping:
            return
        node = cluster.serving_node(group_id)
        assert node is not None, "nothing has disturbed the group"
        coordinator = node.coordinator
        assert coordinator is not None
        cluster.active[node] = None
        for consumer in self._skipping:
            coordinator.submit(self._heartbeat_of(consumer), consumer)
        for token, response in coordinator.take_replies():
            is_steady = _is_steady(response, token.member.generation_id)
            require(is_steady, f"the heartbeat of a steady member of {group_id!r} is answered {response}")
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
