"""Nodes share the log as replicas do: each log partition has an owner, who dies, stalls, and is taken over from."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from attrs import evolve

from groupcoord import Config
from groupcoord.cluster.slot_writer import Operation, Put, SlotWriter, State
from groupcoord.embedding.ownership import Ownership
from groupcoord.sim import (
    ClusterOptions,
    Fault,
    ForeignRecords,
    LawBrokenError,
    LogTrouble,
    LossyNetwork,
    Migration,
    NodeCrash,
    NodeStall,
    ReplicaOptions,
    ScenarioError,
    SimpleConsumer,
    World,
    WorldOptions,
    parse_scenario,
    run_seed,
)
from groupcoord.sim.cluster.replicas import OPERATION_MS, Result, SharedSlots
from groupcoord.sim.scenarios.swarm import swarm_options
from tests.tables import as_one_test

from .worlds import small_world

SHARED = ClusterOptions(
    node_count=3,
    config=Config(offsets_topic_num_partitions=4, group_initial_rebalance_delay_ms=1_000),
    replicas=ReplicaOptions(snapshot_bytes_min=2_000, stale_percent=30, late_percent=20),
)
STALLS = tuple(NodeStall(start_ms=30_000, end_ms=38_000, node_id=number) for number in (1, 2))
COMMITS = SimpleConsumer(start_ms=5_000, end_ms=110_000, group="tool")


def lines_of(options: WorldOptions, part: str = "") -> list[str]:
    """Run a world; return the lines of its trace that have something in them."""
    lines: list[str] = []
    World(1, options, lines.append).run()
    return [line for line in lines if part in line]


def test_each_log_partition_has_an_owner() -> None:
    """They are dealt out among the nodes as soon as these hear of each other; then nothing moves."""
    lines: list[str] = []
    world = World(1, small_world(cluster=SHARED), lines.append)
    world.run()
    told = [line for line in lines if "takes log partition" in line]
    assert {*re.findall(r"partition (\d) over", "\n".join(told))} == {*"0123"}
    assert all(line.startswith("00:00:00") for line in told)
    assert len({leader.node_id for leader in world.cluster.log.leaders}) > 1


def test_who_dies_is_taken_over_from_within_seconds() -> None:
    """Each log partition of the dead one has another owner when it counts as dead; it gets some when it is back."""
    crash = NodeCrash(start_ms=30_000, end_ms=60_000, node_id=1)
    told = [line for line in lines_of(small_world(crash, cluster=SHARED), "takes log partition") if line > "00:00:3"]
    taken = [line for line in told if line < "00:01"]
    assert taken, "node 1 had something"
    assert all("00:00:31.2" <= line < "00:00:32" for line in taken)
    assert any("node 1" in line for line in told if line > "00:01")


@pytest.mark.parametrize(
    "faults",
    [
        STALLS,
        (NodeCrash(start_ms=30_000, end_ms=30_500, node_id=1), NodeCrash(start_ms=31_000, end_ms=50_000, node_id=2)),
        tuple(
            Migration(start_ms=ms, end_ms=ms, partition=ms % 4, node_id=ms % 3 + 1) for ms in range(30_000, 31_000, 97)
        ),
        (LogTrouble(start_ms=20_000, end_ms=60_000, flush_ms=3_000, refusal_percent=30),),
        (LossyNetwork(start_ms=20_000, end_ms=60_000, probability=0.2),),
        (ForeignRecords(start_ms=30_000, end_ms=30_000, partition=1, kind="unknown-type"), *STALLS),
    ],
    ids=["stalls", "crashes", "seized", "a bad engine", "a bad network", "another writer"],
)
def test_all_laws_hold(faults: tuple[Fault, ...]) -> None:
    """The world comes to rest, whatever happens to owners, their engine and the way there."""
    World(1, small_world(*faults, COMMITS, cluster=SHARED)).run()


def test_an_engine_that_is_slow_to_answer_is_asked_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came of an operation the time before is no answer to the same operation that was sent again."""
    asked: list[Operation] = []
    carry_out = SharedSlots.carry_out

    def counted(slots: SharedSlots, partition: int, operation: Operation) -> Result:
        asked.append(operation)
        return carry_out(slots, partition, operation)

    monkeypatch.setattr(SharedSlots, "carry_out", counted)
    trouble = LogTrouble(start_ms=20_000, end_ms=40_000, flush_ms=1_500, refusal_percent=80)
    World(1, small_world(trouble, COMMITS, cluster=SHARED)).run()
    most = max(Counter(operation for operation in asked if isinstance(operation, Put)).values())
    assert most <= 20_000 / OPERATION_MS, "once in a second, when the way takes longer"


@pytest.mark.ci
@as_one_test
@pytest.mark.parametrize("seed", [seed for seed in range(40) if swarm_options(seed).cluster.replicas is not None])
def test_small_fleets_of_replicas_keep_every_law(seed: int) -> None:
    """Worlds of the swarm whose nodes are replicas."""
    run = run_seed(seed, swarm_options(seed))
    assert run.failure is None, "\n".join([str(run.failure), *run.tail])


def test_who_answers_after_its_lease_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that believes in a longer lease than others wait for is caught."""
    proven = Ownership._proven

    def proven_for_long(self: Ownership, since_ms: int) -> None:
        self._lease_ms = self._interval_ms = 60_000
        proven(self, since_ms)

    monkeypatch.setattr(Ownership, "_proven", proven_for_long)
    with pytest.raises(LawBrokenError, match=r"its lease is over|has answered already"):
        World(1, small_world(*STALLS, COMMITS, cluster=SHARED)).run()


def test_who_does_not_read_up_to_its_fence_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that takes what a reader which lags behind tells for all that there is serves an older state."""
    has_read_on = SlotWriter._has_read_on

    def believes_anything(self: SlotWriter, read: object, slots: list) -> None:  # type: ignore[type-arg]
        has_read_on(self, read, [*slots[:-1], slots[-1]._replace(number=self.epoch)])  # type: ignore[arg-type]
        assert self.state is not State.READING

    monkeypatch.setattr(SlotWriter, "_has_read_on", believes_anything)
    crash = NodeCrash(start_ms=30_000, end_ms=60_000, node_id=1)
    lags = evolve(SHARED, replicas=ReplicaOptions(stale_percent=90))
    with pytest.raises(LawBrokenError):
        World(1, small_world(crash, COMMITS, cluster=lags)).run()


def test_scenarios_can_say_so() -> None:
    """A file has a table for replicas; what can't be is refused with its place."""
    text = """\
duration = "2m"
[cluster]
nodes = 3
[cluster.replicas]
snapshot_bytes = 2000
stale_percent = 30
late_percent = 20
[topics]
orders = 6
[[groups]]
name = "billing"
members = 2
topics = ["orders"]
"""
    assert parse_scenario(text).options_of(1).cluster.replicas == SHARED.replicas
    for line, reason in (
        ('lease = "2s"', r"cluster\.replicas\.lease: must be shorter than dead"),
        ('lease = "60s"\ndead = "61s"', r"cluster\.replicas\.lease: must not be longer"),
        ('beat = "0ms"', r"cluster\.replicas\.beat: must not be 0"),
    ):
        with pytest.raises(ScenarioError, match=reason):
            parse_scenario(text.replace("late_percent = 20", line))
    with pytest.raises(ScenarioError, match=r"cluster\.replicas: have leases of their own"):
        parse_scenario(text.replace("nodes = 3", 'nodes = 3\nlease = "1s"'))


@pytest.mark.ci
def test_the_same_seed_tells_the_same() -> None:
    """Nothing but the seed decides what becomes of messages to the engine."""
    options = small_world(*STALLS, COMMITS, cluster=SHARED)
    assert World(7, options).run() == World(7, options).run()
    assert World(7, evolve(options, fast_forwards=False)).run() == World(7, options).run()
