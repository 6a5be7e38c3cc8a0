"""Share groups in the simulator: what workers get, what the end of one costs, and laws that bite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from groupcoord.broker.share.share_partitions import LedPartition, SharePartitions
from groupcoord.core.share_partition.in_flight import FINISHED, AcknowledgeType, RecordState
from groupcoord.core.share_partition.partition import SharePartition, StateWrite
from groupcoord.core.share_state.records import DeliveryState
from groupcoord.sim import ScenarioError
from groupcoord.sim.reports.page import format_verdict
from groupcoord.sim.reports.runs import Comparison, FleetReport, Run, run_seed
from groupcoord.sim.scenarios.file import parse_scenario
from tests.samples import seeds

LOCK_MS = 5_000

SCENARIO = """
duration = "90s"
settle = "1m"
[cluster]
nodes = {nodes}
failover = "2s"
[cluster.config]
offsets.topic.num.partitions = 3
group.share.min.record.lock.duration.ms = 1000
group.share.record.lock.duration.ms = 5000
group.share.delivery.count.limit = 3
[topics]
jobs = 3
[[events]]
kind = "share-workers"
group = "queue"
topics = ["jobs"]
instances = 6
at = "0ms"
for = "1m"
write_every = "500ms"
{work}
{keys}
{more}
"""

FAULTS = """
[[events]]
kind = "crash-node"
node = 1
at = "15s"
down = "10s"
[[events]]
kind = "move-log-partition"
partition = 1
node = 3
at = "20s"
[[events]]
kind = "lose-messages"
percent = 20
at = "30s"
for = "10s"
[[events]]
kind = "failing-log"
percent = 50
at = "45s"
for = "5s"
"""


def run(keys: str = "", more: str = "", *, work: str = '["100ms", "1s"]', seed: int = 1, nodes: int = 1) -> Run:
    text = SCENARIO.format(keys=keys, more=more, nodes=nodes, work=f"work = {work}")
    return run_seed(seed, parse_scenario(text).options_of(seed))


def test_topics_that_no_broker_creates_in_one_request() -> None:
    """A world with share groups accepts topics of any name and size."""
    text = SCENARIO.format(keys="", more="", nodes=1, work="").replace("jobs = 3", 'jobs = 3\n"a large one" = 10001')
    assert run_seed(1, parse_scenario(text).options_of(1)).failure is None


def figures(found: Run) -> Mapping[str, Any]:
    assert found.failure is None, found.failure
    return next(group.values for group in found.groups if group.group_id == "queue")


def test_without_trouble_each_record_comes_once() -> None:
    """All records are accepted soon after they were written, and no lock is waited for."""
    found = figures(run())
    assert len(found["done_ms"]) > 100
    assert sorted(found["done_ms"])[len(found["done_ms"]) // 2] < LOCK_MS / 2
    assert (found["redeliveries"], found["archived"], found["lock_wait_ms"]) == ((0,), (0,), ())


def test_the_end_of_a_worker() -> None:
    """Closed, it costs nothing; killed, its records are another's at once; gone with its machine, after their locks."""
    closed, killed, gone = (
        figures(run(keys))
        for keys in ('restart = "5s"', "crash_percent = 8", "crash_percent = 8\nvanish_percent = 100")
    )
    assert closed["redeliveries"] == (0,)
    assert killed["redeliveries"] > (0,)
    assert sorted(killed["lock_wait_ms"])[len(killed["lock_wait_ms"]) // 2] < LOCK_MS / 4
    assert max(killed["lock_wait_ms"]) < sorted(gone["lock_wait_ms"])[len(gone["lock_wait_ms"]) // 2]


def test_records_that_are_given_up() -> None:
    """Rejected records are archived, and so are those released too often."""
    assert figures(run("reject_percent = 10"))["archived"] > (0,)
    given_back = figures(run("release_percent = 60"))
    assert given_back["archived"] > (0,)
    assert given_back["redeliveries"] > (0,)


def test_locks_that_are_renewed() -> None:
    """Work that takes longer than a lock comes a second time, unless that is renewed."""
    long = 'hang_percent = 30\nhang = "8s"\n'
    assert figures(run(long))["redeliveries"] > (0,)
    assert figures(run(long + "renews = true"))["redeliveries"] == (0,)


@pytest.mark.parametrize("seed", seeds(2))
def test_laws_hold_while_nodes_die(seed: int) -> None:
    """Nothing is lost and nothing accepted comes again, though nodes crash, leaders move and messages are lost."""
    trouble = "crash_percent = 5\nvanish_percent = 50\nrelease_percent = 10\n"
    assert figures(run(trouble, FAULTS, seed=seed, nodes=3))["redeliveries"] > (0,)


def _is_had(state: RecordState) -> bool:
    return state.state not in FINISHED and state.pending is None


def _releases(state: RecordState, kind: AcknowledgeType, settings: Any) -> DeliveryState:
    return DeliveryState.ACKNOWLEDGED if kind is AcknowledgeType.ACCEPT else DeliveryState.AVAILABLE


def _forgets(self: SharePartition, write: Any) -> None:
    self.refused(write)


BUGS: Mapping[str, tuple[str, Any, str]] = {
    "records are several workers'": ("in_flight.RecordState.is_available", property(_is_had), "while queue-"),
    "accepted records come again": ("partition.SharePartition.written", _forgets, "was accepted"),
    "records come too often": ("partition._outcome", _releases, "is delivered 4 times"),
    "acceptance isn't written": ("partition.merge_batches", lambda *_: (), "but not in the log"),
    "locks are never over": ("partition.SharePartition.next_lock_ms", lambda self: None, "did not come to rest"),
}


@pytest.mark.parametrize(("name", "method", "message"), BUGS.values(), ids=BUGS)
def test_the_laws_bite(monkeypatch: pytest.MonkeyPatch, name: str, method: Any, message: str) -> None:
    """A leader of share-partitions with a bug breaks a law, which is named."""
    monkeypatch.setattr(f"groupcoord.core.share_partition.{name}", method)
    trouble = 'hang_percent = 20\nhang = "8s"\ncrash_percent = 5\nvanish_percent = 100\nrelease_percent = 20'
    failure = run(trouble).failure
    assert failure is not None
    assert message in failure


def test_what_a_lock_that_was_over_has_given_up_need_not_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Kafka, its leader has archived it in memory, and does not write it again: that is a stable state."""
    write = SharePartitions.write

    def all_but_those_of_locks(self: SharePartitions, led: LedPartition, what: StateWrite, *done: Any) -> None:
        if what.runs:
            write(self, led, what, *done)

    monkeypatch.setattr(SharePartitions, "write", all_but_those_of_locks)
    assert figures(run(work='["100ms", "7s"]'))["redeliveries"] != (0,)


def test_variants_of_workers_are_compared_by_their_records() -> None:
    """Without consumers, the variant whose records are processed soonest costs least."""
    reports = [
        FleetReport(name, [run(work=work, seed=seed) for seed in range(2)], name)
        for name, work in (("slow", '"4s"'), ("quick", '"100ms"'))
    ]
    assert format_verdict(Comparison(tuple(reports))).startswith("quick costs least: ")
    assert "less per record until it is done than slow" in format_verdict(Comparison(tuple(reports)))


def test_a_fleet_is_somebody() -> None:
    """A scenario without consumers has workers, or an application."""
    with pytest.raises(ScenarioError, match="unless there is an event streams-application or share-workers"):
        parse_scenario('duration = "1m"\n[topics]\njobs = 1\n')
