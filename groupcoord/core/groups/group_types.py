"""Table of group types: a row of handlers for each.

Only this module and the folders of the types depend on the type of a group. A new type is a folder next to ``classic``
and ``consumer`` with a row in :class:`GroupKinds`, the checks of its requests in ``core/router``, and messages in
``core/messages``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from groupcoord.core.groups.base.group import ModernGroup
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.kind import ClassicGroups
from groupcoord.core.groups.consumer.group import ConsumerGroup, ConsumerGroupEnvironment
from groupcoord.core.groups.consumer.kind import ConsumerGroups
from groupcoord.core.groups.group import Group
from groupcoord.core.groups.share.group import ShareGroupEnvironment
from groupcoord.core.groups.share.kind import ShareGroups
from groupcoord.core.groups.streams.group import StreamsGroupEnvironment
from groupcoord.core.groups.streams.kind import StreamsGroups
from groupcoord.core.handler_context import GroupKind, HandlerContext
from groupcoord.core.log.record_keys import RecordKey
from groupcoord.core.topics import KnownTopics


class Environments(NamedTuple):
    """Environments of all types with logged state, and the topics that they share."""

    topics: KnownTopics
    consumer: ConsumerGroupEnvironment
    share: ShareGroupEnvironment
    streams: StreamsGroupEnvironment


class GroupKinds:
    """Table of group types of one log partition. As in Kafka a commit to an unknown group id
    creates a classic group.
    """

    __slots__ = ("create_for_commit", "rows")

    def __init__(self, context: HandlerContext, environments: Environments) -> None:
        classic = ClassicGroups(context)
        self.rows: tuple[GroupKind, ...] = (
            classic,
            ConsumerGroups(context, environments.consumer, classic),
            # Without the classic handlers: Kafka never converts share groups.
            ShareGroups(context, environments.share),
            StreamsGroups(context, environments.streams, classic),
        )
        self.create_for_commit = classic.create
        context.kinds.update((kind.group_class, kind) for kind in self.rows)

    def of_records(self, keys: Iterable[RecordKey]) -> GroupKind:
        """Return the type of a group with records of these keys."""
        # Types do not mix except in a damaged log; then the first row wins, as for a group with offsets only.
        types = {record_type for record_type, _ in keys}
        return next((kind for kind in self.rows if not types.isdisjoint(kind.record_types)), self.rows[0])


def as_classic_group(group: Group | None) -> GroupMetadata | None:
    return group if isinstance(group, GroupMetadata) else None


def as_modern_group(group: Group | None) -> ModernGroup[Any] | None:
    return group if isinstance(group, ModernGroup) else None


def as_consumer_group(group: Group | ModernGroup[Any] | None) -> ConsumerGroup | None:
    return group if isinstance(group, ConsumerGroup) else None
