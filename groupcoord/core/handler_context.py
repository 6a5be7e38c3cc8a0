"""What the handlers of one log partition work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from attrs import define, field

from groupcoord.config import Config
from groupcoord.core.events import Cause
from groupcoord.core.groups.group import Deletion, Group
from groupcoord.core.log.append_queue import PartitionWriter
from groupcoord.core.observer import Observer
from groupcoord.core.outputs import Effects
from groupcoord.core.replies import Reply, Token, Waiting
from groupcoord.core.timers import TimerKey, TimerKind, TimerQueue
from groupcoord.errors import ErrorCode

Handler = Callable[[Any, Token, int], None]
"""Takes a request of one type: the request, its token, the time."""


class Writing(NamedTuple):
    """A group's write in flight on which all else depends, and the requests that wait for its outcome.

    Such a write are the tombstones of a group: whether it is gone is the log's to say.

    Attributes:
        group: as the log knows it until then, which is what readers see.
        waiting: handled in their order as soon as the log has answered.
        overdue: timers of the group that have fired meanwhile.
    """

    group: Group
    waiting: list[Waiting]
    overdue: list[TimerKey]


class GroupKind:
    """Handlers of all groups of one kind in one log partition.

    Questions about a single group (may this commit, is it empty, who waits) are in
    :class:`~groupcoord.core.groups.group.Group`, which each kind implements with a class of its own.

    Attributes:
        group_class: the class of its groups.
        record_types: the types of the records by which a load knows its groups.
        describe_request: the request that describes groups of this kind.
        handlers: request of the kind's own protocol → handler, if the group is of this kind or does not exist. A group
            of another kind handles it as a guest where it can; else this handler refuses or converts the group.
        guest_handlers: request of another protocol → handler, if the group is of this kind.
        timers: kind of timer → what it does when it fires.
        answer_class: what the host answers to queries of this kind; None if it asks none.
    """

    NOT_STATE = ("guest_handlers", "record_types")

    group_class: type[Any]
    record_types: frozenset[int]
    describe_request: type[Any]
    heartbeat_request: type[Any] | None = None
    answer_class: type[Any] | None = None
    handlers: dict[type, Handler]
    guest_handlers: dict[type, Handler]
    timers: dict[TimerKind, Callable[[TimerKey, int], None]]

    def load(self, group_id: str, now_ms: int) -> None:
        """Make a group of what the log has of it when a load is over, and start its timers."""
        raise NotImplementedError

    def describe(self, group_id: str) -> Any:
        """Return the description of a group id, be there such a group or not."""
        raise NotImplementedError

    def begin_rebalance(self, group: Any, now_ms: int) -> bool:
        """Begin a rebalance without a cause; return False if the group can't now."""
        raise NotImplementedError

    def repeat_heartbeat(self, request: Any, token: Token, now_ms: int) -> bool:
        """Answer a heartbeat that equals its member's last one, before any check; return False for all others."""
        return False

    def found_out(self, answer: Any, now_ms: int) -> None:
        """Take the host's answer to a query of this kind."""

    def topic_deleted(self, topic_id: UUID, now_ms: int) -> None:
        """Forget a deleted topic of which a group knows more than committed offsets."""

    def append_refused(self) -> None:
        """Revert soft state that belongs to no durable append of the log partition, after the log refused one."""

    def delete_external_state(self, group: Any, deletion: Deletion, now_ms: int) -> bool:
        """Begin to delete what others keep of a group, and return whether there is anything.

        The :class:`.Deletion` goes on when they have.
        """
        return False

    def parked_tokens(self) -> list[Token]:
        """Return the tokens of requests that wait outside of groups."""
        return []

    def refuse_waiting(self, error_code: ErrorCode) -> list[Reply]:
        """Return the refusals of requests that wait outside of groups."""
        return []


@define(eq=False)
class HandlerContext:
    """What the handlers of one log partition share: its state, and the ways out of it.

    Attributes:
        groups: group id → soft state of each group that requests meet.
        writings: group id → the write in flight that a group's requests have to wait for.
        has_modern_groups: there is or was a group that is no classic one: the classic protocol may meet it.
        handle: takes a request for one group as if it came now.
        wake_retention: schedules the next expiry check when a group is added; ``Retention`` sets it.
        kinds: class of groups → the handlers of its kind (:class:`.GroupKind`).
        new_member_id: makes a member id from its prefix, the client's or the instance's id.
        new_uuid: makes a member id for who joins a consumer group without one.
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
    kinds: dict[type, Any] = field(factory=dict)  # each with what its continuations need
    writings: dict[str, Writing] = field(factory=dict)
    handle: Handler = field(init=False)
    wake_retention: Callable[[int], None] = field(init=False)

    def add_group(self, group: Group, now_ms: int) -> None:
        """Add a group that the log does not know yet.

        Requests meet it at once, readers once an append that began later is durable, of whatever group. Kafka 4
        versions its memory by the writes of the log partition likewise. A group without a write (a commit that was
        refused for all partitions) stays soft state: a restart forgets it, and the next expiry check deletes it.
        """
        group.first_append = self.writer.next_number
        self.groups[group.group_id] = group
        self.writer.unseen.setdefault(group.first_append, []).append(group)
        self.wake_retention(now_ms)

    def discard_groups(self, number: int, error_code: ErrorCode, now_ms: int) -> None:
        """Discard the groups that were added since the append before ``number``, which the log has refused.

        A group with a later append in flight stays and belongs to that one.
        """
        writer = self.writer
        for group in writer.unseen.pop(number, ()):
            followers = (entry.number for entry in writer.in_flight if entry.continuation.concerns(group))
            first_follower = next(followers, None)
            if first_follower is not None:
                group.first_append = first_follower
                writer.unseen.setdefault(first_follower, []).append(group)
            elif self.groups.get(group.group_id) is group:
                # Kafka never answers the joins that wait in it.
                self.effects.replies += group.refuse_waiting(error_code, names_members=False)
                del self.groups[group.group_id]
                self.end(group, Cause.CREATION_FAILED, now_ms)

    def is_seen(self, group: Group) -> bool:
        """Return whether something that was written after the group was made is durable: until then
        no reader sees it.
        """
        return group.first_append <= self.writer.last_durable

    def visible(self, group_id: str) -> Group | None:
        """Return the group that readers see under this id: what the log says, not what is on its way there."""
        writing = self.writings.get(group_id) if self.writings else None
        group = self.groups.get(group_id) if writing is None else writing.group
        return group if group is not None and group.first_append <= self.writer.last_durable else None

    def visible_groups(self) -> list[Group]:
        """Return all groups that readers see."""
        group_ids = self.groups.keys() | self.writings.keys()
        return [group for group in map(self.visible, sorted(group_ids)) if group is not None]

    def disarm(self, group: Group) -> None:
        """Cancel every timer of a group, which is about to be dropped or rebuilt."""
        for timer in group.timers():
            self.timers.cancel(timer)

    def end(self, group: Group, cause: Cause, now_ms: int) -> None:
        """End a group that is no longer among :attr:`groups`."""
        self.disarm(group)
        group.end(now_ms)
        self.observer.group_removed(group, cause, now_ms)
