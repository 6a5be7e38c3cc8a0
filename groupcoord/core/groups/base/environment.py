"""Settings, topics and assignors that the rules of a group look at, and the error by which a rule refuses a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from attrs import define, field

from groupcoord.config import Config
from groupcoord.core.groups.base.assignor import PartitionAssignorError
from groupcoord.core.groups.base.topics import KnownTopics
from groupcoord.errors import ErrorCode


class RefusedError(Exception):
    """A request can't be granted. Nothing of it has any effect.

    Args:
        error_code: for the client.
        message: for whoever reads the client's log; None where Kafka sends none.
    """

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or error_code.name)
        self.error_code = error_code
        self.message = message


class MemberSettings(Protocol):
    """What holds for the members of a group, as far as all kinds have it. A value, equal to one that says the same.

    Attributes:
        session_timeout_ms: after how long a member that is silent is put out.
        heartbeat_interval_ms: how often members are told to send a heartbeat.
        assignment_interval_ms: the least time between two assignments.
    """

    @property
    def session_timeout_ms(self) -> int: ...

    @property
    def heartbeat_interval_ms(self) -> int: ...

    @property
    def assignment_interval_ms(self) -> int: ...


SettingsT = TypeVar("SettingsT", bound=MemberSettings)
AssignorT = TypeVar("AssignorT")


@define(eq=False)
class GroupEnvironment(Generic[SettingsT, AssignorT]):
    """The surroundings of all groups of one kind of one coordinator.

    Attributes:
        config: settings of the broker.
        topics: the topics of the cluster.
        assignors: by name; the first is the default.
        settings_of: says what holds for the members of a group, by its id. It is called at each heartbeat.
        default_assignor: that of a group whose members ask for none.
    """

    NOT_STATE = ("assignors", "default_assignor")

    config: Config
    topics: KnownTopics
    assignors: Mapping[str, AssignorT]
    settings_of: Callable[[str], SettingsT]
    default_assignor: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.default_assignor = next(iter(self.assignors))

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the least time between two assignments of a group."""
        return self.settings_of(group_id).assignment_interval_ms

    def assignor(self, name: str) -> AssignorT:
        """Return an assignor by the name under which members ask for it.

        Raises:
            PartitionAssignorError: there is none any more, and members asked for it before the last restart.
        """
        assignor = self.assignors.get(name)
        if assignor is None:
            raise PartitionAssignorError(f"there is no assignor {name!r}")
        return assignor
