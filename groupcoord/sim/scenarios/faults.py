"""Faults of the cluster, its network and log, and of consumers; options of a simulated world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from attrs import frozen

from groupcoord.sim.actors.consumers import Consumer
from groupcoord.sim.actors.environment import GroupOptions, GroupProtocol, Stage
from groupcoord.sim.actors.groups import Population
from groupcoord.sim.actors.scripted_clients import Fault
from groupcoord.sim.cluster.options import ClusterOptions
from groupcoord.sim.kernel.randomness import Chance, stable_number

SETTLE_MS = 900_000


@frozen
class WorldOptions:
    """A world, before anything has happened in it.

    Attributes:
        cluster: nodes, network and log.
        topics: name → number of partitions.
        groups: the consumers.
        faults: what goes wrong, and when.
        duration_ms: how long the run goes on; all faults end before.
        measure_from_ms: from when on what happens is counted; 0: from the start.
        settle_ms: how long everything may take at most to come to rest after that.
        calm_ms: how long nothing may happen once it has.
        law_interval_ms: how much time passes between two looks at the costly laws; 0: after every event of a node.
        fast_forwards: what steady groups repeat is skipped; never where nodes are replicas, whose appends go together
            with those that come at the same time.
    """

    cluster: ClusterOptions
    topics: dict[str, int]
    groups: tuple[GroupOptions, ...]
    faults: tuple[Fault, ...] = ()
    duration_ms: int = 600_000
    measure_from_ms: int = 0
    settle_ms: int = SETTLE_MS
    calm_ms: int = 30_000
    law_interval_ms: int = 0
    fast_forwards: bool = True


@frozen(kw_only=True)
class NodeCrash(Fault):
    """A node is killed, and started again in the end."""

    node_id: int

    def begin(self, stage: Stage, population: Population) -> None:
        """Kill the node."""
        stage.cluster.crash(stage.cluster.nodes[self.node_id - 1])

    def end(self, stage: Stage, population: Population) -> None:
        """Start it again."""
        stage.cluster.restart(stage.cluster.nodes[self.node_id - 1])


@frozen(kw_only=True)
class NodeStall(Fault):
    """A node's process stands still for a while, and then goes on as if nothing had been."""

    node_id: int

    def begin(self, stage: Stage, population: Population) -> None:
        """Let it stand still until the end."""
        until_ms = stage.scheduler.time_ms + self.end_ms - self.start_ms
        stage.cluster.stall(stage.cluster.nodes[self.node_id - 1], until_ms)


@frozen(kw_only=True)
class Migration(Fault):
    """A log partition moves to another node."""

    partition: int
    node_id: int

    def begin(self, stage: Stage, population: Population) -> None:
        """Let the controller move it."""
        stage.cluster.migrate(self.partition, self.node_id)


@frozen(kw_only=True)
class CutOff(Fault):
    """Some consumers do not reach some nodes, nor these them."""

    consumers: tuple[int, ...]
    node_ids: tuple[int, ...]

    def begin(self, stage: Stage, population: Population) -> None:
        """Cut them off."""
        stage.record(f"{_names(population, self.consumers)} cut off from {_nodes(self.node_ids)}")
        stage.cluster.network.cut_off |= {(c, n) for c in self.consumers for n in self.node_ids}

    def end(self, stage: Stage, population: Population) -> None:
        """Let them reach each other again."""
        stage.record(f"{_names(population, self.consumers)} reach {_nodes(self.node_ids)} again")
        stage.cluster.network.cut_off -= {(c, n) for c in self.consumers for n in self.node_ids}


@frozen(kw_only=True)
class LossyNetwork(Fault):
    """Each message may break its connection."""

    probability: float

    def begin(self, stage: Stage, population: Population) -> None:
        """Begin to lose messages."""
        stage.record(f"the network loses {self.probability:.1%} of all messages")
        stage.cluster.network.loss = Chance(stable_number(stage.seed, "loss", self.start_ms), self.probability)

    def end(self, stage: Stage, population: Population) -> None:
        """Lose none any more."""
        stage.record("the network loses nothing any more")
        stage.cluster.network.loss = None


@frozen(kw_only=True)
class LogTrouble(Fault):
    """The log is slow, refuses to write, can't be read (see :class:`groupcoord.sim.cluster.log.StoreFault`)."""

    flush_ms: int = 0
    refusal_percent: int = 0
    broken_read_percent: int = 0

    def begin(self, stage: Stage, population: Population) -> None:
        """Say so; the log knows by itself."""
        broken = f", {self.broken_read_percent} % of reads break off" if self.broken_read_percent else ""
        stage.record(f"the log writes every {self.flush_ms} ms and refuses {self.refusal_percent} %{broken}")

    def end(self, stage: Stage, population: Population) -> None:
        """Say so."""
        stage.record("the log is well again")


@frozen(kw_only=True)
class ConsumerFault(Fault):
    """Something that happens to one consumer.

    Attributes:
        consumer: its number.
        group: its group's id.
    """

    consumer: int
    group: str

    @property
    def group_id(self) -> str | None:
        """The consumer's group."""
        return self.group

    def of(self, population: Population) -> Consumer:
        """Return the consumer."""
        return population.consumers[self.consumer]


@frozen(kw_only=True)
class ConsumerCrash(ConsumerFault):
    """A consumer's process is killed, and started again in the end; if there is an end."""

    stays_dead: bool = False

    def begin(self, stage: Stage, population: Population) -> None:
        """Kill it."""
        self.of(population).crash()

    def end(self, stage: Stage, population: Population) -> None:
        """Start it again."""
        if not self.stays_dead:
            self.of(population).start()


@frozen(kw_only=True)
class ConsumerStop(ConsumerFault):
    """A consumer is closed as it should be, and started again in the end."""

    def begin(self, stage: Stage, population: Population) -> None:
        """Close it."""
        self.of(population).close()

    def end(self, stage: Stage, population: Population) -> None:
        """Start it again; what is not closed by then is killed."""
        self.of(population).crash()
        self.of(population).start()


@frozen(kw_only=True)
class ProtocolChange(ConsumerFault):
    """A consumer is closed as it should be, or killed, and started again with another ``group.protocol`` (KIP-848)."""

    protocol: GroupProtocol
    is_graceful: bool = True

    def begin(self, stage: Stage, population: Population) -> None:
        """Close or kill it."""
        consumer = self.of(population)
        if self.is_graceful:
            consumer.close()
        else:
            consumer.crash()

    def end(self, stage: Stage, population: Population) -> None:
        """Start it anew; what is not closed by then is killed."""
        consumer = self.of(population)
        consumer.crash()
        consumer.protocol = self.protocol
        population.group(self.group).has_changed_protocol = True
        consumer.start()


@frozen(kw_only=True)
class ConsumerPause(ConsumerFault):
    """A consumer's process stands still, as in a long garbage collection."""

    def begin(self, stage: Stage, population: Population) -> None:
        """Stop it."""
        self.of(population).freeze()

    def end(self, stage: Stage, population: Population) -> None:
        """Let it go on."""
        self.of(population).thaw()


@frozen(kw_only=True)
class BusyApplication(ConsumerFault):
    """A consumer's application works for long and does not poll."""

    def begin(self, stage: Stage, population: Population) -> None:
        """Let it work."""
        self.of(population).work()

    def end(self, stage: Stage, population: Population) -> None:
        """Let it poll."""
        self.of(population).poll_again()


@frozen(kw_only=True)
class BrokenConnections(ConsumerFault):
    """A consumer's connections break."""

    def begin(self, stage: Stage, population: Population) -> None:
        """Break them."""
        self.of(population).break_connections()


@frozen(kw_only=True)
class ClockJump(ConsumerFault):
    """A consumer's clock jumps forward."""

    duration_ms: int

    def begin(self, stage: Stage, population: Population) -> None:
        """Let it jump."""
        self.of(population).jump(self.duration_ms)


@frozen(kw_only=True)
class TopicGrowth(Fault):
    """A topic gets more partitions; consumers learn of it at once."""

    topic: str
    partition_count: int

    def begin(self, stage: Stage, population: Population) -> None:
        """Let it grow."""
        population.grow(self.topic, self.partition_count)


@frozen(kw_only=True)
class TopicCreation(Fault):
    """There is a new topic; nodes and consumers learn of it at once."""

    topic: str
    partition_count: int

    def begin(self, stage: Stage, population: Population) -> None:
        """Create it."""
        population.grow(self.topic, self.partition_count)


@frozen(kw_only=True)
class TopicDeletion(Fault):
    """A topic is deleted; in the end there is another one of its name, with another id.

    Attributes:
        topic: its name.
        partition_count: how many partitions the other one has; 0: there is none.
    """

    topic: str
    partition_count: int = 0

    def begin(self, stage: Stage, population: Population) -> None:
        """Delete it."""
        population.delete(self.topic)

    def end(self, stage: Stage, population: Population) -> None:
        """Create the other one."""
        if self.partition_count:
            population.grow(self.topic, self.partition_count)


def _names(population: Population, numbers: tuple[int, ...]) -> str:
    return ", ".join(population.consumers[number].name for number in numbers)


def _nodes(node_ids: tuple[int, ...]) -> str:
    return ", ".join(f"node {node_id}" for node_id in node_ids)


def rolling_restart(
    group_id: str,
    numbers: Sequence[int],
    start_ms: int,
    at_once: int,
    step_ms: int,
    down_ms: int,
    *,
    is_graceful: bool = True,
    protocol: GroupProtocol | None = None,
) -> list[Fault]:
    """Return the stops of a rolling restart.

    Args:
        group_id: the group.
        numbers: its consumers.
        start_ms: when it begins.
        at_once: so many consumers are stopped together.
        step_ms: the next are stopped so long after.
        down_ms: how long each is down.
        is_graceful: they are closed as they should be, not killed.
        protocol: what they use from then on, if that changes (KIP-848): an upgrade, or the way back.
    """
    kind: Callable[..., Fault] = ConsumerStop if is_graceful else ConsumerCrash
    if protocol is not None:
        kind = partial(ProtocolChange, protocol=protocol, is_graceful=is_graceful)
    stops = [start_ms + place // at_once * step_ms for place in range(len(numbers))]
    return [
        kind(start_ms=stop_ms, end_ms=stop_ms + down_ms, consumer=number, group=group_id)
        for number, stop_ms in zip(numbers, stops, strict=True)
    ]
