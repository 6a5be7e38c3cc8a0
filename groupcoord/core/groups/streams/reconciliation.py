"""Reconciliation of a member's tasks with its target: revocation first, then the tasks that others released.

Source: KIP-1071, and ``CurrentAssignmentBuilder`` of Kafka's streams groups.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Set
from enum import IntEnum
from typing import NamedTuple, Protocol

from attrs import evolve, field

from groupcoord.core.fast_construct import frozen, plain_members
from groupcoord.core.groups.streams.assignors import Task
from groupcoord.core.messages.request import RefusedError
from groupcoord.errors import ErrorCode

NEW_MEMBER_EPOCH = 0


@plain_members
class TaskState(IntEnum):
    """Reconciliation state of a member, by the numbers in Kafka's records."""

    STABLE = 1
    """The member has its target assignment."""
    UNREVOKED_TASKS = 2
    """The member has to revoke tasks, and has not confirmed it."""
    UNRELEASED_TASKS = 3
    """The member has revoked everything, and waits for tasks that other members have not released."""
    UNKNOWN = 127
    """A state that a newer broker has written."""


STATES_BY_NUMBER = {state.value: state for state in TaskState}


@frozen
class HeldTasks:
    """Tasks of a member by role; active ones with the member's epoch at the assignment."""

    NEVER_CHANGES = True

    active: Mapping[Task, int] = field(factory=dict)
    standby: Set[Task] = frozenset()
    warmup: Set[Task] = frozenset()

    @property
    def by_role(self) -> tuple[Set[Task], Set[Task], Set[Task]]:
        return self.active.keys(), self.standby, self.warmup

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def shares(self, other: HeldTasks) -> bool:
        """Return whether a task is in both, in the same role."""
        return any(mine & theirs for mine, theirs in zip(self.by_role, other.by_role, strict=True))

    def has_all(self, other: HeldTasks) -> bool:
        return all(theirs <= mine for mine, theirs in zip(self.by_role, other.by_role, strict=True))


NO_TASKS = HeldTasks()


@frozen
class TaskAssignment:
    """Assignment of a member: the value of its StreamsGroupCurrentMemberAssignment record (type 22).

    Attributes:
        member_epoch: the epoch of the target assignment that it has reached or is on the way to.
        previous_member_epoch: its epoch before the last change, which a repeated request may have.
        pending_revocation: the tasks that it has to revoke, which no other member gets before.
    """

    NEVER_CHANGES = True

    member_epoch: int = NEW_MEMBER_EPOCH
    previous_member_epoch: int = NEW_MEMBER_EPOCH
    state: TaskState = TaskState.STABLE
    assigned: HeldTasks = NO_TASKS
    pending_revocation: HeldTasks = NO_TASKS

    @property
    def is_revoking(self) -> bool:
        return self.state is TaskState.UNREVOKED_TASKS

    def as_left(self, member_epoch: int) -> TaskAssignment:
        """Return the assignment of a static member that leaves temporarily, with its tasks."""
        # Kafka resets the epochs of active tasks to 0.
        assigned = evolve(self.assigned, active=dict.fromkeys(self.assigned.active, 0))
        return evolve(self, member_epoch=member_epoch, assigned=assigned, pending_revocation=NO_TASKS)


class TaskProcesses(Protocol):
    """Task → the processes that have it in a role, or have not released it."""

    active: MutableMapping[Task, tuple[str, ...]]
    standby: MutableMapping[Task, tuple[str, ...]]
    warmup: MutableMapping[Task, tuple[str, ...]]


class Reconciliation(NamedTuple):
    """One step of one member towards its target.

    Attributes:
        current: its assignment before the heartbeat.
        owned: the tasks that it reports; None if it reports none.
    """

    current: TaskAssignment
    process_id: str
    target_epoch: int
    target: HeldTasks
    owned: HeldTasks | None
    processes: TaskProcesses

    def result(self) -> TaskAssignment:
        """Return the member's assignment after the heartbeat, or fail with FENCED_MEMBER_EPOCH."""
        current, owned = self.current, self.owned
        match current.state:
            case TaskState.UNREVOKED_TASKS:
                # A heartbeat without tasks confirms nothing.
                if owned is None or owned.shares(current.pending_revocation):
                    return current
                # Unlike in consumer groups the epoch grows if the member has to revoke again.
                return self._next_assignment(current.member_epoch + 1)
            # Only a member without tasks can be moved on safely.
            case TaskState.UNKNOWN if owned is None or owned:
                raise RefusedError(ErrorCode.FENCED_MEMBER_EPOCH)
            case TaskState.UNKNOWN:
                return self._next_assignment(self.target_epoch)
            case TaskState.STABLE if current.member_epoch == self.target_epoch:
                return current
        return self._next_assignment(current.member_epoch)

    def _next_assignment(self, epoch_until_revoked: int) -> TaskAssignment:
        """Return the next step towards the target."""
        had, wanted = self.current.assigned, self.target
        kept_active = {task: epoch for task, epoch in had.active.items() if task in wanted.active}
        revoked_active = {task: epoch for task, epoch in had.active.items() if task not in wanted.active}
        new_active = {task for task in wanted.active if task not in had.active}
        new_standby = wanted.standby - had.standby
        new_warmup = wanted.warmup - had.warmup
        active_at = self.processes.active
        free_active = {task for task in new_active if self._may_run(task)}
        free_standby = {task for task in new_standby if self._is_free(task)}
        # Not even if the member itself runs it: the active task is released first.
        free_warmup = {
            task for task in new_warmup if self.process_id not in active_at.get(task, ()) and self._is_free(task)
        }
        is_waiting = (free_active, free_standby, free_warmup) != (new_active, new_standby, new_warmup)
        # Within the member roles change at once.
        kept_standby = (had.standby & wanted.standby) | (free_standby & (had.active.keys() | had.warmup))
        kept_warmup = (had.warmup & wanted.warmup) | (free_warmup & had.standby)
        # A copy that becomes active stays until the active task is free.
        revoked_standby = had.standby - wanted.standby - free_warmup - wanted.active.keys()
        revoked_warmup = had.warmup - wanted.warmup - free_standby - wanted.active.keys()
        kept_standby |= had.standby & wanted.active.keys()
        kept_warmup |= had.warmup & wanted.active.keys()
        revoked = HeldTasks(revoked_active, frozenset(revoked_standby), frozenset(revoked_warmup))
        # Nothing is added before the member confirms the revocation.
        if revoked and (self.owned is None or self.owned.shares(revoked)):
            kept = HeldTasks(kept_active, frozenset(kept_standby), frozenset(kept_warmup))
            return self._moved(epoch_until_revoked, TaskState.UNREVOKED_TASKS, kept, revoked)
        assigned = HeldTasks(
            {**kept_active, **dict.fromkeys(free_active, self.target_epoch)},
            frozenset((kept_standby | free_standby) - free_active),
            frozenset((kept_warmup | free_warmup) - free_active),
        )
        state = TaskState.UNRELEASED_TASKS if is_waiting else TaskState.STABLE
        return self._moved(self.target_epoch, state, assigned, NO_TASKS)

    def _may_run(self, task: Task) -> bool:
        """Return whether no member runs a task, and no other member of this process has a copy."""
        return not self.processes.active.get(task, ()) and self._is_free(task)

    def _is_free(self, task: Task) -> bool:
        """Return whether no other member of this process has a task in any role."""
        process_id, processes, has = self.process_id, self.processes, self.current.assigned
        return not (
            (process_id in processes.active.get(task, ()) and task not in has.active)
            or (process_id in processes.standby.get(task, ()) and task not in has.standby)
            or (process_id in processes.warmup.get(task, ()) and task not in has.warmup)
        )

    def _moved(
        self, member_epoch: int, state: TaskState, assigned: HeldTasks, pending_revocation: HeldTasks
    ) -> TaskAssignment:
        return TaskAssignment(member_epoch, self.current.member_epoch, state, assigned, pending_revocation)
