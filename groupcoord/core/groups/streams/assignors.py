"""Server-side assignors of streams groups (KIP-1071): their interface, and sticky with Kafka's results.

An assignor of your own is any object that has what :class:`TaskAssignor` names. Where several members are equally
entitled Kafka's hash maps and heaps decide, so they are walked here as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from attrs import define, field, frozen

from groupcoord.core.javacompat.hashing import (
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
    """An assignor can't make an assignment. The request that asked for it fails, and nothing is written.

    Kafka's name for it is ``TaskAssignorException``.
    """


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
    """One part of a topology that is divided by itself.

    Attributes:
        task_count: how many tasks it has; they are numbered from 0.
        is_stateful: its tasks keep state in changelog topics, of which there can be standby copies.
    """

    task_count: int
    is_stateful: bool


@frozen
class StreamsMemberSpec:
    """One member, a thread of an instance of the application, as an assignor sees it.

    Attributes:
        process_id: the instance; its members share what is on its disk.
        running: the tasks that it has now, which makes an assignment sticky. They may be of a subtopology that is gone.
        task_offsets: subtopology id → partition → how far its copy of a task's state is, as it said.
        instance_id: of a static member.
        rack_id: where it is, if it says so.
        client_tags: what its user says of where it is.
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
        members: by member id. How the mapping was made says nothing.
        subtopologies: the group's, by id.
        standby_replicas: how many standby copies a stateful task is to have (``streams.num.standby.replicas``).
        visiting_order: the member ids in the order in which Kafka's hash maps hand them to an assignor. Like a sorted
            list it doesn't change in a restart.
    """

    members: Mapping[str, StreamsMemberSpec]
    subtopologies: Mapping[str, SubtopologySpec]
    standby_replicas: int
    visiting_order: tuple[str, ...]


class TaskAssignor(Protocol):
    """A way to divide tasks among the members of a streams group.

    It is a function of what it is given: it keeps nothing, and neither chance nor the order in which a set or a mapping
    was filled shows in its answer, so that a restart makes no difference.

    Attributes:
        name: under which ``streams.assignor.name`` asks for it.
    """

    @property
    def name(self) -> str: ...

    def assign(self, group: StreamsGroupSpec) -> Mapping[str, MemberTasks]:
        """Return each member's tasks, by member id. A member that is left out has none.

        Args:
            group: the members, with what they have so far, and the topology.

        Raises:
            TaskAssignorError: there is no assignment.
        """


Task = tuple[str, int]
"""The id of a subtopology, and a partition."""


class StickyTaskAssignor:
    """Gives as many tasks to each member as to any other, first to who runs them, then to who has their state.

    A process never has a task twice, so there are at most as many standby copies as there are other processes.
    Racks, tags and instance ids don't count. Source: ``StickyTaskAssignor`` of Kafka's group coordinator.
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
        """Take the member with the fewest tasks out of the queue; :meth:`put_back` it when it has got one more."""
        if self.by_count is None:
            members = {member.member_id: member for member in self.members}
            self.by_count = PriorityQueue(_count, (members[member_id] for member_id in hash_map_order(members)))
        return self.by_count.take()

    def put_back(self, member: _Member) -> None:
        assert self.by_count is not None
        self.by_count.put(member)


def _count(member: _Member) -> int:
    return member.count


def _load(process: _Process) -> float:
    return process.load


@define
class _Quota:
    """How many tasks a member is to have: of those that are left, its share, rounded up.

    Attributes:
        tasks: how many are left for those that have not reached it.
        members: how many have not.
        value: the quota; whoever reaches it is served, and lowers or keeps that of the others.
    """

    tasks: int
    members: int
    value: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._divide()

    def _divide(self) -> None:
        self.value = -(-self.tasks // self.members) if self.members else 0

    def given(self, count: int) -> None:
        """A member has got a task and now has so many. One that has passed the quota before goes unnoticed."""
        if count == self.value:
            self.members -= 1
            self.tasks -= count
            self._divide()


class _Assignment:
    """Works out the assignment of one group."""

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
        """Note who runs each task, the last of several; return who has a copy of its state, best first."""
        found: dict[Task, list[tuple[bool, int, _Member]]] = {}
        for member_id in self._group.visiting_order:
            spec, member = self._group.members[member_id], self._members[member_id]
            self._ran.update(dict.fromkeys(_walk(spec.running.active), member))
            standby = dict.fromkeys(_walk(spec.running.standby))
            for task in dict.fromkeys([*standby, *_walk(spec.task_offsets)]):
                offset = spec.task_offsets.get(task[0], {}).get(task[1], 0)
                found.setdefault(task, []).append((task not in standby, -offset, member))
        return {
            task: [member for _, _, member in sorted(owners, key=lambda owner: owner[:2])]
            for task, owners in found.items()
        }

    def build(self) -> dict[str, MemberTasks]:
        """Return the assignment."""
        self._assign_active()
        if self._group.standby_replicas > 0:
            self._assign_standby()
        return {
            member_id: MemberTasks(_by_subtopology(member.active), _by_subtopology(member.standby))
            for member_id, member in self._members.items()
        }

    # ------------------------------------------------------------ active tasks

    def _assign_active(self) -> None:
        left = sorted(self._tasks, key=_by_partition)
        left = [task for task in left if not self._keep_active(task, self._ran.get(task))]
        left = [task for task in left if not self._keep_active(task, _least(self._had_state.get(task, ())))]
        queue = PriorityQueue(_load, self._processes)
        for task in sorted(left, key=_by_name):
            process = queue.take()
            member = process.least_loaded()
            self._give_active(task, member)
            process.put_back(member)
            queue.put(process)

    def _keep_active(self, task: Task, member: _Member | None) -> bool:
        """Give a task to whoever ran it or has its state, within the quota."""
        if member is None or member.count >= self._active_quota.value:
            return False
        self._give_active(task, member)
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
        for task in sorted(self._stateful, key=_by_partition, reverse=True):
            for given in range(self._group.standby_replicas):
                if not self._keep_standby(task):
                    waiting.append((task, self._group.standby_replicas - given))
                    break
        queue = PriorityQueue(_load, self._processes)
        for task, replicas in sorted(waiting, key=lambda entry: _by_name(entry[0]), reverse=True):
            for _ in range(replicas):
                if not self._spread_standby(task, queue):
                    break

    def _keep_standby(self, task: Task) -> bool:
        """Give a copy to whoever ran the task, or has its state, within the quota."""
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
        """Give a copy to the process with the least load that has none; return False if there is none."""
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
            queue.put(passed.pop())
        return is_given

    def _give_standby(self, task: Task, member: _Member) -> None:
        member.standby.append(task)
        member.process.tasks.add(task)
        self._total_quota.given(member.count)


def _least(members: Sequence[_Member]) -> _Member | None:
    """Return the first, or a later one if both it and its process have less to do; None if there is nobody."""
    best: _Member | None = None
    for member in members:
        if best is None or (member.process.load < best.process.load and member.count < best.count):
            best = member
    return best


def _walk(tasks: Mapping[str, Iterable[int]]) -> Iterable[Task]:
    return ((name, partition) for name, partitions in tasks.items() for partition in partitions)


def _by_name(task: Task) -> tuple[bytes, int]:
    return string_sort_key(task[0]), task[1]


def _by_partition(task: Task) -> tuple[int, bytes]:
    return task[1], string_sort_key(task[0])


def _by_subtopology(tasks: list[Task]) -> Tasks:
    found: dict[str, list[int]] = {}
    for name, partition in sorted(tasks, key=_by_name):
        found.setdefault(name, []).append(partition)
    return {name: tuple(partitions) for name, partitions in found.items()}


__all__ = [
    "MemberTasks",
    "StickyTaskAssignor",
    "StreamsGroupSpec",
    "StreamsMemberSpec",
    "SubtopologySpec",
    "TaskAssignor",
    "TaskAssignorError",
    "Tasks",
]
