"""Server-side assignors: Kafka's own, and interfaces for custom ones.

The coordinator runs assignors for consumer groups (KIP-848) and share groups (KIP-932), and task assignors for streams
groups (KIP-1071).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from attrs import frozen

from groupcoord.core.groups.base.assignor import (
    Assignor as Assignor,
    GroupAssignment as GroupAssignment,
    GroupSpec as GroupSpec,
    MemberSpec as MemberSpec,
    PartitionAssignorError as PartitionAssignorError,
    Partitions as Partitions,
    SubscriptionType as SubscriptionType,
)
from groupcoord.core.groups.consumer.assignors import RangeAssignor as RangeAssignor, UniformAssignor as UniformAssignor
from groupcoord.core.groups.share.simple_assignor import SimpleAssignor as SimpleAssignor
from groupcoord.core.groups.streams.assignors import (
    MemberTasks as MemberTasks,
    StickyTaskAssignor as StickyTaskAssignor,
    StreamsGroupSpec as StreamsGroupSpec,
    StreamsMemberSpec as StreamsMemberSpec,
    SubtopologySpec as SubtopologySpec,
    TaskAssignor as TaskAssignor,
    TaskAssignorError as TaskAssignorError,
    Tasks as Tasks,
)
from groupcoord.core.topics import Topic as Topic
from groupcoord.errors import ConfigError

BUILT_IN: tuple[Assignor, ...] = (UniformAssignor(), RangeAssignor())
"""Kafka's own assignors."""

BUILT_IN_OF_SHARE_GROUPS: tuple[Assignor, ...] = (SimpleAssignor(),)
BUILT_IN_OF_TASKS: tuple[TaskAssignor, ...] = (StickyTaskAssignor(),)
logger = logging.getLogger(__name__)


_AssignorT = TypeVar("_AssignorT", bound=Assignor | TaskAssignor)


@frozen
class _GuardedAssignor:
    """Wrapper of a custom assignor: an exception fails only the request that needed the assignment."""

    failure: ClassVar[type[Exception]] = PartitionAssignorError
    kind: ClassVar = "assignor"
    name: str
    assignor: Any

    def assign(self, group: Any) -> dict[str, Any]:
        """Return the assignment of the assignor, or raise ``failure`` with its exception as the cause."""
        try:
            return self._copied(self.assignor.assign(group))
        except self.failure:
            raise
        except Exception as error:
            logger.exception("%s %r failed", self.kind, self.name)
            raise self.failure(f"{self.kind} {self.name!r} failed: {error!r}") from error

    @staticmethod
    def _copied(assignment: Mapping[str, Any]) -> dict[str, Any]:
        return {
            member_id: {topic_id: tuple(partitions) for topic_id, partitions in assigned.items()}
            for member_id, assigned in assignment.items()
        }


class _GuardedTaskAssignor(_GuardedAssignor):
    """Wrapper of a custom task assignor."""

    failure = TaskAssignorError
    kind = "assignor of tasks"

    @staticmethod
    def _copied(assignment: Mapping[str, Any]) -> dict[str, Any]:
        return dict(assignment)


def choose_assignors(named: Iterable[str], others: Iterable[Assignor] = ()) -> dict[str, Assignor]:
    """Return the assignors that ``group.consumer.assignors`` names, by the names that members use.

    Kafka loads the Java classes in the setting. Here ``package.module:Class`` is a class that is created without
    arguments, or an assignor in the module.

    Args:
        named: names of Kafka's or the other assignors, and Python paths.
        others: additional assignors.

    Raises:
        ConfigError: an assignor does not exist, a path is not an assignor, or two have the same name.
    """
    return _choose("group.consumer.assignors", BUILT_IN, _GuardedAssignor, named, others)


def choose_share_assignors(named: Iterable[str], others: Iterable[Assignor] = ()) -> dict[str, Assignor]:
    """Return the assignors that ``group.share.assignors`` names, of which the first is used.

    Arguments are those of :func:`choose_assignors`.

    Raises:
        ConfigError: an assignor does not exist, a path is not an assignor, or two have the same name.
    """
    return _choose("group.share.assignors", BUILT_IN_OF_SHARE_GROUPS, _GuardedAssignor, named, others)


def choose_task_assignors(named: Iterable[str], others: Iterable[TaskAssignor] = ()) -> dict[str, TaskAssignor]:
    """Return the task assignors that ``group.streams.assignors`` names. Arguments are those of
    :func:`choose_assignors`.

    Raises:
        ConfigError: an assignor does not exist, a path is not an assignor, or two have the same name.
    """
    return _choose("group.streams.assignors", BUILT_IN_OF_TASKS, _GuardedTaskAssignor, named, others)


def _choose(
    setting: str,
    built_in: Iterable[_AssignorT],
    guard: Callable[[str, Any], _AssignorT],
    named: Iterable[str],
    others: Iterable[_AssignorT],
) -> dict[str, _AssignorT]:
    known: dict[str, _AssignorT] = {assignor.name: assignor for assignor in built_in}
    for other in others:
        if other.name in known:
            raise ConfigError(f"there are two assignors with the name {other.name!r}")
        known[other.name] = guard(other.name, other)
    chosen: dict[str, _AssignorT] = {}
    for name in named:
        assignor = known.get(name) or _load(setting, guard, name)
        if assignor.name in chosen or known.get(assignor.name, assignor) is not assignor:
            raise _refusal(setting, f"{name!r} has the name {assignor.name!r}, which is taken")
        chosen[assignor.name] = assignor
    return chosen


def _load(setting: str, guard: Callable[[str, Any], _AssignorT], path: str) -> _AssignorT:
    module_name, colon, attribute = path.partition(":")
    if not colon:
        raise _refusal(setting, f"there is no assignor {path!r}")
    try:
        found: Any = import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
        assignor = found() if isinstance(found, type) else found
    except Exception as error:  # user code may raise anything when it is imported
        raise _refusal(setting, f"can't load {path!r}: {error or type(error).__name__}") from error
    name = getattr(assignor, "name", None)
    if not isinstance(name, str) or not name or not callable(getattr(assignor, "assign", None)):
        raise _refusal(setting, f"{path!r} is no assignor: it needs a name and a method 'assign'")
    return guard(name, assignor)


def _refusal(setting: str, problem: str) -> ConfigError:
    return ConfigError(f"setting {setting!r}: {problem}")
