"""Requests and timers of consumer groups: who writes, who waits for a write, what follows when the log has answered.

An append builds only on what is durable: the log may refuse it and take a later one. So a group has one write in
flight. Requests that may have to write wait for it, and then share the next one; whatever only reads goes by what is
durable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define

from groupcoord.core.classic.group import GroupMetadata
from groupcoord.core.classic.membership import allows_session_timeout
from groupcoord.core.consumer.classic_members import check_join, join
from groupcoord.core.consumer.conversion import Conversion
from groupcoord.core.consumer.downgrade import can_downgrade, downgrade
from groupcoord.core.consumer.draft import Draft
from groupcoord.core.consumer.environment import GroupEnvironment
from groupcoord.core.consumer.group import ConsumerGroup, SteadyHeartbeat, consumer_groups
from groupcoord.core.consumer.heartbeat import Step, beat
from groupcoord.core.consumer.identity import find_member, find_static_member
from groupcoord.core.consumer.leaving import leave, remove_members
from groupcoord.core.consumer.member_timers import MemberTimers
from groupcoord.core.consumer.refusal import RefusedError, refused
from groupcoord.core.consumer.regexes import next_resolution_ms, question, take_resolution
from groupcoord.core.consumer.state import ConsumerMember, ConsumerState
from groupcoord.core.context import HandlerContext
from groupcoord.core.creation import Creation
from groupcoord.core.effects import Continuation
from groupcoord.core.events import Cause, Trigger
from groupcoord.core.front.authorization import Principal
from groupcoord.core.groups import Group
from groupcoord.core.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    Response,
)
from groupcoord.core.messages.request import GroupRequest
from groupcoord.core.questions import ResolvedRegexes
from groupcoord.core.replies import Reply, Token, Waiting
from groupcoord.core.timers import TimerKey, TimerKind
from groupcoord.errors import ErrorCode

RECORDS_PER_WRITE_MAX = 1_000
"""Requests that waited share a write until it has so many records."""

FENCING_CAUSES = {
    TimerKind.CONSUMER_SESSION: Cause.SESSION_EXPIRY,
    TimerKind.REVOCATION: Cause.REBALANCE_TIMEOUT,
    TimerKind.MEMBER_JOIN: Cause.REBALANCE_TIMEOUT,
    TimerKind.MEMBER_SYNC: Cause.SYNC_TIMEOUT,
}
"""Why a member is gone for whom a timer has fired."""


@define(eq=False)
class WhenDrafted(Continuation):
    """What was drafted for a consumer group becomes its state."""

    group: ConsumerGroup

    def concerns(self, group: Group) -> bool:
        """Tell whether it is this group's."""
        return self.group is group


class ConsumerMembership:
    """Handles heartbeats of consumer groups of one log partition, and their timers."""

    __slots__ = (
        "_context",
        "_conversion",
        "_creation",
        "_environment",
        "_groups",
        "_judges",
        "_timers",
    )

    def __init__(
        self,
        context: HandlerContext,
        creation: Creation,
        environment: GroupEnvironment,
        timers: MemberTimers,
        conversion: Conversion,
    ) -> None:
        self._context = context
        self._groups = consumer_groups(context.groups)
        self._timers = timers
        self._creation = creation
        self._environment = environment
        self._conversion = conversion
        self._judges: dict[type, Callable[[ConsumerGroup, Draft, Any, int], Response]] = {
            ConsumerGroupHeartbeat: self._judge_heartbeat,
            JoinGroup: self._judge_join,
            LeaveGroup: self._judge_leave,
        }

    # ------------------------------------------------------------ requests that may write

    def beat_again(self, request: ConsumerGroupHeartbeat, token: Token, now_ms: int) -> bool:
        """Answer a heartbeat that is like its member's last one, which changed nothing, if nothing has changed since.

        It is the request that a coordinator sees most, so it is asked for before anything else is looked at: what is
        like a heartbeat that was taken has the right form, too.

        Returns:
            False if it isn't, and nothing was done: take it with :meth:`heartbeat`.
        """
        context = self._context
        group = context.groups.get(request.group_id)
        if type(group) is not ConsumerGroup or (context.writings and request.group_id in context.writings):
            return False
        steady = group.steady.get(request.member_id)
        if (
            steady is None
            or (request is not steady.request and request != steady.request)
            or group.writes != steady.writes
            or group.is_topics_look_due
            or now_ms > steady.until_ms
            or self._environment.topics_version != steady.topics_version
            or self._environment.settings_of(request.group_id) != steady.settings
        ):
            return False
        context.timers.arm(steady.session_timer, now_ms + steady.session_timeout_ms)
        context.effects.reply(token, steady.response)
        return True

    def heartbeat(self, request: ConsumerGroupHeartbeat, token: Token, now_ms: int) -> None:
        """Take a heartbeat: answer it, or let its answer wait for the log."""
        group = self._context.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            self._take_or_wait(group, request, token, now_ms)
        elif group is None and request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
            group = ConsumerGroup(request.group_id, self._context.partition, self._environment)
            self._take_or_wait(group, request, token, now_ms)
        elif isinstance(group, GroupMetadata) and request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
            self._conversion.upgrade(group, request, token, now_ms)
        else:
            self._refuse(request, token, _no_such_group(request.group_id))

    def join(self, request: JoinGroup, token: Token, now_ms: int) -> None:
        """Take a join with the classic protocol. If nobody is in the group, it ends, and the joiner begins another."""
        group = self._groups[request.group_id]
        if not allows_session_timeout(self._environment.config, request.session_timeout_ms):
            self._context.effects.reply(token, JoinGroupResponse(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
        elif not group.is_empty:
            self._take_or_wait(group, request, token, now_ms)
        elif request.member_id:
            # Kafka forgets the group then, in memory alone: a restart brings it back.
            self._context.effects.reply(token, JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        else:
            self._conversion.replace(group, request, token, now_ms)

    def leave(self, request: LeaveGroup, token: Token, now_ms: int) -> None:
        """Remove members, whichever protocol they use; each entry has its own result."""
        self._take_or_wait(self._groups[request.group_id], request, token, now_ms)

    def _take_or_wait(self, group: ConsumerGroup, request: GroupRequest[Any], token: Token, now_ms: int) -> None:
        if group.writing is not None:
            self._renew_waiting_session(group, request, now_ms)
            group.waiting.append(Waiting(request, token))
            return
        draft = Draft(group.state)
        self._take(group, draft, request, token, now_ms)
        self._write(group, draft, now_ms)

    def _take(self, group: ConsumerGroup, draft: Draft, request: GroupRequest[Any], token: Token, now_ms: int) -> None:
        """Judge one request on top of what is drafted, and answer it now or with the draft."""
        draft.mark()
        try:
            response = self._judges[type(request)](group, draft, request, now_ms)
        except RefusedError as error:
            draft.roll_back()
            self._refuse(request, token, error)
            return
        if draft.records:
            draft.held.append(Reply(token, response))
            return
        self._await_syncs(group, draft, now_ms)
        self._context.effects.reply(token, response)
        if isinstance(request, ConsumerGroupHeartbeat) and isinstance(response, ConsumerGroupHeartbeatResponse):
            self._note_steady(group, request, response)

    def _note_steady(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeat, response: ConsumerGroupHeartbeatResponse
    ) -> None:
        """Remember a heartbeat that changed nothing, unless time alone makes the next one like it change something."""
        state, environment = group.state, self._environment
        if (
            request.member_epoch <= JOIN_GROUP_MEMBER_EPOCH
            or state.assignment_epoch < state.epoch
            or group.is_resolving
        ):
            return
        until_ms = next_resolution_ms(state, environment)
        timer = group.timer(TimerKind.CONSUMER_SESSION, request.member_id)
        settings = environment.settings_of(group.group_id)
        group.steady[request.member_id] = SteadyHeartbeat(
            request,
            response,
            group.writes,
            settings,
            settings.session_timeout_ms,
            environment.topics_version,
            until_ms,
            timer,
        )

    def _judge_heartbeat(
        self, group: ConsumerGroup, draft: Draft, request: ConsumerGroupHeartbeat, now_ms: int
    ) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch < JOIN_GROUP_MEMBER_EPOCH:
            return leave(draft, request, self._environment, now_ms)
        member_id = request.member_id or self._context.new_uuid()
        topics_changed = group.is_topics_look_due
        response, step = beat(
            draft, request, member_id, self._environment, topics_changed=topics_changed, now_ms=now_ms
        )
        self._follow_step(group, draft, step, request.principal, now_ms)
        return response

    def _judge_join(self, group: ConsumerGroup, draft: Draft, request: JoinGroup, now_ms: int) -> JoinGroupResponse:
        check_join(draft.state, request, self._environment)
        member_id = request.member_id
        if not member_id:
            member_id = self._context.new_uuid()
            if request.group_instance_id is None and request.requires_known_member_id:
                return JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        state, environment = draft.state, self._environment
        replaced = state.members.get(state.static_members.get(request.group_instance_id or "", ""))
        ends_group = (
            replaced is not None
            and not replaced.uses_classic_protocol
            and can_downgrade(state, (replaced.member_id,), environment, joining=1)
        )
        response, step = join(
            draft,
            request,
            member_id,
            environment,
            topics_changed=group.is_topics_look_due,
            ends_group=ends_group,
            now_ms=now_ms,
        )
        self._follow_step(group, draft, step, None, now_ms)
        draft.joined.append(member_id)
        if ends_group:
            is_behind = draft.state.assignment_epoch < draft.state.epoch
            trigger = Trigger(Cause.STATIC_REPLACE, member_id) if is_behind else None
            downgrade(draft, environment, trigger, now_ms, joiner_id=member_id)
        return response

    def _judge_leave(self, group: ConsumerGroup, draft: Draft, request: LeaveGroup, now_ms: int) -> LeaveGroupResponse:
        left, gone = [], []
        for entry in request.members:
            member = _leaving_member(draft.state, entry)
            if isinstance(member, ErrorCode):
                left.append(LeftMember(entry.member_id, entry.group_instance_id, member))
                continue
            left.append(LeftMember(entry.member_id, entry.group_instance_id, ErrorCode.NONE))
            if member.member_id not in gone:
                gone.append(member.member_id)
        if gone:
            remove_members(draft, gone, Cause.LEAVE, self._environment, now_ms)
        return LeaveGroupResponse(ErrorCode.NONE, tuple(left))

    def _follow_step(self, group: ConsumerGroup, draft: Draft, step: Step, principal: Principal, now_ms: int) -> None:
        """Do what follows from a request of a member besides its records."""
        if step.looked_at_topics and group.group_id in self._context.groups:
            # The request that makes a group looks for nobody: what Kafka makes of its records looks again.
            group.is_topics_look_due = False
        if step.wants_resolution and not group.is_resolving:
            group.is_resolving = True
            self._context.effects.questions.append(
                question(self._context, draft.state, self._environment, principal, now_ms)
            )
        if step.member.member_id in group.state.members:
            self._timers.start_session(group, step.member, now_ms)

    def _refuse(self, request: GroupRequest[Any], token: Token, error: RefusedError) -> None:
        self._context.effects.reply(token, refused(request, error))

    # ------------------------------------------------------------ writes

    def _write(self, group: ConsumerGroup, draft: Draft, now_ms: int) -> None:
        if not draft.records:
            return
        if draft.downgrade is not None:
            self._conversion.downgrade(group, draft)
            return
        if group.group_id not in self._context.groups:
            self._creation.add(group, now_ms)
            self._context.has_modern_groups = True
        group.writing = draft
        self._context.writer.begin(draft.records, WhenDrafted(group), *draft.held)

    def on_durable(self, written: WhenDrafted, now_ms: int) -> None:
        """What was drafted is a fact."""
        group = written.group
        draft, group.writing = group.writing, None
        assert draft is not None
        self._context.observer.announce(group.group_id, draft.news, now_ms)
        self._context.observer.assignments_changed(draft.durable, draft.state, now_ms)
        draft.state.settle()  # from here on nobody knows any more what was before
        group.state = draft.state
        group.writes += 1
        group.fencing.clear()
        self._context.observer.look_at_rebalance(group, now_ms)
        for record in draft.records:
            self._timers.follow(group, record, now_ms)
        self._await_syncs(group, draft, now_ms)
        self._go_on(group, now_ms)

    def _await_syncs(self, group: ConsumerGroup, draft: Draft, now_ms: int) -> None:
        """Members that have joined with the classic protocol are to sync next."""
        for member_id in draft.joined:
            self._timers.await_sync(group, member_id, now_ms)
        draft.joined = []

    def on_failure(self, written: WhenDrafted, error_code: ErrorCode, now_ms: int) -> None:
        """What was drafted never was."""
        group = written.group
        group.writing = None
        group.is_topics_look_due = True
        self._timers.retry_fencing(group, now_ms)
        self._go_on(group, now_ms)

    def on_overdue(self, written: WhenDrafted, error_code: ErrorCode, now_ms: int) -> None:
        """The log takes too long: whoever waits for its next word is told. The write stays until that comes."""
        waiting, written.group.waiting = written.group.waiting, []
        for request, token in waiting:
            self._refuse(request, token, RefusedError(error_code))

    def _go_on(self, group: ConsumerGroup, now_ms: int) -> None:
        """Handle what came in the meantime: as many as share a write, the others after it."""
        if not (group.waiting or group.overdue or group.resolved is not None):
            return
        overdue, group.overdue = group.overdue, []
        waiting, group.waiting = group.waiting, []
        if self._context.groups.get(group.group_id) is not group:
            for request, token in waiting:  # the group never was: the first of them may make another, of either kind
                self._context.handle(request, token, now_ms)
            return
        draft = Draft(group.state)
        for key in overdue:
            self._fence(group, draft, key, now_ms)
        if group.resolved is not None:
            resolved, group.resolved = group.resolved, None
            self._take_resolution(group, draft, resolved)
        for position, (request, token) in enumerate(waiting):
            is_full = len(draft.records) >= RECORDS_PER_WRITE_MAX or draft.downgrade is not None
            if is_full or (isinstance(request, JoinGroup) and not draft.state.members):
                group.waiting = waiting[position:]
                break
            self._take(group, draft, request, token, now_ms)
        self._write(group, draft, now_ms)
        while group.waiting and group.writing is None:  # a join after the last member has left
            request, token = group.waiting.pop(0)
            self._context.handle(request, token, now_ms)

    # ------------------------------------------------------------ timers

    def _renew_waiting_session(self, group: ConsumerGroup, request: GroupRequest[Any], now_ms: int) -> None:
        """A member whose heartbeat has to wait for a write is alive."""
        if isinstance(request, ConsumerGroupHeartbeat):
            member = group.state.members.get(request.member_id)
            if member is not None and member.assignment.member_epoch == request.member_epoch:
                self._timers.start_session(group, member, now_ms)

    def on_timer(self, key: TimerKey, now_ms: int) -> None:
        """A member was silent for too long, or has not done in time what it had to."""
        group = self._context.groups.get(key.group_id)
        if not isinstance(group, ConsumerGroup):
            return
        if group.writing is not None:
            group.overdue.append(key)
            return
        draft = Draft(group.state)
        self._fence(group, draft, key, now_ms)
        self._write(group, draft, now_ms)

    def _fence(self, group: ConsumerGroup, draft: Draft, key: TimerKey, now_ms: int) -> None:
        """Remove the member whose timer has fired, unless the timer was set again or the member has moved on."""
        if group.timer(key.kind, key.member_id).deadline_ms is not None:
            return
        member = draft.state.members.get(key.member_id)
        if member is None:
            group.fencing.append(key)  # another of its timers removes it; both fire again if the log refuses that
            return
        has_moved_on = member.assignment.member_epoch != group.revoking_epochs.get(key.member_id)
        if key.kind is not TimerKind.REVOCATION or not has_moved_on:
            remove_members(draft, (key.member_id,), FENCING_CAUSES[key.kind], self._environment, now_ms)
            group.fencing.append(key)

    def begin_rebalance(self, group: Group, now_ms: int) -> bool:
        """Begin a new epoch though nothing has changed."""
        assert isinstance(group, ConsumerGroup)
        if group.writing is not None or group.is_empty:
            return False
        draft = Draft(group.state)
        draft.begin_epoch(group.state.metadata_hash, Trigger(Cause.METADATA_CHANGE))
        self._write(group, draft, now_ms)
        return True

    # ------------------------------------------------------------ topics and regular expressions

    def regexes_resolved(self, resolved: ResolvedRegexes, now_ms: int) -> None:
        """The host has matched a group's expressions.

        That of a group which is about to be of another kind is lost, as in Kafka; if the log refuses that, the next
        heartbeat asks again.
        """
        group = self._context.groups.get(resolved.question.group_id)
        if not isinstance(group, ConsumerGroup):
            return
        group.is_resolving = False
        if group.group_id in self._context.writings:
            return
        if group.writing is not None:
            group.resolved = resolved
            return
        draft = Draft(group.state)
        self._take_resolution(group, draft, resolved)
        self._write(group, draft, now_ms)

    def _take_resolution(self, group: ConsumerGroup, draft: Draft, resolved: ResolvedRegexes) -> None:
        if draft.downgrade is not None:
            return
        draft.mark()
        if take_resolution(draft, resolved, self._environment):
            group.is_topics_look_due = False


def _no_such_group(group_id: str) -> RefusedError:
    return RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")


def _leaving_member(state: ConsumerState, entry: LeavingMember) -> ConsumerMember | ErrorCode:
    """Return whom an entry of a LeaveGroup means."""
    try:
        if not entry.member_id and entry.group_instance_id is not None:
            return find_member(state, state.static_members.get(entry.group_instance_id, ""))
        if entry.group_instance_id is None:
            return find_member(state, entry.member_id)
        return find_static_member(state, entry.group_instance_id, entry.member_id)
    except RefusedError as error:
        return error.error_code
