"""Environment of actors: clock, cluster, topics and trace, and the options of groups."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from attrs import define, evolve, field, frozen

from groupcoord.analysis.report.text import format_ranges
from groupcoord.member import MemberConfig, TopicPartition
from groupcoord.sim.actors.observations import ShareRecords, StreamsTasks, Transactions
from groupcoord.sim.cluster.nodes import SimulatedCluster
from groupcoord.sim.kernel import Trace

if TYPE_CHECKING:
    from groupcoord.sim.laws.run_laws import RunLaws


@define
class GuestGroup:
    """Group with scripted clients as members."""

    group_id: str
    _cluster: SimulatedCluster
    scripted_clients: int = 0

    def disturbed(self) -> None: ...

    def is_at_rest(self) -> bool:
        known = self._cluster.known_group(self.group_id)
        return not self.scripted_clients and known is not None and (known.group is None or known.group.is_empty)


class GroupProtocol(Enum):
    """Values of ``group.protocol``."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@frozen
class GroupOptions:
    """Options of a group of consumers.

    Attributes:
        group_id: its name, and with a number from 0 on the name of each consumer.
        consumer_count: number of consumers.
        topics: subscribed topics; with ``regex``, the initial topics that the expression matches.
        regex: subscribed regular expression; empty: topics are subscribed by name.
        is_static: each consumer has an instance id (KIP-345).
        consumer_protocol_count: number of consumers, the last ones, that begin with ``group.protocol=consumer``
            (KIP-848).
        remote_assignor: server-side assignor that these request; None: the coordinator's default.
        member: settings; group, instance and client id are filled in. Those that ``group.protocol=consumer`` does not
            know apply to consumers of the classic protocol.
        processing_ms: bounds of the time between a poll and the next one; 0: the application only polls.
        start_spread_ms: length of the interval in which consumers start.
        clock_skew_ms: largest deviation of their clocks, in both directions.
        clock_drift_ppm: largest deviation of the rate of their clocks, in millionths.
    """

    group_id: str
    consumer_count: int
    topics: tuple[str, ...]
    regex: str = ""
    is_static: bool = False
    consumer_protocol_count: int = 0
    remote_assignor: str | None = None
    member: MemberConfig = field(factory=MemberConfig)
    processing_ms: tuple[int, int] = (0, 0)
    start_spread_ms: int = 0
    clock_skew_ms: int = 0
    clock_drift_ppm: int = 0

    def first_protocol_of(self, index: int) -> GroupProtocol:
        """Return the initial protocol of a consumer."""
        is_classic = index < self.consumer_count - self.consumer_protocol_count
        return GroupProtocol.CLASSIC if is_classic else GroupProtocol.CONSUMER

    def config_of(self, name: str, protocol: GroupProtocol) -> MemberConfig:
        """Return the settings of a consumer."""
        instance_id = name if self.is_static else None
        named = evolve(self.member, group_id=self.group_id, group_instance_id=instance_id, client_id=name)
        return consumer_protocol_config(named, self.remote_assignor) if protocol is GroupProtocol.CONSUMER else named

    def subscribes_to(self, topic: str) -> bool:
        """Return whether its consumers subscribe to a topic."""
        return bool(re.fullmatch(self.regex, topic)) if self.regex else topic in self.topics

    def subscribed(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Return the given topics to which its consumers subscribe."""
        return tuple(topic for topic in topics if self.subscribes_to(topic))


def consumer_protocol_config(classic: MemberConfig, remote_assignor: str | None) -> MemberConfig:
    usual = MemberConfig()
    return evolve(
        classic,
        group_protocol=GroupProtocol.CONSUMER.value,
        group_remote_assignor=remote_assignor,
        session_timeout_ms=usual.session_timeout_ms,
        heartbeat_interval_ms=usual.heartbeat_interval_ms,
        partition_assignment_strategy=usual.partition_assignment_strategy,
    )


PartitionOfGroup = tuple[str, str, int]
"""Group id, topic, partition."""


class ClientOperation(NamedTuple):
    """Counted operation of a client; of consumers only failures are counted.

    Attributes:
        client: type of the client.
        name: type of the request, or another operation.
        outcome: first error of the response, ``NONE``, or another result.
    """

    client: str
    name: str
    outcome: str


class Claim(NamedTuple):
    """Ownership of a partition as a consumer believes it.

    Attributes:
        generation_id: generation or member epoch in which the partition was assigned or last confirmed.
        topic_id: id of the topic at the assignment, or None if the topic did not exist.
        is_stale: True once the consumer has to revoke the partition, or has not acknowledged it yet: its coordinator
            may be ahead.
    """

    consumer: str
    member_id: str
    protocol: GroupProtocol
    generation_id: int
    topic_id: UUID | None
    is_stale: bool = False


@define(eq=False, slots=False)
class Stage:
    """Environment of all actors of a run.

    Attributes:
        client_numbers: numbers of scripted clients, which follow those of consumers.
        applications: tasks of Kafka Streams applications, by group.
        round_trip_ms: longest time of a response without faults, unless it waits for other members.
    """

    cluster: SimulatedCluster
    trace: Trace
    ownership: RunLaws
    transactions: Transactions
    client_numbers: Iterator[int]
    operations: Counter[ClientOperation] = field(factory=Counter)
    guests: dict[str, GuestGroup] = field(factory=dict)
    shares: dict[str, ShareRecords] = field(factory=dict)
    applications: dict[str, StreamsTasks] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.start_ms = self.trace.start_ms
        cluster, options = self.cluster, self.cluster.options
        self.seed, self.scheduler, self.topics = cluster.seed, cluster.scheduler, cluster.topics
        self.round_trip_ms = 2 * options.most_latency_ms + 2 * options.flush_ms

    def guest(self, group_id: str) -> GuestGroup:
        return self.guests.setdefault(group_id, GuestGroup(group_id, self.cluster))

    def record(self, what: str) -> None:
        self.trace.record(self.scheduler.time_ms, "world", what)

    def count(self, client: str, name: str, outcome: str) -> None:
        self.operations[ClientOperation(client, name, outcome)] += 1


def listed(partitions: tuple[TopicPartition, ...]) -> str:
    numbers: dict[str, list[int]] = {}
    for partition in partitions:
        numbers.setdefault(partition.topic, []).append(partition.partition)
    return " ".join(f"{topic}[{format_ranges(sorted(found))}]" for topic, found in numbers.items())
