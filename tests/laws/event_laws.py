"""The laws that need to know what happened before: events, counters, members that are gone, offsets that are used."""

from __future__ import annotations

from typing import Any

from groupcoord import GroupCoordinator, GroupState
from groupcoord.core.groups.base.group import ModernGroup
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from groupcoord.core.groups.share.group import ShareGroup
from groupcoord.events import (
    Cause,
    Event,
    GroupLoaded,
    GroupRemoved,
    MemberAdded,
    MemberAssigned,
    MemberRemoved,
    MemberReplaced,
    RebalanceCompleted,
    RebalanceStarted,
)
from groupcoord.messages import Heartbeat, LeaveGroup, OffsetCommit, Request, SyncGroup

AnyGroup = GroupMetadata | ModernGroup[Any]


AT_REST = (ConsumerGroupState.EMPTY, ConsumerGroupState.STABLE)


def members_of(group: AnyGroup) -> dict[str, str | None]:
    """Return the ids of a group's members, with their instance ids."""
    if isinstance(group, ModernGroup):
        members = group.state.members.items()  # those of share groups have no instance ids
        return {member_id: getattr(member.metadata, "instance_id", None) for member_id, member in members}
    return {member.member_id: member.group_instance_id for member in group.members.values()}


def generation_of(group: AnyGroup) -> int:
    return group.state.epoch if isinstance(group, ModernGroup) else group.generation_id


def is_dead(group: AnyGroup) -> bool:
    """Return whether a group is dead."""
    return group.is_dead if isinstance(group, ModernGroup) else group.state is GroupState.DEAD


def has_states_of_what_is_gone(group: object) -> bool:
    """Return whether a share group's epoch grows with each heartbeat, as in Kafka: a topic was deleted while the
    group's log was not served, and another one has its name.
    """
    return isinstance(group, ShareGroup) and not group.state.is_initialized_assigned()


class EventLaws:
    """Follows one coordinator through its events, and checks that they agree with what it has and answers.

    Attributes:
        members: group id → member id → instance id, as events say.
        gone: group id → ids that left, expired or were replaced, of which no request is accepted any more.
        is_rebalancing: the groups whose rebalance has started and is not completed.
        rebalances_started: how many.
        sessions_expired: how many.
    """

    def __init__(self) -> None:
        self.members: dict[str, dict[str, str | None]] = {}
        self.gone: dict[str, set[str]] = {}
        self.is_rebalancing: set[str] = set()
        self.rebalances_started = 0
        self.sessions_expired = 0
        self._started_since_check: set[str] = set()
        self._converted: dict[str, dict[str, str | None]] = {}
        self._generations: dict[str, int] = {}
        self._assigned: dict[str, dict[str, MemberAssigned]] = {}
        self._removed: list[AnyGroup] = []
        self._known: dict[int, AnyGroup] = {}
        self._counters: dict[str, int] = {}

    def see(self, event: Event, coordinator: GroupCoordinator) -> None:
        """Take over what happened; it must be possible."""
        group_id = event.group_id
        members, gone = self.members.setdefault(group_id, {}), self.gone.setdefault(group_id, set())
        match event:
            case GroupLoaded():
                assert not members
                if group_id in self._converted:
                    members.update(self._converted.pop(group_id))
                else:
                    loaded = self._find(group_id, coordinator)
                    members.update(members_of(loaded))
                    assert event.generation_id == generation_of(loaded)
                assert event.member_count == len(members)
            case GroupRemoved():
                if event.cause is Cause.CONVERSION and members:
                    self._converted[group_id] = members
                self._forget(group_id)
            case MemberAssigned():
                assert members[event.member_id] == event.group_instance_id
                self._assigned.setdefault(group_id, {})[event.member_id] = event
            case MemberAdded():
                assert event.member_id not in members
                # Members of all but classic groups make their ids themselves, and keep them when they were fenced.
                assert event.member_id not in gone or isinstance(self._find(group_id, coordinator), ModernGroup)
                gone.discard(event.member_id)
                members[event.member_id] = event.group_instance_id
            case MemberRemoved():
                assert members.pop(event.member_id) == event.group_instance_id
                self.sessions_expired += event.cause is Cause.SESSION_EXPIRY
                gone.add(event.member_id)
            case MemberReplaced():
                members[event.member_id] = members.pop(event.old_member_id)
                assigned = self._assigned.get(group_id, {})
                if event.old_member_id in assigned:
                    assigned[event.member_id] = assigned.pop(event.old_member_id)
                assert members[event.member_id] == event.group_instance_id
                gone.add(event.old_member_id)
                gone.discard(event.member_id)
            case RebalanceStarted():
                partition = coordinator.partition(coordinator.partition_of(group_id))
                group = None if partition is None else partition.groups.get(group_id)
                self.rebalances_started += not has_states_of_what_is_gone(group)
                self._started_since_check.add(group_id)
                self.is_rebalancing.add(group_id)
            case RebalanceCompleted():
                self._complete(event)

    @staticmethod
    def _find(group_id: str, coordinator: GroupCoordinator) -> AnyGroup:
        partition = coordinator.partition(coordinator.partition_of(group_id))
        assert partition is not None
        return partition.groups[group_id]

    def _complete(self, event: RebalanceCompleted) -> None:
        """Nothing rebalances without a cause, and the generation grows with each rebalance."""
        assert event.triggers
        assert event.duration_ms >= 0
        assert event.generation_id > event.old_generation_id
        assert event.group_id in self.is_rebalancing
        self.is_rebalancing.discard(event.group_id)

    def _forget(self, group_id: str) -> None:
        """Forget a group that is gone, and its last generation."""
        del self.members[group_id], self.gone[group_id]
        self.is_rebalancing.discard(group_id)
        self._generations.pop(group_id, None)
        self._assigned.pop(group_id, None)

    # ------------------------------------------------------------ requests and answers

    def speaks_for_gone(self, request: Request) -> bool:
        """Return whether a request names a removed member: it must not be accepted."""
        if isinstance(request, Heartbeat | SyncGroup | OffsetCommit):
            return request.member_id in self.gone.get(request.group_id or "", ())
        if isinstance(request, LeaveGroup):
            gone = self.gone.get(request.group_id, ())
            return all(entry.member_id in gone for entry in request.members)
        return False

    # ------------------------------------------------------------ after each step

    def check(self, coordinator: GroupCoordinator) -> None:
        """Check that events agree with the state, generations and counters only grow, and dead groups stay dead."""
        counters = coordinator.counters.as_dict()
        assert all(counters[name] >= count for name, count in self._counters.items())
        assert counters["session_expirations"] == self.sessions_expired
        self._counters = counters
        present: dict[str, dict[str, str | None]] = {}
        for index in range(coordinator.config.offsets_topic_num_partitions):
            partition = coordinator.partition(index)
            for group in partition.groups.values() if partition is not None else ():
                assert not is_dead(group)
                self._known[id(group)] = group
                present[group.group_id] = members_of(group)
                self._check_progress(group)
                self._check_assigned(group)
        self._started_since_check.clear()
        assert not self._converted
        known = {group_id: members for group_id, members in self.members.items() if members}
        assert known == {group_id: members for group_id, members in present.items() if members}
        self._removed += [group for group in self._known.values() if is_dead(group)]
        self._known = {key: group for key, group in self._known.items() if not is_dead(group)}
        for group in self._removed:
            assert is_dead(group)
            assert all(timer.deadline_ms is None for timer in group.timers())

    def _check_progress(self, group: AnyGroup) -> None:
        """Generations grow; an epoch begins with a rebalance, which is over when the group is at rest."""
        group_id, before = group.group_id, self._generations.get(group.group_id)
        generation = self._generations[group_id] = generation_of(group)
        assert before is None or generation >= before
        if isinstance(group, ConsumerGroup):
            assert before in (None, generation) or group_id in self._started_since_check
            assert group.group_state not in AT_REST or group_id not in self.is_rebalancing

    def _check_assigned(self, group: AnyGroup) -> None:
        """Check members' assignments against the last events since the group was loaded."""
        told = self._assigned.get(group.group_id, {})
        if isinstance(group, ConsumerGroup):
            for member_id, member in group.state.members.items():
                event = told.get(member_id)
                if event is not None and not member.has_left:
                    assert not isinstance(event.assignment, bytes)
                    assert dict(event.assignment) == dict(member.assignment.by_topic())
                    assert event.generation_id == member.assignment.member_epoch
        elif isinstance(group, GroupMetadata) and group.state is GroupState.STABLE:
            for classic in group.members.values():
                event = told.get(classic.member_id)
                if event is not None:
                    assert (event.assignment, event.generation_id) == (classic.assignment, group.generation_id)
