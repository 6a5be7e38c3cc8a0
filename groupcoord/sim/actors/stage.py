"""What actors have around them: a clock, a cluster, topics, and a trace of what they do."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, Protocol
from uuid import UUID

from groupcoord.sim.actors.guests import GuestGroup
from groupcoord.sim.actors.options import GroupProtocol
from groupcoord.sim.actors.share_records import ShareRecords
from groupcoord.sim.actors.streams_tasks import StreamsTasks
from groupcoord.sim.actors.transactions import Transactions
from groupcoord.sim.cluster.simulated_cluster import SimulatedCluster
from groupcoord.sim.cluster.topics import Topics
from groupcoord.sim.kernel.scheduler import Scheduler
from groupcoord.sim.kernel.trace import Trace

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
