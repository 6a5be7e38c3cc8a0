"""What an assignor of tasks is: its interface, what it is given, and what it answers (KIP-1071).

Source of the interface: ``TaskAssignor`` and ``GroupSpec`` of Kafka's streams groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from attrs import field, frozen

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
