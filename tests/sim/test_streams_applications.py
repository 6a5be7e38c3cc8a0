"""Applications of Kafka Streams in the simulator: who has which task, and what a copy of a task's state is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from groupcoord.laws import LawBrokenError
from groupcoord.sim.actors.observations import CATCH_UP_FACTOR, StreamsTasks, TaskFigures
from groupcoord.sim.reports.runs import Run, run_seed
from groupcoord.sim.scenarios.file import parse_scenario

RESTORE_MS = 60_000

SCENARIO = """
duration = "9m"
measure_from = "1m"
[cluster]
nodes = 2
[cluster.config]
group.streams.num.standby.replicas = {standbys}
[topics]
words = 6
[[groups]]
name = "others"
members = 1
topics = ["words"]
[[events]]
kind = "streams-application"
group = "counts"
topics = ["words"]
instances = {instances}
threads = {threads}
at = "0ms"
for = "8m"
restore = "{restore}"
restart = "2m"
every = "90s"
graceful = {graceful}
{more}
"""


def run(*, graceful: bool = True, seed: int = 1, **changes: Any) -> Run:
    usual = {"standbys": 0, "restore": "2m", "more": "", "instances": 3, "threads": 1}
    text = SCENARIO.format(**{**usual, **changes}, graceful=str(graceful).lower())
    return run_seed(seed, parse_scenario(text).options_of(seed))


def figures(found: Run) -> Mapping[str, Any]:
    assert found.failure is None
    return next(group.values for group in found.groups if group.group_id == "counts")


def test_a_standby_saves_reading_the_state_again() -> None:
    """When instances are restarted one after the other, tasks go on sooner where a copy of their state keeps up."""
    without, with_one = figures(run()), figures(run(standbys=1))
    assert sum(without["moves"]) > 0
    assert sum(with_one["unowned_ms"]) < sum(without["unowned_ms"])
    assert sum(figures(run(restore="0ms"))["unowned_ms"]) < sum(with_one["unowned_ms"])


@pytest.mark.parametrize("graceful", [True, False])
def test_laws_hold_while_nodes_die(graceful: bool) -> None:
    """No task is active at two instances at a time, though coordinators crash, logs move and messages are lost."""
    more = """
[[events]]
kind = "crash-node"
at = "150s"
down = "20s"
[[events]]
kind = "lose-messages"
percent = 20
at = "3m"
for = "1m"
"""
    for seed in range(3):
        assert sum(figures(run(standbys=1, graceful=graceful, more=more, seed=seed))["unowned_ms"]) > 0


def test_time_without_anybody() -> None:
    """It counts from the start or the revocation of a task until an instance has restored its state."""
    tasks = StreamsTasks(2, 0, RESTORE_MS)
    assert tasks.take(0, 1, 5_000) == 0
    tasks.give_up(0, 1, 100_000)
    assert tasks.take(0, 2, 110_000) == RESTORE_MS
    tasks.give_up(0, 2, 250_000)
    assert tasks.take(0, 1, 250_000) == (250_000 - 100_000) // CATCH_UP_FACTOR
    assert tasks.finish(300_000) == [
        TaskFigures(5_000 + 10_000 + RESTORE_MS + 15_000, moves=2),
        TaskFigures(300_000),
    ]


def test_a_copy_that_keeps_up_is_ready_at_once() -> None:
    """One that has stopped to is as old as that; a task that was given up too early has nothing new on the disk."""
    tasks = StreamsTasks(1, 0, RESTORE_MS)
    tasks.take(0, 1, 0)
    tasks.copy(0, 2, 0)
    tasks.give_up(0, 1, 400_000)
    assert tasks.take(0, 2, 400_000) == 0
    tasks.give_up(0, 2, 500_000)
    assert tasks.take(0, 3, 500_000) == RESTORE_MS
    tasks.give_up(0, 3, 510_000)
    tasks.copy(0, 4, 0)
    tasks.stop_copying(0, 4, 520_000)
    assert tasks.take(0, 4, 620_000) == 10_000
    assert tasks.holder(0) == 4


def test_what_was_before_is_not_measured() -> None:
    """Figures start at the end of the warm-up, whether a task is processed or not."""
    tasks = StreamsTasks(2, 0, 0)
    tasks.take(0, 1, 7_000)
    tasks.begin_measuring(50_000)
    assert tasks.finish(60_000) == [TaskFigures(), TaskFigures(10_000)]


def test_a_task_at_two_instances_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that gives everything to everybody breaks the law."""
    from groupcoord.sim.actors import applications

    everything = frozenset(range(6))
    monkeypatch.setattr(applications, "_numbers", lambda tasks: everything if tasks else frozenset())
    failure = run().failure
    assert failure is not None
    assert LawBrokenError.__name__ in failure
    assert "which are active at instance" in failure


def test_a_coordinator_that_does_not_wait_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that others have not given up yet break a law."""
    monkeypatch.setattr(
        "groupcoord.core.groups.streams.reconciliation.Reconciliation._may_run", lambda self, task: True
    )
    assert run(instances=4, threads=2).failure is not None


def test_threads_of_one_process() -> None:
    """A process has one disk, so a task moved between its threads keeps its state."""
    shared, alone = figures(run(instances=4, threads=2)), figures(run(instances=4))
    assert sum(shared["unowned_ms"]) < sum(alone["unowned_ms"])
