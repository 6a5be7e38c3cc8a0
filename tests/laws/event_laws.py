"""The laws that need to know what happened before: events, counters, members that are gone, offsets that are used."""

from __future__ import annotations

from groupcoord import GroupCoordinator, GroupState
from groupcoord.core.classic.group import GroupMetadata
from groupcoord.core.records import OffsetTombstone, Record
from groupcoord.events import (
    Event,
    GroupLoaded,
    GroupRemoved,
    MemberAdded,
    MemberRemoved,
    MemberReplaced,
    RebalanceCompleted,
    RebalanceStarted,
)
from groupcoord.messages import Heartbeat, LeaveGroup, OffsetCommit, Request, SyncGroup
from groupcoord.testing.consumers import subscription

TOPICS_OF_METADATA = {
    subscription(*topics): frozenset(topics) for topics in [(), ("orders",), ("audit",), ("orders", "audit")]
}


class EventLaws:
    """Follows one coordinator through its events, and checks that they agree with what it has and answers.

    Attributes:
        members: group id → member id → instance id, as events say.
        gone: group id → ids that left, expired or were replaced, of which no request is accepted any more.
        is_rebalancing: the groups whose rebalance has started and is not completed.
        rebalances_started: how many.
    """

    def __init__(self) -> None:
        self.members: dict[str, dict[str, str | None]] = {}
        self.gone: dict[str, set[str]] = {}
        self.is_rebalancing: set[str] = set()
        self.rebalances_started = 0
        self._generations: dict[str, int] = {}
        self._removed: list[GroupMetadata] = []
        self._known: dict[int, GroupMetadata] = {}
        self._counters: dict[str, int] = {}

    def see(self, event: Event, coordinator: GroupCoordinator) -> None:
        """Take over what happened; it must be possible."""
        group_id = event.group_id
        members, gone = self.members.setdefault(group_id, {}), self.gone.setdefault(group_id, set())
        match event:
            case GroupLoaded():
                assert not members
                partition = coordinator.partition(coordinator.partition_of(group_id))
                assert partition is not None
                loaded = partition.groups[group_id]
                members.update({member.member_id: member.group_instance_id for member in loaded.members.values()})
                assert event.member_count == len(members)
                assert event.generation_id == loaded.generation_id
            case GroupRemoved():
                self._forget(group_id)
            case MemberAdded():
                assert event.member_id not in members
                assert event.member_id not in gone
                members[event.member_id] = event.group_instance_id
            case MemberRemoved():
                assert members.pop(event.member_id) == event.group_instance_id
                gone.add(event.member_id)
            case MemberReplaced():
                members[event.member_id] = members.pop(event.old_member_id)
                assert members[event.member_id] == event.group_instance_id
                gone.add(event.old_member_id)
                gone.discard(event.member_id)
            case RebalanceStarted():
                self.rebalances_started += 1
                self.is_rebalancing.add(group_id)
            case RebalanceCompleted():
                self._complete(event)

    def _complete(self, event: RebalanceCompleted) -> None:
        """Nothing rebalances without a cause, and the generation grows with each rebalance."""
        assert event.triggers
        assert event.duration_ms >= 0
        assert event.generation_id > event.old_generation_id
        assert event.group_id in self.is_rebalancing
        self.is_rebalancing.discard(event.group_id)

    def _forget(self, group_id: str) -> None:
        """A group is gone, or its last generation with it: everything of the next one counts anew."""
        del self.members[group_id], self.gone[group_id]
        self.is_rebalancing.discard(group_id)
        self._generations.pop(group_id, None)

    # ------------------------------------------------------------ requests and answers

    def speaks_for_gone(self, request: Request) -> bool:
        """Tell whether a request speaks for a member that is gone: it must not be accepted."""
        if isinstance(request, Heartbeat | SyncGroup | OffsetCommit):
            return request.member_id in self.gone.get(request.group_id or "", ())
        if isinstance(request, LeaveGroup):
            gone = self.gone.get(request.group_id, ())
            return all(entry.member_id in gone for entry in request.members)
        return False

    # ------------------------------------------------------------ after each step

    def check(self, coordinator: GroupCoordinator) -> None:
        """Events tell the truth, generations and counters only grow, and what is dead stays dead."""
        counters = coordinator.counters.as_dict()
        assert all(counters[name] >= count for name, count in self._counters.items())
        self._counters = counters
        present: dict[str, dict[str, str | None]] = {}
        for index in range(coordinator.config.offsets_topic_num_partitions):
            partition = coordinator.partition(index)
            for group in partition.groups.values() if partition is not None else ():
                assert group.state is not GroupState.DEAD
                self._known[id(group)] = group
                present[group.group_id] = {m.member_id: m.group_instance_id for m in group.members.values()}
                assert group.generation_id >= self._generations.get(group.group_id, 0)
                self._generations[group.group_id] = group.generation_id
        known = {group_id: members for group_id, members in self.members.items() if members}
        assert known == {group_id: members for group_id, members in present.items() if members}
        self._removed += [group for group in self._known.values() if group.state is GroupState.DEAD]
        self._known = {key: group for key, group in self._known.items() if group.state is not GroupState.DEAD}
        for group in self._removed:
            assert group.state is GroupState.DEAD
            assert group.join_timer.deadline_ms is None
            assert not any(member.session_timer.deadline_ms for member in group.members.values())


class RetainedOffsets:
    """Which offsets must survive a moment in which only time passes."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._topics: dict[str, frozenset[str] | None] = {}
        for index in range(coordinator.config.offsets_topic_num_partitions):
            partition = coordinator.partition(index)
            for group in partition.groups.values() if partition is not None else ():
                if group.members:
                    self._topics[group.group_id] = _subscribed(group)

    def check(self, coordinator: GroupCoordinator, records: list[Record]) -> None:
        """Expiry never removes an offset of a topic that a live group subscribes to, or may subscribe to."""
        still_alive = RetainedOffsets(coordinator)._topics.keys()
        for record in records:
            if isinstance(record, OffsetTombstone) and record.group_id in self._topics.keys() & still_alive:
                topics = self._topics[record.group_id]
                assert topics is not None
                assert record.topic not in topics


def _subscribed(group: GroupMetadata) -> frozenset[str] | None:
    """Return the topics of a group's members, or None where they can't be known."""
    topics: set[str] = set()
    for member in group.members.values():
        found = TOPICS_OF_METADATA.get(member.metadata(group.protocol_name))
        if found is None or group.protocol_type != "consumer" or group.state is not GroupState.STABLE:
            return None
        topics |= found
    return frozenset(topics)
