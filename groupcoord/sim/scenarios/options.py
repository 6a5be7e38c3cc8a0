"""What a simulated world is like and what happens in it: drawn from a seed, or given."""

from __future__ import annotations

from attrs import frozen

from groupcoord.sim.actors.fault import Fault
from groupcoord.sim.actors.options import GroupOptions
from groupcoord.sim.cluster.options import ClusterOptions

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
