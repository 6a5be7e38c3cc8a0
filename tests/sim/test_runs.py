"""The same seed, the same run: in every process, and with or without fast-forwarding."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from attrs import evolve

from groupcoord import Config
from groupcoord.member import MemberConfig
from groupcoord.sim import (
    AdminAction,
    Administrator,
    BusyApplication,
    ClockJump,
    ClusterOptions,
    ConsumerCrash,
    ConsumerPause,
    ConsumerStop,
    CutOff,
    Fault,
    ForeignRecords,
    LogTrouble,
    LossyNetwork,
    Migration,
    NodeCrash,
    SimpleConsumer,
    TopicDeletion,
    TopicGrowth,
    TransactionalProducer,
    World,
    WorldOptions,
    parse_scenario,
    rolling_restart,
    run_seed,
    swarm_options,
)
from groupcoord.sim.actors.applications import Application
from groupcoord.sim.actors.clients import FOREIGN
from groupcoord.sim.kernel import WORLD_RANK
from groupcoord.sim.scenarios.faults import ConsumerFault
from tests.samples import SEED, portion, sampled, seeds
from tests.subclasses import subclasses
from tests.tables import as_one_test

from .worlds import small_world

FAULTS: dict[str, list[Fault]] = {
    "none": [],
    "node crash": [NodeCrash(start_ms=60_000, end_ms=70_000, node_id=node_id) for node_id in (1, 2)],
    "migration": [Migration(start_ms=60_000, end_ms=60_000, partition=p, node_id=2 - p) for p in (0, 1)],
    "cut off": [CutOff(start_ms=60_000, end_ms=80_000, consumers=(0, 2), node_ids=(1, 2))],
    "lossy network": [LossyNetwork(start_ms=60_000, end_ms=80_000, probability=0.2)],
    "slow log": [LogTrouble(start_ms=60_000, end_ms=80_000, flush_ms=3_000)],
    "failing log": [LogTrouble(start_ms=60_000, end_ms=80_000, refusal_percent=60)],
    "log that can't be read": [
        *(NodeCrash(start_ms=60_000, end_ms=65_000, node_id=node_id) for node_id in (1, 2)),
        LogTrouble(start_ms=60_000, end_ms=80_000, broken_read_percent=60),
    ],
    "consumer crash": [ConsumerCrash(start_ms=60_000, end_ms=90_000, consumer=1, group="billing")],
    "death": [ConsumerCrash(start_ms=60_000, end_ms=60_000, consumer=1, group="billing", stays_dead=True)],
    "stop": [ConsumerStop(start_ms=60_000, end_ms=65_000, consumer=1, group="billing")],
    "pause": [ConsumerPause(start_ms=60_000, end_ms=80_000, consumer=1, group="billing")],
    "busy": [BusyApplication(start_ms=60_000, end_ms=140_000, consumer=1, group="billing")],
    "clock": [ClockJump(start_ms=60_000, end_ms=60_000, consumer=1, group="billing", duration_ms=20_000)],
    "growth": [TopicGrowth(start_ms=60_000, end_ms=60_000, topic="orders", partition_count=9)],
    "roll": rolling_restart("billing", range(3), 60_000, 1, 10_000, 3_000),
    "producer": [TransactionalProducer(start_ms=60_000, end_ms=80_000, producer_id=7, group="billing")],
    "simple consumer": [SimpleConsumer(start_ms=60_000, end_ms=80_000, group="billing")],
    "tool": [SimpleConsumer(start_ms=60_000, end_ms=80_000, group="tool")],
    "foreign records": [ForeignRecords(start_ms=60_000, end_ms=60_000, partition=1, kind=kind) for kind in FOREIGN],
    **{
        f"administrator {action.name}": [Administrator(start_ms=60_000, end_ms=60_000, group="billing", action=action)]
        for action in AdminAction
    },
}

STATIC_LEADER_AWAY = ConsumerCrash(start_ms=60_000, end_ms=64_000, consumer=0, group="billing")


def trace_of(seed: int, options: WorldOptions) -> tuple[list[str], tuple[object, ...]]:
    """Return the lines of a trace, and what else must be the same in two runs of a world."""
    lines: list[str] = []
    outcome = World(seed, options, lines.append).run()
    return lines, (outcome.digest, outcome.heartbeats, outcome.commits, outcome.rest_ms)


@sampled
@as_one_test
@pytest.mark.parametrize("name", portion(list(FAULTS)))
def test_skipping_what_repeats_changes_nothing(name: str) -> None:
    """A world with each fault has the same lines, digest, heartbeats and commits with and without fast-forwarding."""
    options = small_world(*FAULTS[name], duration_ms=200_000)

    skipping, whole = World(7, options), World(7, evolve(options, fast_forwards=False))

    first, second = skipping.run(), whole.run()
    assert evolve(first, events=0, looks=0) == evolve(second, events=0, looks=0)
    assert first.events < second.events


def test_nothing_is_served_of_a_log_that_cannot_be_read() -> None:
    """While loads fail no commit succeeds; with an intact log all do, and every law holds."""
    crashes = [NodeCrash(start_ms=60_000, end_ms=62_000, node_id=node_id) for node_id in (1, 2)]
    text = 'duration = "2m"\n[topics]\norders = 6\n[[groups]]\nname = "billing"\nmembers = 3\ntopics = ["orders"]\n'
    event = '[[events]]\nkind = "unreadable-log"\npercent = 100\nat = "1m"\nfor = "30s"\n'
    (trouble,) = parse_scenario(text + event).options_of(7).faults

    last = []
    for faults in (crashes, [*crashes, trouble]):
        lines, _ = trace_of(7, small_world(*faults))
        last.append(max(line.split()[0] for line in lines if "could not commit" in line or "loses" in line))

    assert last[0] < "00:01:10" < "00:01:29" < last[1] < "00:01:40"


def test_a_topic_that_grows_while_a_static_leader_is_away() -> None:
    """As with the Java consumer (KIP-814), new partitions have no owner until something else causes a rebalance."""
    growth = TopicGrowth(start_ms=62_000, end_ms=62_000, topic="orders", partition_count=8)
    world = World(3, small_world(STATIC_LEADER_AWAY, growth, members=1, group={"is_static": True}))

    world.run()

    assert len(world.consumers[0].owned) == 6


@pytest.mark.parametrize("end_ms", [62_000, 63_000], ids=["for good", "for a moment"])
def test_a_topic_that_goes_while_a_static_leader_is_away(end_ms: int) -> None:
    """As with the Java consumer (KIP-814), members keep what they had of it until something else causes a rebalance."""
    count = 8 if end_ms > 62_000 else 0
    deletion = TopicDeletion(start_ms=62_000, end_ms=end_ms, topic="orders", partition_count=count)
    world = World(3, small_world(STATIC_LEADER_AWAY, deletion, members=1, group={"is_static": True}))

    world.run()

    assert len(world.consumers[0].owned) == 6


def test_a_commit_that_is_tried_again_is_never_left_out() -> None:
    """A consumer whose automatic commits fail repeats them sooner, with and without fast-forwarding."""
    deletion = TopicDeletion(start_ms=62_000, end_ms=62_000, topic="orders")
    options = small_world(STATIC_LEADER_AWAY, deletion, members=1, group={"is_static": True})

    lines, *rest = trace_of(3, options)

    assert (lines, *rest) == trace_of(3, evolve(options, fast_forwards=False))
    assert sum("could not commit" in line for line in lines) > 100


def test_a_member_that_talks_to_a_former_leader_is_not_steady() -> None:
    """While the word of a new leader is slow to spread, nothing is left out, though the new leader is content."""
    cluster = ClusterOptions(node_count=2, config=Config(offsets_topic_num_partitions=1), metadata_delay_max_ms=10_000)
    member = MemberConfig(session_timeout_ms=10_000, heartbeat_interval_ms=1_000, enable_auto_commit=False)
    for seed in range(6):
        move = Migration(start_ms=60_000, end_ms=60_000, partition=0, node_id=2)
        options = small_world(move, cluster=cluster, member=member)

        assert trace_of(seed, options) == trace_of(seed, evolve(options, fast_forwards=False))


def test_a_node_that_leads_again_must_have_heard_so() -> None:
    """A log partition that moves away and back is not written by a node that has missed both: another may have."""
    cluster = ClusterOptions(node_count=2, config=Config(offsets_topic_num_partitions=1), metadata_delay_max_ms=10_000)
    moves = [Migration(start_ms=60_000 + to, end_ms=60_000 + to, partition=0, node_id=3 - to) for to in (1, 2)]
    world = World(1, small_world(*moves, cluster=cluster))
    seen: list[bool] = []
    for after_ms in (59_000, 60_003, 90_000):
        moment_ms = world.start_ms + after_ms
        world.scheduler.at(moment_ms, WORLD_RANK, lambda _: seen.append(world.cluster.nodes[0].leads(0)))

    world.run()

    assert world.cluster.log.leaders[0].node_id == 1
    assert seen == [True, False, True]


@sampled
@pytest.mark.parametrize("seed", portion([SEED + number for number in (106, 104, 105, 108)]))
def test_small_fleets_tell_the_same_with_and_without_fast_forwarding(seed: int) -> None:
    """The lines of worlds with all faults on are the same, one by one."""
    options = swarm_options(seed)

    assert trace_of(seed, options) == trace_of(seed, evolve(options, fast_forwards=False))


def test_faults_leave_their_mark() -> None:
    """Worlds with different faults, and different seeds of one world, have different traces."""
    digests = Counter(World(7, small_world(*faults)).run().digest for faults in FAULTS.values())
    digests.update(World(seed, small_world()).run().digest for seed in (8, 9))

    assert set(digests.values()) == {1}


PROGRAM = """
from groupcoord.sim import World, swarm_options
print([World(seed, swarm_options(seed)).run().digest for seed in (3, 41)])
"""


@pytest.mark.ci
def test_the_hash_seed_does_not_matter() -> None:
    """Processes with different PYTHONHASHSEED have the same traces."""
    printed = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            stdin=subprocess.DEVNULL,
        ).stdout
        for hash_seed in ("0", "1", "4711")
    }

    assert len(printed) == 1


@sampled
@as_one_test
@pytest.mark.parametrize("seed", portion(seeds(10)))
def test_small_fleets_keep_every_law(seed: int) -> None:
    """Worlds with all faults on keep the laws and come to rest."""
    run = run_seed(seed, swarm_options(seed))

    assert run.failure is None, "\n".join([str(run.failure), *run.tail])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SEED + 20_000, SEED + 21_000, 50))
def test_many_small_fleets_keep_every_law(first: int) -> None:
    """The same for a thousand more."""
    for seed in range(first, first + 50):
        run = run_seed(seed, swarm_options(seed))
        assert run.failure is None, "\n".join([f"seed {seed}: {run.failure}", *run.tail])


def test_the_draw_uses_every_trouble() -> None:
    """Over some hundred seeds, every kind of fault is drawn, and worlds without any."""
    kinds = {type(fault) for seed in range(300) for fault in swarm_options(seed).faults}

    bases = Fault, ConsumerFault, Application
    assert kinds == {kind for base in bases for kind in subclasses(base)} - {*bases}
    assert any(not swarm_options(seed).faults for seed in range(300))
