"""Events of groups with their causes, for observers, and counters."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, NamedTuple

from attrs import asdict

from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.log.record_keys import TopicPartitions

NEVER_CHANGES = True  # all of its classes: see forking/copies.py


class Cause(Enum):
    """Cause of a rebalance, or of a removal."""

    JOIN = "join"
    LEAVE = "leave"
    SESSION_EXPIRY = "session expiry"
    REBALANCE_TIMEOUT = "rebalance time-out"
    """The member did not join in time, or in a consumer group did not revoke in time."""
    SYNC_TIMEOUT = "sync time-out"
    """The member did not sync in time (KAFKA-12890)."""
    METADATA_CHANGE = "metadata change"
    TOPIC_CHANGE = "topic change"
    """Subscribed topics of a consumer group were created, extended or deleted (KIP-848)."""
    REGEX_CHANGE = "regular expression change"
    """Regular expressions of a consumer group match other topics (KIP-848)."""
    LEADER_REJOIN = "leader rejoin"
    """The leader joined again with nothing changed, as it does when partitions of a topic changed."""
    STATIC_REPLACE = "static replace"
    """A static member returned under a new id (KIP-345)."""
    ASSIGNMENT_FAILED = "assignment failed"
    """The leader's assignments could not be written to the log."""
    GROUP_FULL = "group full"
    """``group.max.size`` leaves no room (KIP-389)."""
    LOAD = "load"
    """A load brought back more members than ``group.max.size`` allows."""
    CONVERSION = "conversion"
    """The group has another type, or it was empty and replaced by one of another type (KIP-848)."""
    CREATION_FAILED = "creation failed"
    """The first record of the group could not be written, so the group never existed."""
    UNLOAD = "unload"
    DELETION = "deletion"
    EXPIRY = "expiry"
    """The group had nothing left at a check of offsets' retention (KIP-211)."""


class Trigger(NamedTuple):
    """Cause of a rebalance, and the member behind it."""

    cause: Cause
    member_id: str = ""


@frozen
class Event:
    """An event of a group.

    Attributes:
        group_id: the group.
        at_ms: when, in milliseconds since the Unix epoch.
    """

    group_id: str
    at_ms: int


@frozen
class MemberAdded(Event):
    """A member joined."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


@frozen
class MemberRemoved(Event):
    """A member left or was removed."""

    member_id: str
    group_instance_id: str | None
    cause: Cause


@frozen
class MemberReplaced(Event):
    """A static member returned under a new id."""

    old_member_id: str
    member_id: str
    group_instance_id: str | None


@frozen
class MemberAssigned(Event):
    """A member has a new assignment, for programs that notify members themselves.

    A classic group has one for each member and generation. A consumer group has one when the member's epoch or
    partitions change.

    Attributes:
        generation_id: the generation, or the member's epoch, with which the member commits.
        assignment: the leader's bytes in a classic group, partitions by topic id in a consumer group.
    """

    member_id: str
    group_instance_id: str | None
    generation_id: int
    assignment: bytes | tuple[TopicPartitions, ...]


@frozen
class RebalanceStarted(Event):
    """A rebalance started; ``generation_id`` is the generation that it ends, or the epoch before."""

    generation_id: int
    trigger: Trigger


@frozen
class RebalanceCompleted(Event):
    """A generation is stable, or (without members) the group is empty.

    In a consumer group every member is at the target epoch and has its target assignment.

    Attributes:
        old_generation_id: the generation before.
        generation_id: the new one; more than one above if a rebalance was interrupted by the next.
        triggers: the causes of its start and restarts.
        duration_ms: from the first start.
        member_count: number of members of the new generation.
    """

    old_generation_id: int
    generation_id: int
    triggers: tuple[Trigger, ...]
    duration_ms: int
    member_count: int


@frozen
class GroupLoaded(Event):
    """A load of the log, or a conversion, brought the group here."""

    generation_id: int
    member_count: int


@frozen
class GroupRemoved(Event):
    """The group is gone from this coordinator: deleted, expired, converted, never written, or its log partition was
    unloaded.
    """

    cause: Cause


@frozen
class OwnershipLost(Event):
    """Another process owns the log, so no group is coordinated here any more. ``group_id`` is empty.

    Undelivered events of groups are discarded.
    """


@frozen
class AppendFailures:
    """Appends to one log partition that failed or have an unknown outcome.

    Attributes:
        count: number of appends.
        reason: the message of the last one.
        next_log_offset: end of the log at that time; when it grows, the log store can write again.
    """

    count: int
    reason: str
    next_log_offset: int


@define(eq=False, weakref_slot=False)
class Counters:
    """Totals since the coordinator was made, by the names of Kafka's metrics."""

    IS_STATE: ClassVar = True
    # Unlike the other classes of this module, it changes.
    NEVER_CHANGES: ClassVar = False

    append_failures: int = 0
    """Appends that failed or have an unknown outcome, except those that are too large for the log store."""
    group_completed_rebalances: int = 0
    """Generations of classic groups that became stable."""
    consumer_group_rebalances: int = 0
    """Epochs that began because subscriptions or topics changed; as in Kafka, not because a member left."""
    share_group_rebalances: int = 0
    """The same for share groups."""
    streams_group_rebalances: int = 0
    """The same for streams groups."""
    offset_commits: int = 0
    """Committed offsets, one for each partition."""
    offset_deletions: int = 0
    """Offsets removed on request, or with their group or topic."""
    offset_expirations: int = 0
    """Offsets removed by retention (KIP-211)."""
    partition_loads: int = 0
    """Loaded log partitions."""
    partition_load_ms: int = 0
    """Time of these loads in milliseconds."""
    session_expirations: int = 0
    """Members removed because their session expired."""

    def count_rebalance(self, group_type: str) -> None:
        name = f"{group_type}_group_rebalances"
        setattr(self, name, getattr(self, name) + 1)

    def as_dict(self) -> dict[str, int]:
        """Return all totals by name."""
        return asdict(self)
