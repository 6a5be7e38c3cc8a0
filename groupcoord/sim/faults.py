"""What goes wrong, and when. All of it is laid down before a story begins, so everybody can know when nothing will."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from groupcoord.sim.randomness import Chance, stable_number

if TYPE_CHECKING:
    from groupcoord.sim.consumers import Consumer
    from groupcoord.sim.groups import SimulatedGroup
    from groupcoord.sim.world import World


@frozen(kw_only=True)
class Fault:
    """Something that goes wrong for a while.

    Attributes:
        start_ms, end_ms: from and until when, milliseconds since the world began. What ends at once has both the same.
    """

    start_ms: int
    end_ms: int

    @property
    def group_id(self) -> str | None:
        """The only group that it touches; None: it may touch all."""
        return None

    def begin(self, world: World) -> None:
        """Let it begin."""

    def end(self, world: World) -> None:
        """Let it end."""


@frozen(kw_only=True)
class NodeCrash(Fault):
    """A node is killed, and started again in the end."""

    node_id: int

    def begin(self, world: World) -> None:
        """Kill the node."""
        world.cluster.crash(world.cluster.nodes[self.node_id - 1])

    def end(self, world: World) -> None:
        """Start it again."""
        world.cluster.restart(world.cluster.nodes[self.node_id - 1])


@frozen(kw_only=True)
class Migration(Fault):
    """A log partition moves to another node."""

    partition: int
    node_id: int

    def begin(self, world: World) -> None:
        """Let the controller move it."""
        world.cluster.migrate(self.partition, self.node_id)


@frozen(kw_only=True)
class CutOff(Fault):
    """Some consumers do not reach some nodes, nor these them."""

    consumers: tuple[int, ...]
    node_ids: tuple[int, ...]

    def begin(self, world: World) -> None:
        """Cut them off."""
        world.tell(f"{_names(world, self.consumers)} cut off from {_nodes(self.node_ids)}")
        world.cluster.network.cut_off |= {(c, n) for c in self.consumers for n in self.node_ids}

    def end(self, world: World) -> None:
        """Let them reach each other again."""
        world.tell(f"{_names(world, self.consumers)} reach {_nodes(self.node_ids)} again")
        world.cluster.network.cut_off -= {(c, n) for c in self.consumers for n in self.node_ids}


@frozen(kw_only=True)
class LossyNetwork(Fault):
    """Each message may break its connection."""

    probability: float

    def begin(self, world: World) -> None:
        """Begin to lose messages."""
        world.tell(f"the network loses {self.probability:.1%} of all messages")
        world.cluster.network.loss = Chance(stable_number(world.seed, "loss", self.start_ms), self.probability)

    def end(self, world: World) -> None:
        """Lose none any more."""
        world.tell("the network loses nothing any more")
        world.cluster.network.loss = None


@frozen(kw_only=True)
class LogTrouble(Fault):
    """The log is slow, or refuses to write, or both (see :class:`groupcoord.sim.cluster_log.StoreFault`)."""

    flush_ms: int = 0
    refusal_percent: int = 0

    def begin(self, world: World) -> None:
        """Say so; the log knows by itself."""
        world.tell(f"the log writes every {self.flush_ms} ms and refuses {self.refusal_percent} %")

    def end(self, world: World) -> None:
        """Say so."""
        world.tell("the log is well again")


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

    def of(self, world: World) -> Consumer:
        """Return the consumer."""
        return world.consumers[self.consumer]


@frozen(kw_only=True)
class ConsumerCrash(ConsumerFault):
    """A consumer's process is killed, and started again in the end; if there is an end."""

    stays_dead: bool = False

    def begin(self, world: World) -> None:
        """Kill it."""
        self.of(world).crash()

    def end(self, world: World) -> None:
        """Start it again."""
        if not self.stays_dead:
            self.of(world).start()


@frozen(kw_only=True)
class ConsumerStop(ConsumerFault):
    """A consumer is closed as it should be, and started again in the end."""

    def begin(self, world: World) -> None:
        """Close it."""
        self.of(world).close()

    def end(self, world: World) -> None:
        """Start it again; what is not closed by then is killed."""
        self.of(world).crash()
        self.of(world).start()


@frozen(kw_only=True)
class ConsumerPause(ConsumerFault):
    """A consumer's process stands still, as in a long garbage collection."""

    def begin(self, world: World) -> None:
        """Stop it."""
        self.of(world).freeze()

    def end(self, world: World) -> None:
        """Let it go on."""
        self.of(world).thaw()


@frozen(kw_only=True)
class BusyApplication(ConsumerFault):
    """A consumer's application works for long and does not poll."""

    def begin(self, world: World) -> None:
        """Let it work."""
        self.of(world).work()

    def end(self, world: World) -> None:
        """Let it poll."""
        self.of(world).poll_again()


@frozen(kw_only=True)
class BrokenConnections(ConsumerFault):
    """A consumer's connections break."""

    def begin(self, world: World) -> None:
        """Break them."""
        self.of(world).break_connections()


@frozen(kw_only=True)
class ClockJump(ConsumerFault):
    """A consumer's clock jumps forward."""

    duration_ms: int

    def begin(self, world: World) -> None:
        """Let it jump."""
        self.of(world).jump(self.duration_ms)


@frozen(kw_only=True)
class TopicGrowth(Fault):
    """A topic gets more partitions; consumers learn of it at once."""

    topic: str
    partition_count: int

    def begin(self, world: World) -> None:
        """Let it grow."""
        world.grow(self.topic, self.partition_count)


def _names(world: World, numbers: tuple[int, ...]) -> str:
    return ", ".join(world.consumers[number].name for number in numbers)


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
    """
    kind = ConsumerStop if is_graceful else ConsumerCrash
    stops = [start_ms + place // at_once * step_ms for place in range(len(numbers))]
    return [
        kind(start_ms=stop_ms, end_ms=stop_ms + down_ms, consumer=number, group=group_id)
        for number, stop_ms in zip(numbers, stops, strict=True)
    ]


def touched(fault: Fault, group: SimulatedGroup) -> bool:
    """Tell whether a fault may touch a group."""
    return fault.group_id is None or fault.group_id == group.options.group_id
