"""Handlers of groups with logged state: one write in flight for each group.

Requests that may write wait for the write in flight and share the next one. Requests that only read use the durable
state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Generic, TypeVar, cast

from attrs import astuple

from groupcoord.core.events import Cause, Trigger
from groupcoord.core.fast_construct import define
from groupcoord.core.groups.base.group import GroupEnvironment, GroupT, SteadyHeartbeat
from groupcoord.core.groups.base.state import LEFT_MEMBER_EPOCH, Draft, ModernMember, find_sender
from groupcoord.core.groups.group import Group, says_more, session_timeouts_ms, why_not_found
from groupcoord.core.handler_context import GroupKind, Handler, HandlerContext
from groupcoord.core.log.log_partition import Continuation
from groupcoord.core.log.records import GroupTombstone
from groupcoord.core.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    Heartbeat,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeftMember,
    Reply,
    Response,
    SyncGroup,
    Token,
    Waiting,
)
from groupcoord.core.messages.request import GroupRequest, RefusedError
from groupcoord.core.timers import TimerKey, TimerKind
from groupcoord.errors import ErrorCode

FENCING_RETRY_MS = 500
"""Delay of a timer after a refused write (Kafka's ``CoordinatorTimerImpl``)."""

RECORDS_PER_WRITE_MAX = 1_000
"""Waiting requests share a write up to this number of records."""

STEADY_VALUES_MAX = 10_000
"""A heartbeat with more values is not cached: its sender decides how long it is."""

DraftT = TypeVar("DraftT", bound=Draft[Any])


@define(eq=False)
class WhenDrafted(Continuation):
    """Continuation of a write of a group, or of several after the deletion of a topic."""

    groups: tuple[Any, ...]

    def concerns(self, group: Group) -> bool:
        return group in self.groups

    def on_durable(self, context: HandlerContext, now_ms: int) -> None:
        for group in self.groups:
            context.kinds[type(group)].on_durable(group, now_ms)

    def on_refused(self, context: HandlerContext, error_code: ErrorCode, now_ms: int) -> None:
        for group in self.groups:
            context.kinds[type(group)].on_failure(group, error_code, now_ms)

    def on_overdue(self, context: HandlerContext, error_code: ErrorCode, now_ms: int) -> None:
        for group in self.groups:
            context.kinds[type(group)].on_overdue(group, error_code, now_ms)


class ModernGroups(GroupKind, ABC, Generic[GroupT, DraftT]):
    """Handlers of groups of one type in one log partition.

    Attributes:
        rules: by class of a request or of a host's answer, a function of group, draft, request and time. It
            writes to the draft, and returns any response.
    """

    draft_class: ClassVar[type[Any]]
    announces_assignments: ClassVar[bool] = True
    """False for tasks of streams groups, which have no such event."""
    response_class: ClassVar[Callable[..., Any]]
    """Of its heartbeats."""
    described_class: ClassVar[Callable[..., Any]]
    """Describes a group that does not exist."""

    def __init__(self, context: HandlerContext, environment: GroupEnvironment[Any, Any]) -> None:
        self._context = context
        self._groups: dict[str, Any] = context.groups
        self._known_topics = environment.topics
        self._settings_of = environment.settings_of
        self._environment = environment
        self._timers = context.timers
        self.rules: dict[type, Callable[[GroupT, DraftT, Any, int], Any]] = {}
        self.record_types = frozenset(self.group_class.STATE.FORGET)
        assert self.heartbeat_request is not None
        self.handlers = {self.heartbeat_request: self.heartbeat}

    # ------------------------------------------------------------ differences between types

    # Functions; the methods below need timers, conversion or host queries of a type.

    steady_until_ms: ClassVar[Callable[..., int | None]]
    """Returns the last millisecond in which an equal heartbeat changes nothing, or None."""

    def remove_members(self, draft: DraftT, member_ids: Collection[str], cause: Cause, now_ms: int) -> None:
        """Write the removal of members, and the group's next epoch."""
        draft.add_removals(member_ids, cause)
        draft.write(*draft.state.member_tombstones(*member_ids))
        metadata_hash = draft.state.topics_hash(self._known_topics)
        draft.begin_epoch_without_members(metadata_hash, Trigger(cause, next(iter(member_ids))))

    def shares_write(self, draft: DraftT, request: GroupRequest[Any]) -> bool:
        """Return whether a request that has waited may be handled on top of a draft."""
        return len(draft.records) < RECORDS_PER_WRITE_MAX

    def hold(self, draft: DraftT, token: Token, response: Response) -> None:
        draft.held.append(Reply(token, response))

    def announce(self, draft: DraftT, now_ms: int) -> None:
        self._context.observer.announce(draft.state.group_id, self.group_class.TYPE, draft.events, now_ms)
        if self.announces_assignments:
            self._context.observer.assignments_changed(draft.durable, draft.state, now_ms)

    def looked_at_topics(self, group: GroupT) -> None:
        # Kafka makes a new group of its records, so the request after the first one compares the topics again.
        if self._groups.get(group.group_id) is group:
            group.is_topics_look_due = False

    # ------------------------------------------------------------ requests that may write

    def repeat_heartbeat(self, request: Any, token: Token, now_ms: int) -> bool:
        """Answer a heartbeat that equals its member's last one, if nothing has changed since; return whether it did."""
        context = self._context
        # The most frequent request. An equal one has passed all checks, so this comes before them.
        group_id = request.group_id
        group: Any = self._groups.get(group_id)
        if type(group) is not self.group_class or (context.writings and group_id in context.writings):
            return False
        steady = group.steady.get(request.member_id)
        if (
            steady is None
            or (request is not steady.request and request != steady.request)
            # Any write of the group may have changed the response.
            or group.writes != steady.writes
            # With its removal in flight a member has to wait for the outcome.
            or (group.writing is not None and request.member_id not in group.writing.state.members)
            # A changed topic may begin a new epoch.
            or group.is_topics_look_due
            or now_ms > steady.until_ms
            # New topics may match a regular expression.
            or self._known_topics.version != steady.topics_version
            # Settings of a group may change at any time; equal ones are usually the same object.
            or ((settings := self._settings_of(group_id)) is not steady.settings and settings != steady.settings)
        ):
            return False
        context.timers.arm(steady.session_timer, now_ms + steady.session_timeout_ms)
        context.effects.reply(token, steady.response)
        return True

    def heartbeat(self, request: Any, token: Token, now_ms: int) -> None:
        """Handle a heartbeat; its response may wait for the log."""
        group: Any = self._groups.get(request.group_id)
        if type(group) is self.group_class:
            self.take_or_wait(group, request, token, now_ms)
        # Only a join creates a group (KIP-848).
        elif group is None and request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
            made = self.group_class(request.group_id, self._context.partition, self._environment)
            self.take_or_wait(made, request, token, now_ms)
        else:
            self.meet_no_group(request, token, now_ms)

    def take_or_wait(self, group: GroupT, request: GroupRequest[Any], token: Token, now_ms: int) -> None:
        if group.writing is not None:
            # A slow log must not cost a live member its place.
            self._renew_waiting_session(group, request, now_ms)
            group.waiting.append(Waiting(request, token))
            return
        draft = self.draft_class(group.state)
        self._take(group, draft, request, token, now_ms)
        self.write(group, draft, now_ms)

    def _take(self, group: GroupT, draft: DraftT, request: GroupRequest[Any], token: Token, now_ms: int) -> None:
        """Handle one request in a draft; respond now or with the draft."""
        draft.mark()
        try:
            response = self.rules[type(request)](group, draft, request, now_ms)
        except RefusedError as error:
            # Requests before this one in the draft are unaffected.
            draft.roll_back()
            self.refuse(request, token, error)
            return
        if draft.records:
            # Nothing may be answered that a restart would not know.
            self.hold(draft, token, response)
            return
        # Also without records: a repeated classic join has to be followed by a sync.
        self.adopt(group, draft, now_ms)
        self._context.effects.reply(token, response)
        if type(request) is self.heartbeat_request:
            # Joins and leaves with the classic protocol are never repeated.
            self._note_steady(group, request, response)

    def _note_steady(self, group: GroupT, request: Any, response: Any) -> None:
        state = group.state
        # A join repeats the assignment, and a due target depends on the time.
        if request.member_epoch <= JOIN_GROUP_MEMBER_EPOCH or state.assignment_epoch < state.epoch:
            return
        until_ms = self.steady_until_ms(group, self._environment)
        if until_ms is None or says_more(astuple(request, recurse=False), STEADY_VALUES_MAX):
            return
        settings = self._settings_of(group.group_id)
        group.steady[request.member_id] = SteadyHeartbeat(
            request,
            response,
            group.writes,
            settings,
            settings.session_timeout_ms,
            self._known_topics.version,
            until_ms,
            group.timer(TimerKind.MEMBER_SESSION, request.member_id),
        )

    def leave_by_heartbeat(self, draft: DraftT, request: Any, now_ms: int) -> Any:
        """Handle the heartbeat of a member that leaves; a static member may leave temporarily."""
        # A leave has no epoch to check.
        member: ModernMember = find_sender(draft.state, request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            # The session timer runs on, so a long absence removes the member.
            draft.write(draft.state.assignment_record(member.member_id, member.assignment.as_left(LEFT_MEMBER_EPOCH)))
        else:
            self.remove_members(draft, (member.member_id,), Cause.LEAVE, now_ms)
        return self.response_class(ErrorCode.NONE, None, request.member_id, request.member_epoch)

    def meet_no_group(self, request: Any, token: Token, now_ms: int) -> None:
        """Fail a request without a group of this type."""
        group_id = request.group_id
        group = self._context.groups.get(group_id)
        message = why_not_found(group, group_id, self.group_class.TYPE)
        # Kafka words a missing group differently in heartbeats.
        if group is None and type(request) is self.heartbeat_request:
            message = f"{self.group_class.TYPE.capitalize()} group {group_id} not found."
        self.refuse(request, token, RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, message))

    def refuse(self, request: GroupRequest[Any], token: Token, error: RefusedError) -> None:
        self._context.effects.reply(token, request.refused(error.error_code, error.message))

    # ------------------------------------------------------------ writes

    def write(self, group: GroupT, draft: DraftT, now_ms: int) -> None:
        """Append a draft, unless it is empty."""
        if not draft.records:
            return
        # A new group becomes known with its first write, so a refused join leaves none.
        if group.group_id not in self._context.groups:
            self._context.add_group(cast(Group, group), now_ms)
            self._context.has_modern_groups = True
        # Nothing else is written until the outcome is known: the log may refuse this append and accept a later one.
        group.writing = draft
        self._context.writer.begin(draft.records, WhenDrafted((group,)), draft.held)

    def on_durable(self, group: GroupT, now_ms: int) -> None:
        draft, group.writing = cast(DraftT, group.writing), None
        self.announce(draft, now_ms)  # observers compare the states before and after
        draft.state.settle()  # from here on the state before must not be read
        group.state = draft.state
        group.writes += 1
        # The expired members' removals are durable.
        group.fencing.clear()
        self._context.observer.look_at_rebalance(group, now_ms)
        self.adopt(group, draft, now_ms)
        self._handle_waiting(group, now_ms)

    def on_failure(self, group: GroupT, error_code: ErrorCode, now_ms: int) -> None:
        group.writing = None
        group.is_topics_look_due = True  # the refused heartbeat's comparison of topics is lost
        self.retry_fencing(group, now_ms)
        self._handle_waiting(group, now_ms)

    def on_overdue(self, group: GroupT, error_code: ErrorCode, now_ms: int) -> None:
        """Fail the requests that wait for an overdue write, which stays in flight."""
        waiting, group.waiting = group.waiting, []
        for request, token in waiting:
            self.refuse(request, token, RefusedError(error_code))

    def _handle_waiting(self, group: GroupT, now_ms: int) -> None:
        # The usual case, without a draft.
        if not (group.waiting or group.overdue or group.answers):
            return
        overdue, group.overdue = group.overdue, []
        answers, group.answers = group.answers, []
        waiting, group.waiting = group.waiting, []
        if self._groups.get(group.group_id) is not group:
            for request, token in waiting:  # the group never existed: the first request may create another, of any type
                self._context.handle(request, token, now_ms)
            return
        draft = self.draft_class(group.state)
        # All of them build on the durable state, in one append.
        # Expired members go first: their partitions are free for the waiting requests.
        for key in overdue:
            self.fence(group, draft, key, now_ms)
        for answer in answers:
            draft.mark()
            self.rules[type(answer)](group, draft, answer, now_ms)
        for position, (request, token) in enumerate(waiting):
            if not self.shares_write(draft, request):
                # Later requests must not overtake one that can't share the write.
                group.waiting = waiting[position:]
                break
            self._take(group, draft, request, token, now_ms)
        self.write(group, draft, now_ms)
        # Requests that share no write, if there was none.
        while group.waiting and group.writing is None and group.group_id not in self._context.writings:
            request, token = group.waiting.pop(0)
            self._context.handle(request, token, now_ms)

    def answered(self, group: GroupT, answer: Any, now_ms: int) -> None:
        if group.writing is not None:
            group.answers.append(answer)
            return
        draft = self.draft_class(group.state)
        self.rules[type(answer)](group, draft, answer, now_ms)
        self.write(group, draft, now_ms)

    # ------------------------------------------------------------ timers

    def adopt(self, group: GroupT, draft: DraftT, now_ms: int) -> None:
        """Set timers from the records of a draft, so that a live group and a loaded one have the same."""
        # In the order of their tombstones: the assignment first, the metadata last.
        assignment_record, metadata_record = group.STATE.RECORDS_OF_MEMBER[0], group.STATE.RECORDS_OF_MEMBER[-1]
        members = group.state.members
        record: Any
        for record in draft.records:
            kind = type(record)
            # A session begins with the first durable record, so a refused join leaves no timer.
            if kind is metadata_record:
                member = members.get(record.member_id)
                # A running session was renewed when the heartbeat itself was handled.
                if member is not None and group.timer(TimerKind.MEMBER_SESSION, record.member_id).deadline_ms is None:
                    self.start_session(group, member, now_ms)
            elif kind is assignment_record:
                member = members.get(record.member_id)
                if member is not None and not member.has_left:  # otherwise its timers run on
                    self.follow_assignment(group, member, now_ms)
            # The same append may add a member of this id again.
            elif kind is GroupTombstone:
                record_type, member_id = record.key
                if record_type == metadata_record.RECORD_TYPE and member_id not in members:
                    for timer in group.drop_timers(member_id):
                        self._timers.cancel(timer)

    def revive(self, group: GroupT, now_ms: int) -> None:
        """Set the timers of a group from its records: all sessions start now."""
        for member in group.state.members.values():
            self.start_session(group, member, now_ms)
            self.follow_assignment(group, member, now_ms)

    def follow_assignment(self, group: GroupT, member: Any, now_ms: int) -> None:
        """Start the revocation timer of a member that has to revoke something, or cancel it."""
        member_id = member.metadata.member_id
        if member.assignment.is_revoking:
            group.revoking_epochs[member_id] = member.member_epoch
            # Each such record sets the deadline again, as in Kafka.
            self._timers.arm(
                group.timer(TimerKind.REVOCATION, member_id), now_ms + member.metadata.rebalance_timeout_ms
            )
        elif member_id in group.revoking_epochs:
            self._timers.cancel(group.timer(TimerKind.REVOCATION, member_id))

    def start_session(self, group: GroupT, member: Any, now_ms: int) -> None:
        # Read at each start: an administrator may change the group's settings meanwhile.
        timeout_ms = self._environment.settings_of(group.group_id).session_timeout_ms
        self._timers.arm(group.timer(TimerKind.MEMBER_SESSION, member.metadata.member_id), now_ms + timeout_ms)

    def retry_fencing(self, group: GroupT, now_ms: int) -> None:
        """Rearm the timers of members after the log has refused their removal."""
        fencing, group.fencing = group.fencing, []
        for key in fencing:
            timer = group.timer(key.kind, key.member_id)
            # A heartbeat during the write may have rearmed it.
            if timer.deadline_ms is None and key.member_id in group.state.members:
                self._timers.arm(timer, now_ms + FENCING_RETRY_MS)

    def _renew_waiting_session(self, group: GroupT, request: Any, now_ms: int) -> None:
        if type(request) is self.heartbeat_request:
            member = group.state.members.get(request.member_id)
            # Another epoch may be refused later, and refused requests renew no session.
            if member is not None and member.member_epoch == request.member_epoch:
                self.start_session(group, member, now_ms)

    def on_timer(self, key: TimerKey, now_ms: int) -> None:
        group = self._groups[key.group_id]
        if group.writing is not None:
            # Its member may send a heartbeat before the log has answered.
            group.overdue.append(key)
            return
        draft = self.draft_class(group.state)
        self.fence(group, draft, key, now_ms)
        self.write(group, draft, now_ms)

    def fence(self, group: GroupT, draft: DraftT, key: TimerKey, now_ms: int) -> None:
        """Remove the member of an expired timer, unless that no longer applies."""
        # The member sent a heartbeat while the timer waited for the write in flight.
        if group.timer(key.kind, key.member_id).deadline_ms is not None:
            return
        member = draft.state.members.get(key.member_id)
        if member is None:
            group.fencing.append(key)  # another of its timers removes it; both fire again if the log refuses that
            return
        # Kafka compares epochs, too: the timer of an earlier revocation must not remove a member.
        has_moved_on = member.member_epoch != group.revoking_epochs.get(key.member_id)
        if key.kind is not TimerKind.REVOCATION or not has_moved_on:
            assert key.kind.cause is not None
            self.remove_members(draft, (key.member_id,), key.kind.cause, now_ms)
            group.fencing.append(key)

    def begin_rebalance(self, group: Any, now_ms: int) -> bool:
        if group.writing is not None or group.is_empty:
            # The write in flight may be a rebalance; an empty group has nothing to balance.
            return False
        draft = self.draft_class(group.state)
        draft.begin_epoch(group.state.metadata_hash, Trigger(Cause.METADATA_CHANGE))
        self.write(group, draft, now_ms)
        return True

    # ------------------------------------------------------------ reads

    def describe(self, group_id: str) -> Any:
        group: Any = self._context.visible(group_id)
        if type(group) is self.group_class:
            return self.described(group)
        message = why_not_found(group, group_id, self.group_class.TYPE)
        return self.described_class(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)

    def described(self, group: Any) -> Any:
        return group.described()

    # ------------------------------------------------------------ loads

    def load(self, group_id: str, now_ms: int) -> None:
        group = self.make_of_records(group_id)
        self.revive(group, now_ms)
        self._context.observer.group_loaded(group_id, group.state.epoch, len(group.state.members), now_ms)

    def make_of_records(self, group_id: str) -> GroupT:
        context = self._context
        group: GroupT = self.group_class(group_id, context.partition, self._environment)
        group.state = type(group.state).of(
            group_id, [record for _, record in context.writer.hard.groups[group_id].values()]
        )
        context.groups[group_id] = group  # type: ignore[assignment]
        context.has_modern_groups = True
        return group

    # ------------------------------------------------------------ requests of the classic protocol

    def join_as_guest(self, request: JoinGroup, token: Token, now_ms: int) -> None:
        # Kafka checks the session timeout before it looks at the group.
        if request.session_timeout_ms in session_timeouts_ms(self._context.config):
            self.join(self._groups[request.group_id], request, token, now_ms)
        else:
            response = JoinGroupResponse(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
            self._context.effects.reply(token, response)

    @abstractmethod
    def join(self, group: GroupT, request: JoinGroup, token: Token, now_ms: int) -> None:
        """Handle a JoinGroup with an allowed session timeout."""

    def refuse_classic_members(self) -> dict[type, Handler]:
        reply = self._context.effects.reply

        def refuse(request: Heartbeat | SyncGroup, token: Token, now_ms: int) -> None:
            reply(token, request.refused(ErrorCode.UNKNOWN_MEMBER_ID))

        def leave(request: LeaveGroup, token: Token, now_ms: int) -> None:
            left = tuple(
                LeftMember(entry.member_id, entry.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
                for entry in request.members
            )
            # As for a missing group: an error for each entry, none for the request.
            reply(token, LeaveGroupResponse(ErrorCode.NONE, left))

        return {Heartbeat: refuse, SyncGroup: refuse, LeaveGroup: leave}
