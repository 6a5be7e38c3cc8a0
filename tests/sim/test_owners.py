"""One node owns the whole log, others stand by: whoever stalls, at most one of them answers at a time."""

from __future__ import annotations

import pytest
from attrs import evolve

from groupcoord import Config
from groupcoord.coordinator.ownership import Ownership
from groupcoord.sim import (
    ClusterOptions,
    LawBrokenError,
    Migration,
    NodeCrash,
    NodeStall,
    ScenarioError,
    World,
    WorldOptions,
    parse_scenario,
    run_seed,
)
from groupcoord.sim.scenarios.swarm import swarm_options

from .worlds import small_world

OWNED = ClusterOptions(
    node_count=3,
    config=Config(offsets_topic_num_partitions=2, group_initial_rebalance_delay_ms=1_000),
    failure_detection_ms=2_000,
    lease_ms=1_500,
)
A_STALL = NodeStall(start_ms=30_000, end_ms=38_000, node_id=1)


def lines_of(options: WorldOptions, part: str) -> list[str]:
    """Run a world; return the lines of its trace that have something in them."""
    lines: list[str] = []
    World(1, options, lines.append).run()
    return [line for line in lines if part in line]


def test_a_stalled_owner_loses_the_log() -> None:
    """Another takes it over, serves it once the lease is over, and the first says nothing when it wakes."""
    told = lines_of(small_world(A_STALL, cluster=OWNED), "")
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
    """Who stalls for less than it takes to be thought dead owns the log still, and no group notices."""
    stall = evolve(A_STALL, end_ms=31_900)
    assert lines_of(small_world(stall, cluster=OWNED), "OwnershipLost") == []


@pytest.mark.parametrize(
    "fault",
    [
        NodeCrash(start_ms=30_000, end_ms=60_000, node_id=1),
        NodeCrash(start_ms=30_000, end_ms=30_500, node_id=1),
        Migration(start_ms=30_000, end_ms=30_000, partition=1, node_id=3),
    ],
    ids=["dead", "back before anybody noticed", "by force"],
)
def test_others_take_over(fault: NodeCrash | Migration) -> None:
    """After a crash, at once when it is back, or by force: the laws hold, and the world comes to rest."""
    World(1, small_world(fault, A_STALL, cluster=OWNED)).run()


def test_who_answers_after_its_lease_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that believes in a longer lease than its successor waits for is caught."""
    proven = Ownership._proven

    def proven_for_long(self: Ownership, since_ms: int) -> None:
        self._lease_ms = self._interval_ms = 60_000
        proven(self, since_ms)

    monkeypatch.setattr(Ownership, "_proven", proven_for_long)
    with pytest.raises(LawBrokenError, match="its lease has expired"):
        World(1, small_world(A_STALL, cluster=OWNED)).run()


def test_a_commit_that_a_deposed_owner_refuses() -> None:
    """A seed in which a node that had stalled told a client that it was no member, though another one coordinated."""
    options = swarm_options(69)
    assert options.cluster.lease_ms == 600
    run_seed(69, options)


@pytest.mark.ci
def test_nothing_of_a_deposed_owner_gets_past_the_fence() -> None:
    """A seed in which an append waited for a slow log while another node took it over, and was written all the same."""
    options = swarm_options(3312)
    assert options.cluster.lease_ms is not None
    run = run_seed(3312, options)
    assert run.failure is None, run.failure


def test_scenarios_can_say_so() -> None:
    """A file names the lease and who stalls; a lease longer than a session is refused."""
    text = """\
duration = "2m"
[cluster]
nodes = 2
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
    options = parse_scenario(text).options_of(1)
    assert options.cluster.lease_ms == 1_500
    assert options.faults == (A_STALL,)
    with pytest.raises(ScenarioError, match=r"cluster\.lease: must not be longer"):
        parse_scenario(text.replace("1500ms", "60s"))
