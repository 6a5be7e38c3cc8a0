"""Environment of actors: clock, cluster, topics and trace, and the options of groups."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, Protocol
from uuid import UUID

from attrs import define, evolve, field, frozen

from groupcoord.member import MemberConfig, TopicPartition
from groupcoord.sim.actors.observations import ShareRecords, StreamsTasks, Transactions
from groupcoord.sim.cluster.nodes import SimulatedCluster
from groupcoord.sim.cluster.topics import Topics
from groupcoord.sim.kernel.scheduler import Scheduler, Trace


@define
class GuestGroup:
    """A group whose members are scripted clients.

    Attributes:
        group_id: its name.
        scripted_clients: how many of them are at work.
    """

    group_id: str
    _cluster: SimulatedCluster
    scripted_clients: int = 0

    def disturbed(self) -> None:
        """Something happened to the group: nobody asks whether it is steady."""

    def is_at_rest(self) -> bool:
        """Tell whether its clients are through, and its coordinator has nobody of them any more."""
        known = self._cluster.known_group(self.group_id)
        return not self.scripted_clients and known is not None and (known.group is None or known.group.is_empty)


class GroupProtocol(Enum):
    """The values of ``group.protocol``."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@frozen
class GroupOptions:
    """A group of consumers.

    Attributes:
        group_id: its name; its consumers are called by it and a number from 0 on.
        consumer_count: how many there are.
        topics: what all of them subscribe to; also what of those that exist from the start ``regex`` stands for.
        regex: the regular expression that they subscribe to instead; empty: they name the topics.
        is_static: each has an instance id (KIP-345).
        consumer_protocol_count: so many, the last ones, begin with ``group.protocol=consumer`` (KIP-848).
        remote_assignor: which of the coordinator's assignors these ask for; None: its default.
        member: their settings; group, instance and client id are filled in. Those that ``group.protocol=consumer`` does
            not know hold for consumers that use the classic protocol.
        processing_ms: how long their application works on what a poll has brought before it polls again, from … to …;
            0: it does nothing but poll.
        start_spread_ms: they start at moments spread over so long.
        clock_skew_ms: their clocks are off by up to this much, either way.
        clock_drift_ppm: their clocks run faster or slower by up to so many millionths.
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
        """Return the protocol with which a consumer of the group begins."""
        is_classic = index < self.consumer_count - self.consumer_protocol_count
        return GroupProtocol.CLASSIC if is_classic else GroupProtocol.CONSUMER

    def config_of(self, name: str, protocol: GroupProtocol) -> MemberConfig:
        """Return the settings of a consumer of the group."""
        instance_id = name if self.is_static else None
        named = evolve(self.member, group_id=self.group_id, group_instance_id=instance_id, client_id=name)
        return consumer_protocol_config(named, self.remote_assignor) if protocol is GroupProtocol.CONSUMER else named

    def subscribes_to(self, topic: str) -> bool:
        """Tell whether its consumers subscribe to a topic."""
        return bool(re.fullmatch(self.regex, topic)) if self.regex else topic in self.topics

    def subscribed(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Return those of these topics to which its consumers subscribe."""
        return tuple(topic for topic in topics if self.subscribes_to(topic))


def consumer_protocol_config(classic: MemberConfig, remote_assignor: str | None) -> MemberConfig:
    """Return settings for ``group.protocol=consumer``: without those that it does not know."""
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
    """Something that a client did and that is counted: of consumers what made them fail, of others everything.

    Attributes:
        client: what kind of client.
        name: the request's type, or what else was done.
        outcome: the first error in the answer, ``NONE``, or what else came of it.
    """

    client: str
    name: str
    outcome: str


class Claim(NamedTuple):
    """A consumer believes to own a partition.

    Attributes:
        consumer: its name.
        member_id: as whom.
        protocol: what it speaks.
        generation_id: since which generation (in a consumer group: member epoch), or in which it was confirmed.
        topic_id: of the partition's topic, as it was when the consumer was given the partition; None: there was none.
        is_stale: it was told meanwhile that it is to have it no more, or said that it does not have it yet.
            It first does all that it was told before, as the Java consumer does; its coordinator may be further.
    """

    consumer: str
    member_id: str
    protocol: GroupProtocol
    generation_id: int
    topic_id: UUID | None
    is_stale: bool = False


class OwnershipObserver(Protocol):
    """Hears of what consumers believe to own."""

    def assigned(self, claim: Claim, key: PartitionOfGroup) -> None:
        """A consumer was given a partition."""

    def given_up(self, consumer: str, key: PartitionOfGroup) -> None:
        """A consumer does not believe any more that it owns a partition."""

    def joined(self, group_id: str, generation_id: int) -> None:
        """A member was told its assignment."""


class Stage:
    """What actors have around them.

    Args:
        seed: everything that is left to chance comes from it.
        scheduler: the clock.
        cluster: nodes, network and log.
        trace: takes what happens.
        ownership: hears of what consumers believe to own.
        consumer_count: how many client numbers, from 0 on, belong to consumers.

    Attributes:
        start_ms: when the run began, in milliseconds since the Unix epoch.
        topics: the topics that there are.
        transactions: those of all producers.
        operations: how often clients did what.
        guests: groups whose members are no consumers, by name.
        shares: the records of share groups, by group.
        applications: the tasks of applications of Kafka Streams, by group.
        round_trip_ms: no answer takes longer while nothing is wrong, but for those that wait for others.
    """

    def __init__(
        self,
        *,
        seed: int,
        scheduler: Scheduler,
        cluster: SimulatedCluster,
        trace: Trace,
        ownership: OwnershipObserver,
        transactions: Transactions,
        consumer_count: int,
    ) -> None:
        self.seed = seed
        self.start_ms = trace.start_ms
        self.scheduler = scheduler
        self.cluster = cluster
        self.topics: Topics = cluster.topics
        self.trace = trace
        self.ownership = ownership
        self.transactions = transactions
        self.operations: Counter[ClientOperation] = Counter()
        self.guests: dict[str, GuestGroup] = {}
        self.shares: dict[str, ShareRecords] = {}
        self.applications: dict[str, StreamsTasks] = {}
        self.round_trip_ms = 2 * cluster.options.most_latency_ms + 2 * cluster.options.flush_ms
        self._client_count = consumer_count

    def next_client_number(self) -> int:
        """Return a number for a client that is no consumer."""
        self._client_count += 1
        return self._client_count

    def guest(self, group_id: str) -> GuestGroup:
        """Return the group of this name whose members are no consumers, made if need be."""
        return self.guests.setdefault(group_id, GuestGroup(group_id, self.cluster))

    def record(self, what: str) -> None:
        """Add a line about the world to the trace."""
        self.trace.record(self.scheduler.time_ms, "world", what)

    def count(self, client: str, name: str, outcome: str) -> None:
        """Count something that a client did (see :class:`ClientOperation`)."""
        self.operations[ClientOperation(client, name, outcome)] += 1


def listed(partitions: tuple[TopicPartition, ...]) -> str:
    """Return partitions in few words: each topic with its numbers, ranges as such."""
    numbers: dict[str, list[int]] = {}
    for partition in partitions:
        numbers.setdefault(partition.topic, []).append(partition.partition)
    return " ".join(f"{topic}[{_ranges(sorted(found))}]" for topic, found in numbers.items())


def _ranges(numbers: list[int]) -> str:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
