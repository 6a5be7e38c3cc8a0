"""The kinds of groups that there are, a row each: what a log partition, and the way to it, ask of a kind.

Nothing outside of this module and the folders of the kinds knows of which kind a group is. A kind of group more is a
folder more beside ``classic`` and ``consumer`` with a row in :class:`GroupKinds`, the form and permissions of its
requests in ``core/router``, and their messages in ``core/messages``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from groupcoord.core.administration import Deletion
from groupcoord.core.environments import Environments
from groupcoord.core.groups.base.group import ModernGroup
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.kind import ClassicGroups
from groupcoord.core.groups.consumer.group import ConsumerGroup
from groupcoord.core.groups.consumer.kind import ConsumerGroups
from groupcoord.core.groups.group import Group
from groupcoord.core.groups.pending_groups import Creation
from groupcoord.core.groups.share.kind import ShareGroups
from groupcoord.core.groups.streams.kind import StreamsGroups
from groupcoord.core.handler_context import Handler, HandlerContext
from groupcoord.core.log.record_keys import RecordKey
from groupcoord.core.outputs import Continuation, Outcome
from groupcoord.core.replies import Reply, Token
from groupcoord.core.timers import TimerKey, TimerKind
from groupcoord.errors import ErrorCode


class GroupKind(Protocol):
    """All groups of one kind in one log partition: who takes what for them.

    What is asked of one group (may this commit, is it empty, from when does an offset's age count, how is it listed,
    who waits) is in :class:`~groupcoord.core.groups.group.Group`, which each kind answers with a class of its own.
    """

    @property
    def group_class(self) -> type[Group]:
        """The class of its groups."""

    @property
    def record_types(self) -> frozenset[int]:
        """The types of the records by which a load knows its groups."""

    @property
    def handlers(self) -> Mapping[type, Handler]:
        """By request of the kind's own protocol: who takes it, if the group is of this kind or there is none yet.

        A group of another kind takes it itself where that kind has such guests; else this one does, and says no, or
        makes a group of its own kind of it.
        """

    @property
    def guest_handlers(self) -> Mapping[type, Handler]:
        """By request of another protocol: who takes it, if the group that it meets is of this kind."""

    @property
    def repeaters(self) -> Mapping[type, Callable[[Any, Token, int], bool]]:
        """By request: who answers one that is like its sender's last, before anything else is looked at.

        They return False for all others, and have done nothing then.
        """

    @property
    def answers(self) -> Mapping[type, Callable[[Any, int], None]]:
        """By what the host has found out: who asked for it (see ``Effects.questions``)."""

    @property
    def descriptions(self) -> Mapping[type, Callable[[str], Any]]:
        """By the request that describes groups of this kind: what it says of a group id, whatever there is."""

    @property
    def timers(self) -> Mapping[TimerKind, Callable[[TimerKey, int], None]]:
        """By kind of timer: who goes on when it fires."""

    @property
    def outcomes(self) -> Mapping[type[Continuation], Outcome]:
        """By kind of continuation: what follows the append."""

    @property
    def load(self) -> Callable[[str, int], None]:
        """Makes a group of what the log has of it when a load is over, and starts its clocks."""

    @property
    def topic_deleted(self) -> Callable[[UUID, int], None]:
        """Lets groups know of the end of a topic, of which they keep more than committed offsets."""

    @property
    def forget_elsewhere(self) -> Callable[[Group, Deletion, int], bool]:
        """Lets others forget what they keep of a group that is to be deleted; returns False if that is nothing.

        When they have, the deletion goes on (:meth:`.Deletion.go_on`).
        """

    @property
    def places(self) -> Sequence[tuple[object, tuple[str, ...]]]:
        """Where its handlers keep what changes and is in no group: parts of it, with the names of attributes."""

    @property
    def parked_tokens(self) -> Callable[[], list[Token]]:
        """Returns the tokens of requests that wait for others, and in no group."""

    @property
    def refuse_waiting(self) -> Callable[[ErrorCode], list[Reply]]:
        """Returns the refusals of these requests, which are not answered any more."""

    @property
    def begin_rebalance(self) -> Callable[[Any, int], bool]:
        """Lets a group rebalance though nothing has happened to it; returns False if it can't now."""


class GroupKinds:
    """The table of kinds of one log partition, and what is read off all its rows together.

    Attributes:
        rows: one for each kind.
        create_for_commit: makes the group of a commit that finds none. Kafka makes a classic one.
    """

    __slots__ = ("create_for_commit", "rows")

    def __init__(self, context: HandlerContext, creation: Creation, environments: Environments) -> None:
        classic = ClassicGroups(context, creation)
        self.rows: tuple[GroupKind, ...] = (
            classic,
            ConsumerGroups(context, creation, environments.consumer, classic),
            ShareGroups(context, creation, environments.share),
            StreamsGroups(context, creation, environments.streams, classic),
        )
        self.create_for_commit = classic.create

    def of(self, group: Group) -> GroupKind:
        """Return the kind of a group."""
        return next(kind for kind in self.rows if type(group) is kind.group_class)

    def of_records(self, keys: Iterable[RecordKey]) -> GroupKind:
        """Return the kind of a group of which the log has records with these keys.

        The kinds' records don't mix but in a log that somebody has damaged; then the first row has the group. So it has
        one of which there are offsets alone, as commits make it.
        """
        types = {record_type for record_type, _ in keys}
        return next((kind for kind in self.rows if not types.isdisjoint(kind.record_types)), self.rows[0])


def as_classic_group(group: Group | None) -> GroupMetadata | None:
    """Return a group for those who look into classic ones; None if it is none."""
    return group if isinstance(group, GroupMetadata) else None


def as_modern_group(group: Group | None) -> ModernGroup[Any] | None:
    """Return a group whose state is in the log for those who look into these; None if it is none."""
    return group if isinstance(group, ModernGroup) else None


def as_consumer_group(group: Group | ModernGroup[Any] | None) -> ConsumerGroup | None:
    """Return a group for those who look into consumer groups; None if it is none."""
    return group if isinstance(group, ConsumerGroup) else None
