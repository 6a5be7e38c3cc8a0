"""Owners of the log: of the whole log with a lease, or of each log partition among replicas."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Sequence

import pytest
from attrs import evolve

from groupcoord import Config
from groupcoord.cluster.slot_log import Kind, Message, Slot
from groupcoord.cluster.slot_writer import Operation, Put, Read, SlotWriter
from groupcoord.coordinator.ownership import Ownership
from groupcoord.sim import (
    ClusterOptions,
    ConsumerStop,
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
from groupcoord.sim.cluster.leading import OPERATION_MS, Replicated, Result, SharedSlots
from groupcoord.sim.kernel import WORLD_RANK
from groupcoord.sim.scenarios.swarm import swarm_options
from tests.samples import seeds
from tests.tables import as_one_test

from .worlds import MEMBER, small_world

OWNED = ClusterOptions(
    node_count=3,
    config=Config(offsets_topic_num_partitions=2, group_initial_rebalance_delay_ms=1_000),
    failure_detection_ms=2_000,
    lease_ms=1_500,
)
SHARED = ClusterOptions(
    node_count=3,
    config=Config(offsets_topic_num_partitions=4, group_initial_rebalance_delay_ms=1_000),
    replicas=ReplicaOptions(snapshot_bytes_min=2_000, stale_percent=30, late_percent=20),
)
A_STALL, _ = STALLS = tuple(NodeStall(start_ms=30_000, end_ms=38_000, node_id=number) for number in (1, 2))
COMMITS = SimpleConsumer(start_ms=5_000, end_ms=110_000, group="tool")


def lines_of(options: WorldOptions, part: str = "") -> list[str]:
    """Run a world; return the lines of its trace that have something in them."""
    lines: list[str] = []
    World(1, options, lines.append).run()
    return [line for line in lines if part in line]


def test_a_stalled_owner_loses_the_log() -> None:
    """Another node takes it over, serves it after the lease, and the first sends nothing when it resumes."""
    told = lines_of(small_world(A_STALL, cluster=OWNED))
    since = told[[line.endswith("stands still") for line in told].index(True) :]
    assert [line.split(maxsplit=1)[0] for line in since[:4]] == [
        "00:00:30.000",  # it stalls
        "00:00:32.000",  # others believe that it is dead
        "00:00:33.500",  # its lease is over, and another one has loaded
        "00:00:38.000",
    ]
    assert "node 3     billing: loaded" in since[2]
    assert "OwnershipLost" in since[3]
    words = [line.split("node 1     ")[1] for line in since[4:] if "node 1     " in line]
    refusals = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "is gone (unload)")
    assert [word for word in words if not word.endswith(refusals)] == []


def test_an_owner_that_wakes_in_time_goes_on() -> None:
    """A pause shorter than the time until it counts as dead leaves it the owner, unnoticed by groups."""
    stall = evolve(A_STALL, end_ms=31_900)
    assert lines_of(small_world(stall, cluster=OWNED), "OwnershipLost") == []


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
    ("cluster", "faults"),
    [
        (OWNED, (NodeCrash(start_ms=30_000, end_ms=60_000, node_id=1), A_STALL)),
        (OWNED, (NodeCrash(start_ms=30_000, end_ms=30_500, node_id=1), A_STALL)),
        (OWNED, (Migration(start_ms=30_000, end_ms=30_000, partition=1, node_id=3), A_STALL)),
        (SHARED, STALLS),
        (
            SHARED,
            (
                NodeCrash(start_ms=30_000, end_ms=30_500, node_id=1),
                NodeCrash(start_ms=31_000, end_ms=50_000, node_id=2),
            ),
        ),
        (
            SHARED,
            [Migration(start_ms=t, end_ms=t, partition=t % 4, node_id=t % 3 + 1) for t in range(30_000, 31_000, 97)],
        ),
        (SHARED, [LogTrouble(start_ms=20_000, end_ms=60_000, flush_ms=3_000, refusal_percent=30)]),
        (SHARED, [LossyNetwork(start_ms=20_000, end_ms=60_000, probability=0.2)]),
        (SHARED, [ForeignRecords(start_ms=30_000, end_ms=30_000, partition=1, kind="unknown-type"), *STALLS]),
    ],
    ids=[
        *("crash", "restart before anybody noticed", "move"),
        *("stalls", "crashes", "moves", "slow engine", "lossy network", "another writer"),
    ],
)
def test_all_laws_hold(cluster: ClusterOptions, faults: Sequence[Fault]) -> None:
    """Groups come to rest after faults of owners, their engine and the network; at most one node is up to date."""
    world = World(1, small_world(*faults, COMMITS, cluster=cluster))
    look = world.laws.after_event

    def count_and_look() -> None:
        for partition in range(world.cluster.partition_count):
            assert sum(node.is_up_to_date(partition) for node in world.cluster.nodes) <= 1
        look()

    world.laws.after_event = count_and_look  # type: ignore[method-assign]
    world.run()


def world_with_a_forsaken_fence(*faults: Fault) -> tuple[World, list[int], list[str]]:
    """Return a world whose group commits nothing, and where another node takes it over once, and dies. Also a list of
    the fences of that log partition, and the lines of the trace.
    """
    lines: list[str] = []
    fences: list[int] = []
    member = evolve(MEMBER, enable_auto_commit=False)
    world = World(1, small_world(*faults, cluster=SHARED, member=member), lines.append)
    cluster = world.cluster
    partition = cluster.partition_of("billing")

    def fenced(node_id: int, fenced_partition: int) -> None:
        if fenced_partition == partition:
            fences.append(node_id)
            if len(fences) == 2:
                world.scheduler.at(world.scheduler.time_ms, WORLD_RANK, cluster.crash, cluster.nodes[node_id - 1])

    def seize(_: None) -> None:
        owner = cluster.serving_node("billing")
        assert owner is not None
        cluster.leading.move(partition, cluster.nodes[owner.node_id % SHARED.node_count])

    assert isinstance(cluster.leading, Replicated)
    cluster.leading.slots.report_fence = fenced
    world.scheduler.at(world.start_ms + 60_000, WORLD_RANK, seize, None)
    return world, fences, lines


class Wanting:
    """A process that puts fences."""

    def __init__(self, node_id: int, *, is_wanting: bool) -> None:
        self.node_id = node_id
        self._is_wanting = is_wanting

    def wants(self, partition: int) -> bool:
        return self._is_wanting


def test_fences_of_who_has_given_up_take_nothing_away() -> None:
    """A reader of a slot is up to date if only fences of resigned nodes follow, and none of a future owner."""
    leading = World(1, small_world(cluster=SHARED)).cluster.leading
    assert isinstance(leading, Replicated)
    slots = leading.slots
    owner, other, gone = (slots.new_tag(Wanting(number, is_wanting=number < 3)) for number in (1, 2, 3))
    last = []
    for slot, (tag, kind) in enumerate(
        [
            (owner, Kind.FENCE),
            (gone, Kind.FENCE),
            (gone, Kind.FENCE),
            (owner, Kind.CHUNK),
            (gone, Kind.FENCE),
            (other, Kind.FENCE),
            (gone, Kind.FENCE),
        ]
    ):
        assert slots.carry_out(0, Put(slot, Message(kind, tag, slot, b"").encoded())) is None
        last.append([known for known in range(-1, slot + 1) if slots.is_last(0, known)])
    assert last == [[0], [0, 1], [0, 1, 2], [3], [3, 4], [5], [5, 6]]


def test_who_fences_and_dies_leaves_the_log_partition_to_its_owner() -> None:
    """The fence is unknown to others: clients continue with the owner, which is up to date."""
    world, fences, lines = world_with_a_forsaken_fence()
    world.run()
    owner, fencer = fences
    serving = world.cluster.serving_node("billing")
    assert serving is not None
    assert serving.node_id == owner != fencer
    assert world.cluster.log.leaders[world.cluster.partition_of("billing")].node_id == fencer
    assert not any("billing" in line for line in lines if line > "00:01:00")


def test_who_is_fenced_by_one_that_died_takes_over_anew_when_it_writes() -> None:
    stop = ConsumerStop(start_ms=80_000, end_ms=90_000, consumer=0, group="billing")
    world, fences, lines = world_with_a_forsaken_fence(stop)
    world.run()
    owner, fencer, *again = fences
    assert again == [owner] != [fencer]
    assert any("billing: is gone (unload)" in line for line in lines if "00:01:20" < line < "00:01:31")


def test_an_engine_that_is_slow_to_answer_is_asked_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of an earlier operation is not taken for that of its repetition."""
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
@pytest.mark.parametrize("seed", [seed for seed in seeds(40) if swarm_options(seed).cluster.replicas is not None])
def test_small_fleets_of_replicas_keep_every_law(seed: int) -> None:
    """Swarm worlds whose nodes are replicas."""
    run = run_seed(seed, swarm_options(seed))
    assert run.failure is None, "\n".join([str(run.failure), *run.tail])


@pytest.mark.parametrize(("cluster", "faults"), [(OWNED, (A_STALL,)), (SHARED, (*STALLS, COMMITS))])
def test_who_answers_after_its_lease_breaks_the_law(
    cluster: ClusterOptions, faults: tuple[Fault, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner that believes in a longer lease than others wait for is caught."""
    proven = Ownership._proven

    def proven_for_long(self: Ownership, since_ms: int) -> None:
        self._lease_ms = self._interval_ms = 60_000
        proven(self, since_ms)

    monkeypatch.setattr(Ownership, "_proven", proven_for_long)
    with pytest.raises(LawBrokenError, match=r"its lease has expired|had responded"):
        World(1, small_world(*faults, cluster=cluster)).run()


@pytest.mark.parametrize("seed", [69, pytest.param(3312, marks=pytest.mark.ci)])
def test_seeds_with_a_deposed_owner(seed: int) -> None:
    """A stalled owner rejects a commit of a member (69); an append waits for a slow log during a take-over (3312)."""
    options = swarm_options(seed)
    assert options.cluster.lease_ms is not None
    run = run_seed(seed, options)
    assert run.failure is None, run.failure


def test_who_does_not_read_up_to_its_fence_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that trusts a lagging reader serves an older state."""

    def believe_anything(self: SlotWriter) -> Generator[Read, list[Slot], list[Slot]]:
        return (yield Read(0))

    monkeypatch.setattr(SlotWriter, "_read_up_to_fence", believe_anything)
    crash = NodeCrash(start_ms=30_000, end_ms=60_000, node_id=1)
    lags = evolve(SHARED, replicas=ReplicaOptions(stale_percent=90))
    with pytest.raises(LawBrokenError):
        World(1, small_world(crash, COMMITS, cluster=lags)).run()


SCENARIO = """\
duration = "2m"
[cluster]
nodes = 3
lease = "1500ms"
[topics]
orders = 6
[[groups]]
name = "billing"
members = 2
topics = ["orders"]
[[events]]
kind = "stall-node"
node = 1
at = "30s"
for = "8s"
"""
REPLICAS = "[cluster.replicas]\nsnapshot_bytes = 2000\nstale_percent = 30\nlate_percent = 20\n"


def test_scenarios_set_leases_and_replicas() -> None:
    """Invalid settings are rejected with their place."""
    options = parse_scenario(SCENARIO).options_of(1)
    assert (options.cluster.lease_ms, options.faults) == (1_500, (A_STALL,))
    shared = SCENARIO.replace('lease = "1500ms"\n', REPLICAS)
    assert parse_scenario(shared).options_of(1).cluster.replicas == SHARED.replicas
    for text, reason in (
        (SCENARIO.replace("1500ms", "60s"), r"cluster\.lease: must not be longer"),
        (SCENARIO.replace("[topics]", f"{REPLICAS}[topics]"), r"cluster\.replicas: have their own leases"),
        (shared.replace("late_percent = 20", 'lease = "2s"'), r"replicas\.lease: must be shorter than dead"),
        (shared.replace("late_percent = 20", 'lease = "60s"\ndead = "61s"'), r"replicas\.lease: must not be longer"),
        (shared.replace("late_percent = 20", 'beat = "0ms"'), r"replicas\.beat: must not be 0"),
    ):
        with pytest.raises(ScenarioError, match=reason):
            parse_scenario(text)


@pytest.mark.ci
def test_the_same_seed_tells_the_same() -> None:
    """Nothing but the seed decides what becomes of messages to the engine."""
    options = small_world(*STALLS, COMMITS, cluster=SHARED)
    assert World(7, options).run() == World(7, options).run()
    assert World(7, evolve(options, fast_forwards=False)).run() == World(7, options).run()
