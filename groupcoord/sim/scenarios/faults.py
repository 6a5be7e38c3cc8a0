"""Faults of the cluster, its network and log, and of consumers; options of a simulated world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from attrs import frozen

from groupcoord.sim.actors.clients import Fault
from groupcoord.sim.actors.consumers import Consumer
from groupcoord.sim.actors.environment import GroupOptions, GroupProtocol, Stage
from groupcoord.sim.actors.groups import Population
from groupcoord.sim.cluster.leading import ClusterOptions
from groupcoord.sim.kernel import Chance, stable_number

SETTLE_MS = 900_000


@frozen
class WorldOptions:
    """Options of a simulated world.

    Attributes:
        cluster: nodes, network and log.
        topics: numbers of partitions by name.
        groups: the groups of consumers.
        faults: planned faults, and clients that are active for a while.
        duration_ms: duration of the run; all faults end before.
        measure_from_ms: start of measuring; 0: the start of the run.
        settle_ms: longest time until all is at rest after the run.
        calm_ms: time without events after that.
        law_interval_ms: interval of checks of the costly laws; 0: after every event of a node.
        fast_forwards: True to skip repetitions of steady groups; not with replicas, which write simultaneous
            appends together.
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
    """Crash of a node, with a restart at the end."""

    node_id: int

    def begin(self, stage: Stage, population: Population) -> None:
        stage.cluster.crash(stage.cluster.nodes[self.node_id - 1])

    def end(self, stage: Stage, population: Population) -> None:
        stage.cluster.restart(stage.cluster.nodes[self.node_id - 1])


@frozen(kw_only=True)
class NodeStall(Fault):
    """Stall of a node's process, which then continues."""

    node_id: int

    def begin(self, stage: Stage, population: Population) -> None:
        until_ms = stage.scheduler.time_ms + self.end_ms - self.start_ms
        stage.cluster.stall(stage.cluster.nodes[self.node_id - 1], until_ms)


@frozen(kw_only=True)
class Migration(Fault):
    """Move of a log partition to another node."""

    partition: int
    node_id: int

    def begin(self, stage: Stage, population: Population) -> None:
        stage.cluster.leading.move(self.partition, stage.cluster.nodes[self.node_id - 1])


@frozen(kw_only=True)
class CutOff(Fault):
    """Network partition between some consumers and some nodes."""

    consumers: tuple[int, ...]
    node_ids: tuple[int, ...]

    def begin(self, stage: Stage, population: Population) -> None:
        stage.record(f"{_names(population, self.consumers)} cut off from {_nodes(self.node_ids)}")
        stage.cluster.network.cut_off |= {(c, n) for c in self.consumers for n in self.node_ids}

    def end(self, stage: Stage, population: Population) -> None:
        stage.record(f"{_names(population, self.consumers)} reach {_nodes(self.node_ids)} again")
        stage.cluster.network.cut_off -= {(c, n) for c in self.consumers for n in self.node_ids}


@frozen(kw_only=True)
class LossyNetwork(Fault):
    """Network in which each message may break its connection."""

    probability: float

    def begin(self, stage: Stage, population: Population) -> None:
        stage.record(f"the network loses {self.probability:.1%} of all messages")
        stage.cluster.network.loss = Chance(stable_number(stage.seed, "loss", self.start_ms), self.probability)

    def end(self, stage: Stage, population: Population) -> None:
        stage.record("the network loses nothing any more")
        stage.cluster.network.loss = None


@frozen(kw_only=True)
class LogTrouble(Fault):
    """Slow or refused writes and incomplete reads of the log (:class:`groupcoord.sim.cluster.log.StoreFault`)."""

    flush_ms: int = 0
    refusal_percent: int = 0
    broken_read_percent: int = 0

    def begin(self, stage: Stage, population: Population) -> None:
        broken = f", {self.broken_read_percent} % of reads break off" if self.broken_read_percent else ""
        stage.record(f"the log writes every {self.flush_ms} ms and refuses {self.refusal_percent} %{broken}")

    def end(self, stage: Stage, population: Population) -> None:
        stage.record("the log is well again")


@frozen(kw_only=True)
class ConsumerFault(Fault):
    """Fault of one consumer."""

    consumer: int
    group: str

    def of(self, population: Population) -> Consumer:
        return population.consumers[self.consumer]


@frozen(kw_only=True)
class ConsumerCrash(ConsumerFault):
    """Crash of a consumer, with a restart at the end unless it ``stays_dead``."""

    stays_dead: bool = False

    def begin(self, stage: Stage, population: Population) -> None:
        self.of(population).crash()

    def end(self, stage: Stage, population: Population) -> None:
        if not self.stays_dead:
            self.of(population).start()


@frozen(kw_only=True)
class ConsumerStop(ConsumerFault):
    """Regular close of a consumer, with a restart at the end."""

    def begin(self, stage: Stage, population: Population) -> None:
        self.of(population).close()

    def end(self, stage: Stage, population: Population) -> None:
        self.of(population).crash()
        self.of(population).start()


@frozen(kw_only=True)
class ProtocolChange(ConsumerFault):
    """Restart of a consumer, closed or killed, with another ``group.protocol`` (KIP-848)."""

    protocol: GroupProtocol
    is_graceful: bool = True

    def begin(self, stage: Stage, population: Population) -> None:
        consumer = self.of(population)
        if self.is_graceful:
            consumer.close()
        else:
            consumer.crash()

    def end(self, stage: Stage, population: Population) -> None:
        """Restart the consumer; one that has not finished closing is killed."""
        consumer = self.of(population)
        consumer.crash()
        consumer.protocol = self.protocol
        population.by_id[self.group].has_changed_protocol = True
        consumer.start()


@frozen(kw_only=True)
class ConsumerPause(ConsumerFault):
    """Pause of a consumer's process, as in a long garbage collection."""

    def begin(self, stage: Stage, population: Population) -> None:
        self.of(population).freeze()

    def end(self, stage: Stage, population: Population) -> None:
        self.of(population).thaw()


@frozen(kw_only=True)
class BusyApplication(ConsumerFault):
    """Application of a consumer that works for long and does not poll."""

    def begin(self, stage: Stage, population: Population) -> None:
        self.of(population).work()

    def end(self, stage: Stage, population: Population) -> None:
        self.of(population).poll_again()


@frozen(kw_only=True)
class BrokenConnections(ConsumerFault):
    """Loss of a consumer's connections."""

    def begin(self, stage: Stage, population: Population) -> None:
        self.of(population).break_connections()


@frozen(kw_only=True)
class ClockJump(ConsumerFault):
    """Jump of a consumer's clock forward."""

    duration_ms: int

    def begin(self, stage: Stage, population: Population) -> None:
        self.of(population).jump(self.duration_ms)


@frozen(kw_only=True)
class TopicGrowth(Fault):
    """New partitions of a topic; consumers see them at once."""

    topic: str
    partition_count: int

    def begin(self, stage: Stage, population: Population) -> None:
        population.grow(self.topic, self.partition_count)


@frozen(kw_only=True)
class TopicCreation(Fault):
    """New topic; nodes and consumers see it at once."""

    topic: str
    partition_count: int

    def begin(self, stage: Stage, population: Population) -> None:
        population.grow(self.topic, self.partition_count)


@frozen(kw_only=True)
class TopicDeletion(Fault):
    """Deletion of a topic, and at the end its creation with another id.

    Attributes:
        topic: its name.
        partition_count: partitions of the new topic; 0: none is created.
    """

    topic: str
    partition_count: int = 0

    def begin(self, stage: Stage, population: Population) -> None:
        population.delete(self.topic)

    def end(self, stage: Stage, population: Population) -> None:
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
        start_ms: start of the first stop.
        at_once: number of consumers that stop together.
        step_ms: interval between stops.
        down_ms: downtime of each consumer.
        is_graceful: True if consumers are closed, not killed.
        protocol: protocol after the restart, if it changes (KIP-848): an upgrade or a downgrade.
    """
    kind: Callable[..., Fault] = ConsumerStop if is_graceful else ConsumerCrash
    if protocol is not None:
        kind = partial(ProtocolChange, protocol=protocol, is_graceful=is_graceful)
    stops = [start_ms + place // at_once * step_ms for place in range(len(numbers))]
    return [
        kind(start_ms=stop_ms, end_ms=stop_ms + down_ms, consumer=number, group=group_id)
        for number, stop_ms in zip(numbers, stops, strict=True)
    ]
