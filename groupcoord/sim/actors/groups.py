"""A group of simulated consumers, and whether it is steady: then nothing happens to it but heartbeats and commits."""

from __future__ import annotations

from collections.abc import Callable
from math import lcm

from groupcoord.coordinator import GroupState
from groupcoord.core.classic.group import GroupMetadata
from groupcoord.core.classic.member import MemberMetadata
from groupcoord.member import TopicPartition
from groupcoord.member.membership import MemberState
from groupcoord.messages import Node
from groupcoord.sim.actors.consumers import Consumer
from groupcoord.sim.actors.observations import GroupObservations
from groupcoord.sim.actors.options import GroupOptions
from groupcoord.sim.actors.stage import Stage

LOOK_INTERVAL_MS = 1_000
"""So long a group that is not steady counts as such, unless something happens to it."""


class SimulatedGroup:
    """The consumers of one group (a :class:`~groupcoord.sim.actors.consumers.ConsumerListener`).

    Attributes:
        consumers: in the order of their numbers.
        observations: what the run will be judged by.
        on_heartbeat: called with each consumer whose heartbeat was answered; None: nobody wants to know.
        scripted_clients: how many other clients are at work that can affect it.
    """

    def __init__(self, options: GroupOptions, stage: Stage, first_number: int) -> None:
        self.options = options
        self.on_heartbeat: Callable[[Consumer], None] | None = None
        self.scripted_clients = 0
        self.observations = GroupObservations(stage.topics.partitions_of(options.topics), stage.start_ms)
        self.consumers = [
            Consumer(first_number + index, index, options, stage, self.observations, self)
            for index in range(options.consumer_count)
        ]
        self._stage = stage
        self._first_partitions = stage.topics.partitions_of(options.topics)
        self._is_steady = False
        self._looks_again_ms = 0

    @property
    def period_ms(self) -> int:
        """After so long a steady consumer has done the same again."""
        member = self.options.member
        if not member.enable_auto_commit:
            return member.heartbeat_interval_ms
        return lcm(member.heartbeat_interval_ms, max(member.auto_commit_interval_ms, 1))

    def disturbed(self) -> None:
        """Something happened to the group: whether it is steady must be found out anew."""
        self._is_steady, self._looks_again_ms = False, 0

    def heartbeat_answered(self, consumer: Consumer) -> None:
        """A consumer has had the answer of a heartbeat."""
        if self.on_heartbeat is not None:
            self.on_heartbeat(consumer)

    def is_steady(self) -> bool:
        """Tell whether all its consumers, and its coordinator, agree that all is well."""
        if self.scripted_clients:
            return False
        now_ms = self._stage.scheduler.time_ms
        if not self._is_steady and now_ms >= self._looks_again_ms:
            self._is_steady, self._looks_again_ms = self._find_steady(), now_ms + LOOK_INTERVAL_MS
        return self._is_steady

    def _find_steady(self) -> bool:
        if any(consumer.will_restart for consumer in self.consumers):
            return False
        return self._is_made_of([consumer for consumer in self.consumers if consumer.is_alive])

    def _known(self) -> tuple[GroupMetadata | None, Node] | None:
        """Return the group as its coordinator has it, and who that is; None while there is no coordinator."""
        group_id = self.options.group_id
        coordinator = self._stage.cluster.serving(group_id)
        if coordinator is None:
            return None
        partition = coordinator.partition(coordinator.partition_of(group_id))
        group = None if partition is None else partition.groups.get(group_id)
        return (group if isinstance(group, GroupMetadata) else None), coordinator.node

    def _is_made_of(self, consumers: list[Consumer]) -> bool:
        """Tell whether the coordinator has it Stable with just these consumers, and they see it as their group too."""
        known = self._known()
        if known is None:
            return False
        group, node = known
        if group is None or group.state is not GroupState.STABLE or group.pending_members or group.pending_sync:
            return False
        return len(consumers) == len(group.members) and all(
            _is_settled(consumer, group.generation_id, node) and self._is_heard(group.members.get(consumer.member_id))
            for consumer in consumers
        )

    def _is_heard(self, member: MemberMetadata | None) -> bool:
        """Tell whether the coordinator has heard of a member as lately as it does of one that goes on as it should."""
        if member is None or member.session_timer.deadline_ms is None:
            return False
        heard_ms = member.session_timer.deadline_ms - member.session_timeout_ms
        latest_ms = (
            self._stage.scheduler.time_ms - self.options.member.heartbeat_interval_ms - self._stage.round_trip_ms
        )
        return heard_ms >= latest_ms

    def is_at_rest(self) -> bool:
        """Tell whether it is steady, and every partition has one owner; or nobody is alive and it is empty.

        Whom ``group.max.size`` keeps out goes on trying; that is rest for all others.
        """
        known = self._known()
        if self.scripted_clients or known is None:
            return False
        group, _ = known
        inside = [consumer for consumer in self.consumers if consumer.is_alive]
        if group is not None and len(group.members) >= self._stage.cluster.config.group_max_size:
            inside = [consumer for consumer in inside if consumer.member_id in group.members]
        elif any(consumer.will_restart for consumer in self.consumers):
            return False
        if not inside:
            return group is None or group.state is GroupState.EMPTY
        return self._is_made_of(inside) and self._is_shared_out([p for consumer in inside for p in consumer.owned])

    def _is_shared_out(self, owned: list[TopicPartition]) -> bool:
        """Tell whether every partition has one owner.

        What was added while a static leader was away may have none: when it is back it skips the assignment and takes
        the topics as it finds them for what it has assigned (KIP-814, as Kafka's Java consumer does).
        """
        found, wanted = set(owned), set(self._stage.topics.partitions_of(self.options.topics))
        least = set(self._first_partitions) if self.options.is_static else wanted
        return len(found) == len(owned) and least <= found <= wanted


def _is_settled(consumer: Consumer, generation_id: int, node: Node) -> bool:
    """Tell whether a consumer is where its coordinator has it, and talks to that one (not to who was it before)."""
    member = consumer.member
    return (
        member is not None
        and not consumer.is_frozen
        and not consumer.is_busy
        and not consumer.is_restless
        and consumer.is_connected()
        and member.state is MemberState.STABLE
        and member.generation_id == generation_id
        and member.coordinator == node
        and None not in consumer.owned.values()
    )
