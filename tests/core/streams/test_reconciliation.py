"""Members come to their tasks as in Kafka 4.4.0, in 1,500 recorded steps, and by the rule for each role."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from attrs import field, frozen

from groupcoord.core.groups.streams.reconciliation import (
    NO_TASKS,
    HeldTasks,
    Reconciliation,
    Task,
    TaskAssignment,
    TaskState,
)
from groupcoord.core.messages.request import RefusedError
from groupcoord.errors import ErrorCode

DATA = Path(__file__).with_name("data")


@frozen
class Processes:
    """Tasks by the processes that run them."""

    active: Mapping[Task, str] = field(factory=dict)
    standby: Mapping[Task, str] = field(factory=dict)
    warmup: Mapping[Task, str] = field(factory=dict)


def tasks(recorded: Mapping[str, list[int]]) -> frozenset[Task]:
    """Return recorded tasks."""
    return frozenset((name, partition) for name, partitions in recorded.items() for partition in partitions)


def held(recorded: list[Any]) -> HeldTasks:
    """Return recorded tasks in their roles."""
    active, standby, warmup = recorded
    epochs: dict[Task, int] = {}
    for name, partitions in active.items():
        with_epochs = partitions if isinstance(partitions, dict) else dict.fromkeys(partitions, 0)
        epochs.update({(name, int(partition)): epoch for partition, epoch in with_epochs.items()})
    return HeldTasks(epochs, tasks(standby), tasks(warmup))


def assignment(recorded: dict[str, Any]) -> TaskAssignment:
    """Return where a recorded member stands."""
    return TaskAssignment(
        recorded["epoch"],
        recorded["previous"],
        TaskState(recorded["state"]),
        held(recorded["assigned"]),
        held(recorded["pending"]),
    )


def by_task(recorded: Mapping[str, str]) -> dict[Task, str]:
    """Return recorded processes by task."""
    found = {}
    for text, processes in recorded.items():
        name, _, partition = text.partition("_")
        found[name, int(partition)] = processes
    return found


def test_members_take_the_recorded_steps() -> None:
    """Every recorded member stands where Kafka put it, and is the very same where Kafka changed nothing."""
    with lzma.open(DATA / "reconciliation.jsonl.xz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    different = []
    for record in records:
        current = assignment(record["member"])
        reconciliation = Reconciliation(
            current,
            process_id="p",
            target_epoch=record["target_epoch"],
            target=held(record["target"]),
            owned=None if record["owned"] is None else held(record["owned"]),
            processes=Processes(*(by_task(record[name]) for name in ("active_at", "standby_at", "warmup_at"))),
        )
        try:
            result: object = reconciliation.result()
        except RefusedError as error:
            result = error.error_code
        is_error = isinstance(record["result"], str)
        expected = ErrorCode.FENCED_MEMBER_EPOCH if is_error else assignment(record["result"])
        if result != expected or (result is current) != record["unchanged"]:
            different.append(record["id"])

    assert len(records) == 1_500
    assert not different


ONE, TWO = ("0", 0), ("0", 1)


def test_a_warm_up_task_needs_a_process_without_the_task() -> None:
    """A member gets a warm-up task unless another member of its process has the task in any role."""

    def state_with(processes: Processes) -> TaskState:
        target = HeldTasks(warmup=frozenset({ONE}))
        result = Reconciliation(
            TaskAssignment(), process_id="p", target_epoch=2, target=target, owned=NO_TASKS, processes=processes
        ).result()
        assert (result.assigned == target) == (result.state is TaskState.STABLE)
        return result.state

    assert state_with(Processes()) is TaskState.STABLE
    assert state_with(Processes(active={ONE: "q"}, standby={ONE: "q"}, warmup={ONE: "q"})) is TaskState.STABLE
    for taken in (Processes(active={ONE: "p"}), Processes(standby={ONE: "p"}), Processes(warmup={ONE: "p"})):
        assert state_with(taken) is TaskState.UNRELEASED_TASKS


ROLES = {
    None: NO_TASKS,
    "active": HeldTasks({ONE: 2}),
    "standby": HeldTasks(standby=frozenset({ONE})),
    "warmup": HeldTasks(warmup=frozenset({ONE})),
}


def test_a_task_changes_its_role_within_a_member() -> None:
    """A member that owns a task no more gets it in any other role at once, even if its process alone has it."""
    for (had, assigned), (wanted, target) in product(ROLES.items(), repeat=2):
        result = Reconciliation(
            TaskAssignment(2, 1, TaskState.STABLE, assigned),
            process_id="p",
            target_epoch=3,
            target=target,
            owned=NO_TASKS,
            processes=Processes(**({} if had is None else {had: {ONE: "p"}})),
        ).result()
        # Only a warm-up task waits for the release of the active task.
        is_waiting = (had, wanted) == ("active", "warmup")
        assert result.assigned.active.keys() == target.active.keys()
        assert (result.assigned.standby, result.assigned.warmup) == (
            target.standby,
            frozenset() if is_waiting else target.warmup,
        )
        assert result.state is (TaskState.UNRELEASED_TASKS if is_waiting else TaskState.STABLE)
