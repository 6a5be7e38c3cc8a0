"""Context of the handlers of one log partition, and the interface of a group type."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

from attrs import field

from groupcoord.config import Config
from groupcoord.core.events import Cause
from groupcoord.core.fast_construct import define
from groupcoord.core.groups.group import Deletion, Group
from groupcoord.core.log.log_partition import Effects, PartitionWriter
from groupcoord.core.messages import Reply, Token
from groupcoord.core.observer import Observer
from groupcoord.core.timers import TimerKey, TimerQueue
from groupcoord.errors import ErrorCode

Handler = Callable[[Any, Token, int], None]
"""Takes a request of one type: the request, its token, the time."""


class GroupKind:
    """Handlers of all groups of one type in one log partition.

    Attributes:
        record_types: record types by which a load recognizes its groups.
        handlers: request of its protocol → handler, if the group is of this type or does not exist. A group of another
            type handles it as a guest if it can; otherwise this handler refuses or converts the group.
        guest_handlers: request of another protocol → handler, if the group is of this type.
        answer_class: class of the host's answers to its queries; None without queries.
    """

    NOT_STATE = ("guest_handlers", "record_types")

    group_class: type[Any]
    record_types: frozenset[int]
    describe_request: type[Any]
    heartbeat_request: type[Any] | None = None
    answer_class: type[Any] | None = None
    handlers: dict[type, Handler]
    guest_handlers: dict[type, Handler]

    def load(self, group_id: str, now_ms: int) -> None:
        raise NotImplementedError

    def on_timer(self, key: TimerKey, now_ms: int) -> None:
        """Handle a fired timer of a group."""
        raise NotImplementedError

    def describe(self, group_id: str) -> Any:
        raise NotImplementedError

    def begin_rebalance(self, group: Any, now_ms: int) -> bool:
        raise NotImplementedError

    def repeat_heartbeat(self, request: Any, token: Token, now_ms: int) -> bool:
        """Answer a heartbeat that equals its member's last one, before any check; return False for all others."""
        return False

    def found_out(self, answer: Any, now_ms: int) -> None:
        """Apply the host's answer to a query."""

    def topic_deleted(self, topic_id: UUID, now_ms: int) -> None:
        """Delete state of a deleted topic other than committed offsets."""

    def append_refused(self) -> None:
        """Revert soft state that belongs to no durable append of the log partition, after the log refused one."""

    def delete_external_state(self, group: Any, deletion: Deletion, now_ms: int) -> bool:
        """Begin to delete a group's external state, after which the deletion continues; return
        False if there is none.
        """
        return False

    def parked_tokens(self) -> list[Token]:
        return []

    def refuse_waiting(self, error_code: ErrorCode) -> list[Reply]:
        return []


@define(eq=False)
class HandlerContext:
    """State and outputs that the handlers of one log partition share.

    Attributes:
        groups: group id → soft state of each group that requests meet.
        writings: group id → the group before a write in flight that decides whether it exists, or of which type it is.
            Readers see it; all other requests wait in it.
        has_modern_groups: there was a group that is not classic, so classic requests may be a guest's.
        handle, on_timer: handle a request for one group, and one of its timers.
        wake_retention: schedules the next expiry check; ``Administration`` sets it.
        kinds: class of groups → handlers (:class:`.GroupKind`).
        new_member_id: returns a member id for a prefix, a client or instance id.
        new_uuid: returns a member id for a consumer group.
    """

    NOT_STATE = ("partition", "wake_retention")

    partition: int
    config: Config
    effects: Effects
    timers: TimerQueue
    observer: Observer
    new_member_id: Callable[[str], str]
    new_uuid: Callable[[], str]
    writer: PartitionWriter
    groups: dict[str, Group] = field(factory=dict)
    has_modern_groups: bool = False
    kinds: dict[type, Any] = field(factory=dict)  # with what its continuations need
    writings: dict[str, Group] = field(factory=dict)
    handle: Handler = field(init=False)
    on_timer: Callable[[TimerKey, int], None] = field(init=False)
    wake_retention: Callable[[int], None] = field(init=False)

    def add_group(self, group: Group, now_ms: int) -> None:
        """Add a group that is not in the log yet."""
        # Readers see it once an append that began later is durable, of any group: Kafka 4 versions its memory by the
        # writes of the log partition. Without a write it stays soft state until a restart or the next expiry check.
        group.first_append = self.writer.next_number
        self.groups[group.group_id] = group
        self.writer.unseen.setdefault(group.first_append, []).append(group)
        self.wake_retention(now_ms)

    def discard_groups(self, number: int, error_code: ErrorCode, now_ms: int) -> None:
        """Discard the groups added since the append before ``number``, which the log has refused."""
        writer = self.writer
        # A group with a later append in flight stays, and belongs to that one.
        for group in writer.unseen.pop(number, ()):
            followers = (entry.number for entry in writer.in_flight if entry.continuation.concerns(group))
            first_follower = next(followers, None)
            if first_follower is not None:
                group.first_append = first_follower
                writer.unseen.setdefault(first_follower, []).append(group)
            # Another group may have its id by now.
            elif self.groups.get(group.group_id) is group:
                # Kafka never answers the joins that wait in it.
                self.effects.replies += group.refuse_waiting(error_code, names_members=False)
                del self.groups[group.group_id]
                self.end(group, Cause.CREATION_FAILED, now_ms)

    def end_writings(self, groups: Collection[Group], now_ms: int) -> None:
        """Handle the requests that waited for a write of these groups."""
        # All first, since a resumed request may begin the next write of its group.
        for group in groups:
            del self.writings[group.group_id]
        for request, token in [entry for group in groups for entry in group.take_waiting()]:
            self.handle(request, token, now_ms)

    def resume(self, groups: Collection[Group], now_ms: int) -> None:
        """Resume groups that stay as they were. Timers that fired meanwhile fire now, unless waiting requests rearm
        them.
        """
        fired = []
        for group in groups:
            overdue, group.overdue = group.overdue, []
            # In the order in which they fired.
            fired += sorted((t for t in group.timers() if t.key in overdue), key=lambda timer: overdue.index(timer.key))
        for timer in fired:
            # Armed first, so that requests that waited can cancel them.
            self.timers.arm(timer, now_ms)
        self.end_writings(groups, now_ms)
        for timer in fired:
            # Otherwise a resumed request has moved or cancelled it.
            if timer.deadline_ms == now_ms:
                self.timers.cancel(timer)
                self.on_timer(timer.key, now_ms)

    def is_seen(self, group: Group) -> bool:
        """Return whether readers see a group: a later append than the one before it is durable."""
        return group.first_append <= self.writer.last_durable

    def visible(self, group_id: str) -> Group | None:
        """Return the group that readers see under this id: the one in the log, not a pending one."""
        group = (self.writings.get(group_id) if self.writings else None) or self.groups.get(group_id)
        return group if group is not None and group.first_append <= self.writer.last_durable else None

    def visible_groups(self) -> list[Group]:
        # A group that is being deleted is listed until its tombstones are durable.
        group_ids = self.groups.keys() | self.writings.keys()
        return [group for group in map(self.visible, sorted(group_ids)) if group is not None]

    def disarm(self, group: Group) -> None:
        for timer in group.timers():
            self.timers.cancel(timer)

    def end(self, group: Group, cause: Cause, now_ms: int) -> None:
        self.disarm(group)
        group.end(now_ms)
        self.observer.group_removed(group, cause, now_ms)
