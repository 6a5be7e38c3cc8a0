"""Server-side assignors of streams groups (KIP-1071): the interface, and ``sticky`` with Kafka's results.

Ties depend on Kafka's hash maps and heaps, which are reproduced here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Protocol

from attrs import field

from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.javacompat import (
    HashTable,
    PriorityQueue,
    buckets_for,
    hash_map_order,
    string_hash,
    string_sort_key,
)
from groupcoord.errors import GroupcoordError

Tasks = Mapping[str, tuple[int, ...]]
"""Partitions by subtopology id, ascending: a task is one partition of one subtopology. None is without partitions."""


class TaskAssignorError(GroupcoordError):
    """No assignment is possible: the request fails, and nothing is written (Kafka's ``TaskAssignorException``)."""


@frozen
class MemberTasks:
    """The tasks of one member, by what it does with them.

    Attributes:
        active: it processes them.
        standby: it keeps copies of their state.
        warmup: it makes copies of their state, to process them later. Kafka 4.4 assigns none.
    """

    NEVER_CHANGES = True

    active: Tasks = field(factory=dict)
    standby: Tasks = field(factory=dict)
    warmup: Tasks = field(factory=dict)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


@frozen
class SubtopologySpec:
    """One subtopology as an assignor sees it.

    Attributes:
        task_count: number of tasks, numbered from 0.
        is_stateful: its tasks keep state in changelog topics, so they may have standby copies.
    """

    task_count: int
    is_stateful: bool


@frozen
class StreamsMemberSpec:
    """One member, a thread of an instance of the application, as an assignor sees it.

    Attributes:
        process_id: the instance; its members share a disk.
        running: its current tasks, also of removed subtopologies, which make an assignment sticky.
        task_offsets: subtopology id → partition → reported offset of its copy of a task's state.
        instance_id: of a static member.
        rack_id: the member's rack, or None.
        client_tags: tags of the member by key.
    """

    process_id: str
    running: MemberTasks = field(factory=MemberTasks)
    task_offsets: Mapping[str, Mapping[int, int]] = field(factory=dict)
    instance_id: str | None = None
    rack_id: str | None = None
    client_tags: Mapping[str, str] = field(factory=dict)


@frozen
class StreamsGroupSpec:
    """One group as an assignor sees it.

    Attributes:
        members: by member id; the order of the mapping is irrelevant.
        subtopologies: the group's, by id.
        standby_replicas: number of standby copies of a stateful task (``streams.num.standby.replicas``).
        visiting_order: the member ids in the order in which Kafka's hash maps pass them to an assignor, which a restart
            does not change.
    """

    members: Mapping[str, StreamsMemberSpec]
    subtopologies: Mapping[str, SubtopologySpec]
    standby_replicas: int
    visiting_order: tuple[str, ...]


class TaskAssignor(Protocol):
    """Assignor of tasks to the members of a streams group.

    It must be a pure function: neither randomness nor the order of a set or mapping may affect the result, so that a
    restart makes no difference.

    Attributes:
        name: the name for ``streams.assignor.name``.
    """

    @property
    def name(self) -> str: ...

    def assign(self, group: StreamsGroupSpec) -> Mapping[str, MemberTasks]:
        """Return each member's tasks by member id; omitted members get none.

        Args:
            group: the members with their running tasks, and the topology.

        Raises:
            TaskAssignorError: no assignment is possible.
        """


Task = tuple[str, int]
"""The id of a subtopology, and a partition."""


class StickyTaskAssignor:
    """Balances tasks, first to members that run them, then to members with their state.

    A process never has a task twice, which limits standby copies. Racks, tags and instance ids are ignored. Source:
    ``StickyTaskAssignor`` of Kafka's group coordinator.
    """

    name = "sticky"

    def assign(self, group: StreamsGroupSpec) -> Mapping[str, MemberTasks]:
        """Return each member's tasks. There always is an assignment."""
        return _Assignment(group).build() if group.members else {}


@define(eq=False)
class _Member:
    member_id: str
    process: _Process
    active: list[Task] = field(factory=list)
    standby: list[Task] = field(factory=list)

    @property
    def count(self) -> int:
        return len(self.active) + len(self.standby)


@define(eq=False)
class _Process:
    members: list[_Member] = field(factory=list)
    tasks: set[Task] = field(factory=set)
    by_count: PriorityQueue[_Member] | None = None

    @property
    def load(self) -> float:
        return len(self.tasks) / len(self.members)

    def least_loaded(self) -> _Member:
        """Take the member with the fewest tasks; :meth:`put_back` returns it."""
        if self.by_count is None:
            # Kafka fills the queue from a ``HashMap`` of members when it first needs it.
            members = {member.member_id: member for member in self.members}
            self.by_count = PriorityQueue(attrgetter("count"), map(members.__getitem__, hash_map_order(members)))
        return self.by_count.take()

    def put_back(self, member: _Member) -> None:
        assert self.by_count is not None
        self.by_count.put(member)


@define
class _Quota:
    """Quota of tasks of a member: its share of the remaining ones, rounded up.

    It may drop for the others when a member reaches it; ``tasks`` and ``members`` are those below it.
    """

    tasks: int
    members: int
    value: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._divide()

    def _divide(self) -> None:
        self.value = -(-self.tasks // self.members) if self.members else 0

    def given(self, count: int) -> None:
        # Equality only, as in Kafka: a member beyond the quota is not noticed.
        if count == self.value:
            self.members -= 1
            self.tasks -= count
            self._divide()


class _Assignment:
    """Computes the assignment of one group."""

    def __init__(self, group: StreamsGroupSpec) -> None:
        self._group = group
        self._tasks = [
            (name, partition)
            for name in sorted(group.subtopologies, key=string_sort_key)
            for partition in range(group.subtopologies[name].task_count)
        ]
        self._stateful = [task for task in self._tasks if group.subtopologies[task[0]].is_stateful]
        self._members: dict[str, _Member] = {}
        processes: dict[str, _Process] = {}
        # The order of processes in Kafka's map, made for the number of members.
        process_ids = HashTable(string_hash, (), buckets_for(len(group.members)))
        for member_id in group.visiting_order:
            process_id = group.members[member_id].process_id
            process_ids.compute_if_absent(process_id)
            process = processes.setdefault(process_id, _Process())
            member = self._members[member_id] = _Member(member_id, process)
            process.members.append(member)
        self._processes = [processes[process_id] for process_id in process_ids]
        self._active_quota = _Quota(len(self._tasks), len(self._members))
        total = len(self._tasks) + group.standby_replicas * len(self._stateful)
        self._total_quota = _Quota(total, len(self._members))
        self._ran: dict[Task, _Member] = {}
        self._had_state = self._find_previous_owners()

    def _find_previous_owners(self) -> dict[Task, list[_Member]]:
        """Note who runs each task (the last of several); return who has a copy of its state, best first."""
        found: dict[Task, list[tuple[bool, int, _Member]]] = {}
        for member_id in self._group.visiting_order:
            spec, member = self._group.members[member_id], self._members[member_id]
            # Of several members that ran a task the last one counts, as in Kafka.
            self._ran.update(dict.fromkeys(walk_tasks(spec.running.active), member))
            standby = dict.fromkeys(walk_tasks(spec.running.standby))
            for task in dict.fromkeys([*standby, *walk_tasks(spec.task_offsets)]):
                # More of the state is there with a larger offset.
                offset = spec.task_offsets.get(task[0], {}).get(task[1], 0)
                found.setdefault(task, []).append((task not in standby, -offset, member))
        return {
            task: [member for _, _, member in sorted(owners, key=lambda owner: owner[:2])]
            for task, owners in found.items()
        }

    def build(self) -> dict[str, MemberTasks]:
        self._assign_active()
        if self._group.standby_replicas > 0:
            self._assign_standby()
        return {
            member_id: MemberTasks(dict(by_subtopology(member.active)), dict(by_subtopology(member.standby)))
            for member_id, member in self._members.items()
        }

    # ------------------------------------------------------------ active tasks

    def _assign_active(self) -> None:
        left = sorted(self._tasks, key=_by_partition)
        left = [task for task in left if not self._keep_active(task, self._ran.get(task))]
        left = [task for task in left if not self._keep_active(task, _least(self._had_state.get(task, ())))]
        queue = PriorityQueue(attrgetter("load"), self._processes)
        # By subtopology here, by partition above, as in Kafka.
        for task in sorted(left, key=_by_name):
            process = queue.take()
            member = process.least_loaded()
            self._give_active(task, member)
            process.put_back(member)
            queue.put(process)

    def _keep_active(self, task: Task, member: _Member | None) -> bool:
        """Assign a task to a member that ran it or has its state, within the quota."""
        # Stickiness ends at the quota, so that newcomers get tasks.
        if member is None or member.count >= self._active_quota.value:
            return False
        self._give_active(task, member)
        # Its order is outdated; Kafka builds the queue again at the next use.
        member.process.by_count = None
        return True

    def _give_active(self, task: Task, member: _Member) -> None:
        member.active.append(task)
        member.process.tasks.add(task)
        self._active_quota.given(member.count)
        self._total_quota.given(member.count)

    # ------------------------------------------------------------ standby tasks

    def _assign_standby(self) -> None:
        waiting: list[tuple[Task, int]] = []
        # Copies of stateless tasks would hold nothing.
        for task in sorted(self._stateful, key=_by_partition, reverse=True):
            for given in range(self._group.standby_replicas):
                if not self._keep_standby(task):
                    waiting.append((task, self._group.standby_replicas - given))
                    break
        queue = PriorityQueue(attrgetter("load"), self._processes)
        for task, replicas in sorted(waiting, key=lambda entry: _by_name(entry[0]), reverse=True):
            for _ in range(replicas):
                if not self._spread_standby(task, queue):
                    # All processes have the task, so the other copies are dropped.
                    break

    def _keep_standby(self, task: Task) -> bool:
        """Assign a copy to a member that ran the task or has its state, within the quota."""
        owner = self._ran.get(task)
        owners = self._had_state.get(task, ())
        for member in (owner, _least([member for member in owners if task not in member.process.tasks])):
            has_room = member is not None and member.count < self._total_quota.value
            if member is not None and has_room and task not in member.process.tasks:
                self._give_standby(task, member)
                member.process.by_count = None
                return True
        return False

    def _spread_standby(self, task: Task, queue: PriorityQueue[_Process]) -> bool:
        """Assign a copy to the least loaded process without one; return False if there is none."""
        passed: list[_Process] = []
        while queue and task in (process := queue.take()).tasks:
            passed.append(process)
        is_given = task not in process.tasks
        if is_given:
            member = process.least_loaded()
            self._give_standby(task, member)
            process.put_back(member)
            queue.put(process)
        while passed:
            # Taken last, put back first: the order shows in later ties.
            queue.put(passed.pop())
        return is_given

    def _give_standby(self, task: Task, member: _Member) -> None:
        member.standby.append(task)
        member.process.tasks.add(task)
        self._total_quota.given(member.count)


def _least(members: Sequence[_Member]) -> _Member | None:
    """Return the first member, or a later one with less load in itself and its process; None without members."""
    best: _Member | None = None
    for member in members:
        # Both must be smaller, as in Kafka.
        if best is None or (member.process.load < best.process.load and member.count < best.count):
            best = member
    return best


def walk_tasks(tasks: Mapping[str, Iterable[int]]) -> Iterator[Task]:
    return ((name, partition) for name, partitions in tasks.items() for partition in partitions)


def by_subtopology(tasks: Iterable[Task]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the subtopologies of tasks in Java's order, each with its partitions ascending."""
    found: dict[str, list[int]] = {}
    for name, partition in sorted(tasks):
        found.setdefault(name, []).append(partition)
    for name in sorted(found, key=string_sort_key):
        yield name, tuple(found[name])


def _by_name(task: Task) -> tuple[bytes, int]:
    return string_sort_key(task[0]), task[1]


def _by_partition(task: Task) -> tuple[int, bytes]:
    return task[1], string_sort_key(task[0])
