"""What actors have around them: a clock, a cluster, topics, and a trace of what they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from groupcoord.member import Cluster as TopicMetadata
from groupcoord.member import TopicPartition
from groupcoord.sim.actors.transactions import Transactions
from groupcoord.sim.cluster.simulated_cluster import SimulatedCluster
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


class OwnershipObserver(Protocol):
    """Hears of what consumers believe to own."""

    def assigned(self, consumer: str, key: PartitionOfGroup, generation_id: int) -> None:
        """A consumer was given a partition."""

    def given_up(self, consumer: str, key: PartitionOfGroup) -> None:
        """A consumer does not believe any more that it owns a partition."""

    def joined(self, group_id: str, generation_id: int) -> None:
        """A member was told its assignment."""


class Topics:
    """The topics that there are.

    Attributes:
        metadata: what brokers tell of them.
    """

    def __init__(self, partition_counts: Mapping[str, int]) -> None:
        self._partition_counts = dict(partition_counts)
        self.metadata = TopicMetadata.of(self._partition_counts)

    def names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self._partition_counts)

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has."""
        return self._partition_counts[topic]

    def partitions_of(self, topics: tuple[str, ...]) -> tuple[TopicPartition, ...]:
        """Return all partitions of topics."""
        return tuple(TopicPartition(name, index) for name in topics for index in range(self._partition_counts[name]))

    def grow(self, topic: str, partition_count: int) -> tuple[TopicPartition, ...]:
        """Give a topic more partitions, and return those."""
        old_count = self._partition_counts[topic]
        self._partition_counts[topic] = partition_count
        self.metadata = TopicMetadata.of(self._partition_counts)
        return tuple(TopicPartition(topic, index) for index in range(old_count, partition_count))


class Stage:
    """What actors have around them.

    Args:
        seed: everything that is left to chance comes from it.
        scheduler: the clock.
        cluster: nodes, network and log.
        topics: the topics that there are.
        trace: takes what happens.
        ownership: hears of what consumers believe to own.
        consumer_count: how many client numbers, from 0 on, belong to consumers.

    Attributes:
        start_ms: when the run began, in milliseconds since the Unix epoch.
        transactions: those of all producers.
        operations: how often clients did what.
        round_trip_ms: no answer takes longer while nothing is wrong, but for those that wait for others.
    """

    def __init__(
        self,
        *,
        seed: int,
        scheduler: Scheduler,
        cluster: SimulatedCluster,
        topics: Topics,
        trace: Trace,
        ownership: OwnershipObserver,
        transactions: Transactions,
        consumer_count: int,
    ) -> None:
        self.seed = seed
        self.start_ms = trace.start_ms
        self.scheduler = scheduler
        self.cluster = cluster
        self.topics = topics
        self.trace = trace
        self.ownership = ownership
        self.transactions = transactions
        self.operations: Counter[ClientOperation] = Counter()
        self.round_trip_ms = 2 * cluster.options.most_latency_ms + 2 * cluster.options.flush_ms
        self._client_count = consumer_count

    def next_client_number(self) -> int:
        """Return a number for a client that is no consumer."""
        self._client_count += 1
        return self._client_count

    def record(self, what: str) -> None:
        """Add a line about the world to the trace."""
        self.trace.record(self.scheduler.time_ms, "world", what)

    def count(self, client: str, name: str, outcome: str) -> None:
        """Count something that a client did (see :class:`ClientOperation`)."""
        self.operations[ClientOperation(client, name, outcome)] += 1
