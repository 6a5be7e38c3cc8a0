"""Requests and timers of groups whose state is in the log: one write in flight for each group.

An append builds only on what is durable, since the log may refuse it and take a later one. Requests that may have to
write wait for the write in flight, and then share the next one. Requests that only read use the durable state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Generic, TypeVar, cast

from attrs import astuple, define

from groupcoord.core.events import Cause, Trigger
from groupcoord.core.groups.base.environment import GroupEnvironment, RefusedError
from groupcoord.core.groups.base.group import GroupT, MemberTimers, SteadyHeartbeat
from groupcoord.core.groups.base.state import Draft
from groupcoord.core.groups.group import Group, why_not_found
from groupcoord.core.groups.pending_groups import Creation
from groupcoord.core.handler_context import Handler, HandlerContext
from groupcoord.core.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    Heartbeat,
    HeartbeatResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeftMember,
    Response,
    SyncGroup,
    SyncGroupResponse,
)
from groupcoord.core.messages.request import GroupRequest
from groupcoord.core.outputs import Continuation
from groupcoord.core.replies import Reply, Token, Waiting
from groupcoord.core.sizes import says_more
from groupcoord.core.timers import TimerKey
from groupcoord.errors import ErrorCode

RECORDS_PER_WRITE_MAX = 1_000
"""Requests that waited share a write until it has so many records."""

STEADY_VALUES_MAX = 10_000
"""A heartbeat that says more than this is not remembered."""

DraftT = TypeVar("DraftT", bound=Draft[Any])


@define(eq=False)
class WhenDrafted(Continuation):
    """What was drafted for a group becomes its state. Each kind has a class of it."""

    group: Any

    def concerns(self, group: Group) -> bool:
        """Tell whether it is this group's."""
        return self.group is group


class ModernMembership(ABC, Generic[GroupT, DraftT]):
    """Handles heartbeats and other requests that may write, of the groups of one kind of one log partition.

    A kind names the classes of its groups, drafts and continuations, that of its heartbeats, what a
    request is answered that is refused, and why a member is gone for whom a timer of each kind has fired. It gives by
    request a function that judges it (:attr:`judges`), and overrides what is its own: :meth:`remove_members`,
    :meth:`steady_until_ms`, and as far as it has more than that, :meth:`meet_no_group`, :meth:`take_answer`,
    :meth:`adopt`.

    Attributes:
        judges: by request, who judges it on top of a draft, and returns the answer.
    """

    GROUP: ClassVar[type[Any]]
    DRAFT: ClassVar[type[Any]]
    WHEN_DRAFTED: ClassVar[type[WhenDrafted]]
    HEARTBEAT: ClassVar[type[Any]]

    def __init__(
        self,
        context: HandlerContext,
        creation: Creation,
        environment: GroupEnvironment[Any, Any],
        timers: MemberTimers[GroupT, Any],
    ) -> None:
        self._context = context
        self._groups: dict[str, Any] = context.groups
        self._creation = creation
        self._known_topics = environment.topics
        self._settings_of = environment.settings_of
        self._environment = environment
        self._timers = timers
        self.judges: dict[type, Callable[[GroupT, DraftT, Any, int], Response]] = {}

    # ------------------------------------------------------------ what is a kind's own

    @abstractmethod
    def remove_members(self, draft: DraftT, member_ids: Collection[str], cause: Cause, now_ms: int) -> None:
        """Write that members are gone, and what follows from it for the group."""

    @abstractmethod
    def steady_until_ms(self, group: GroupT) -> int | None:
        """Return until when a heartbeat that has just changed nothing will change nothing.

        None if that is not known: then it is not remembered. What others write, changes of topics that members
        subscribe to, new topics, and changes of settings end it in any case.
        """

    @abstractmethod
    def meet_no_group(self, request: Any, token: Token, now_ms: int) -> None:
        """Take a heartbeat that can't go on in a group of this kind: there is none, or one of another kind."""

    def take_answer(self, group: GroupT, draft: DraftT, answer: Any, now_ms: int) -> None:
        """Write what follows from what the host has found out, for kinds that ask it something."""

    def shares_write(self, draft: DraftT, request: GroupRequest[Any]) -> bool:
        """Tell whether a request that has waited may be judged on top of a draft."""
        return len(draft.records) < RECORDS_PER_WRITE_MAX

    def adopt(self, group: GroupT, draft: DraftT, now_ms: int) -> None:
        """What was drafted is durable, and the group's state: let timers follow."""
        for record in draft.records:
            self._timers.follow(group, record, now_ms)

    def hold(self, draft: DraftT, token: Token, response: Response) -> None:
        """Let an answer wait for what was drafted with it."""
        draft.held.append(Reply(token, response))

    def announce(self, draft: DraftT, now_ms: int) -> None:
        """Tell observers what was drafted, which is durable: before and after can be compared for the last time."""
        self._context.observer.announce(draft.state.group_id, self.GROUP.TYPE, draft.events, now_ms)

    # ------------------------------------------------------------ requests that may write

    def beat_again(self, request: Any, token: Token, now_ms: int) -> bool:
        """Answer a heartbeat that is like its member's last one, which changed nothing, if nothing has changed since.

        It is the request that a coordinator sees most, so it is asked for before anything else is looked at: what is
        like a heartbeat that was taken has the right form, too.

        Returns:
            False if it isn't, and nothing was done: take it with :meth:`heartbeat`.
        """
        context = self._context
        group: Any = self._groups.get(request.group_id)
        if type(group) is not self.GROUP or (context.writings and request.group_id in context.writings):
            return False
        steady = group.steady.get(request.member_id)
        if (
            steady is None
            or (request is not steady.request and request != steady.request)
            or group.writes != steady.writes
            or (group.writing is not None and request.member_id not in group.writing.state.members)
            or group.is_topics_look_due
            or now_ms > steady.until_ms
            or self._known_topics.version != steady.topics_version
            or self._settings_of(request.group_id) != steady.settings
        ):
            return False
        context.timers.arm(steady.session_timer, now_ms + steady.session_timeout_ms)
        context.effects.reply(token, steady.response)
        return True

    def heartbeat(self, request: Any, token: Token, now_ms: int) -> None:
        """Take a heartbeat: answer it, or let its answer wait for the log."""
        group: Any = self._groups.get(request.group_id)
        if type(group) is self.GROUP:
            self.take_or_wait(group, request, token, now_ms)
        elif group is None and request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
            made = self.GROUP(request.group_id, self._context.partition, self._environment)
            self.take_or_wait(made, request, token, now_ms)
        else:
            self.meet_no_group(request, token, now_ms)

    def take_or_wait(self, group: GroupT, request: GroupRequest[Any], token: Token, now_ms: int) -> None:
        """Judge a request now, or as soon as the group's write in flight has its answer."""
        if group.writing is not None:
            self._renew_waiting_session(group, request, now_ms)
            group.waiting.append(Waiting(request, token))
            return
        draft = self.DRAFT(group.state)
        self._take(group, draft, request, token, now_ms)
        self.write(group, draft, now_ms)

    def _take(self, group: GroupT, draft: DraftT, request: GroupRequest[Any], token: Token, now_ms: int) -> None:
        """Judge one request on top of what is drafted, and answer it now or with the draft."""
        draft.mark()
        try:
            response = self.judges[type(request)](group, draft, request, now_ms)
        except RefusedError as error:
            draft.roll_back()
            self.refuse(request, token, error)
            return
        if draft.records:
            self.hold(draft, token, response)
            return
        self.adopt(group, draft, now_ms)
        self._context.effects.reply(token, response)
        if type(request) is self.HEARTBEAT:
            self._note_steady(group, request, response)

    def _note_steady(self, group: GroupT, request: Any, response: Any) -> None:
        """Remember a heartbeat that changed nothing, unless time alone makes the next one like it change something."""
        state = group.state
        if request.member_epoch <= JOIN_GROUP_MEMBER_EPOCH or state.assignment_epoch < state.epoch:
            return
        until_ms = self.steady_until_ms(group)
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
            group.timer(group.SESSION, request.member_id),
        )

    def refuse_without_group(self, request: Any, token: Token) -> None:
        """Tell a client that there is no group of this kind."""
        group_id = request.group_id
        group = self._context.groups.get(group_id)
        message = why_not_found(group, group_id, self.GROUP.TYPE)
        if group is None and isinstance(request, self.HEARTBEAT):
            message = f"{self.GROUP.TYPE.capitalize()} group {group_id} not found."
        self.refuse(request, token, RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, message))

    def refuse(self, request: GroupRequest[Any], token: Token, error: RefusedError) -> None:
        """Tell a client that its request can't be granted."""
        self._context.effects.reply(token, request.refused(error.error_code, error.message))

    # ------------------------------------------------------------ writes

    def write(self, group: GroupT, draft: DraftT, now_ms: int) -> None:
        """Let the log have what was drafted, if that is anything."""
        if not draft.records:
            return
        if group.group_id not in self._context.groups:
            self._creation.add(cast(Group, group), now_ms)
            self._context.has_modern_groups = True
        group.writing = draft
        self._context.writer.begin(draft.records, self.WHEN_DRAFTED(group), draft.held)

    def on_durable(self, written: WhenDrafted, now_ms: int) -> None:
        """What was drafted is a fact."""
        group: GroupT = written.group
        draft, group.writing = cast(DraftT, group.writing), None
        self.announce(draft, now_ms)
        draft.state.settle()  # from here on nobody knows any more what was before
        group.state = draft.state
        group.writes += 1
        group.fencing.clear()
        self._context.observer.look_at_rebalance(group, now_ms)
        self.adopt(group, draft, now_ms)
        self._go_on(group, now_ms)

    def on_failure(self, written: WhenDrafted, error_code: ErrorCode, now_ms: int) -> None:
        """What was drafted never was."""
        group: GroupT = written.group
        group.writing = None
        group.is_topics_look_due = True
        self._timers.retry_fencing(group, now_ms)
        self._go_on(group, now_ms)

    def on_overdue(self, written: WhenDrafted, error_code: ErrorCode, now_ms: int) -> None:
        """The log takes too long: whoever waits for its next word is told. The write stays until that comes."""
        waiting, written.group.waiting = written.group.waiting, []
        for request, token in waiting:
            self.refuse(request, token, RefusedError(error_code))

    def _go_on(self, group: GroupT, now_ms: int) -> None:
        """Handle what came in the meantime: as many as share a write, the others after it."""
        if not (group.waiting or group.overdue or group.answers):
            return
        overdue, group.overdue = group.overdue, []
        answers, group.answers = group.answers, []
        waiting, group.waiting = group.waiting, []
        if self._groups.get(group.group_id) is not group:
            for request, token in waiting:  # the group never was: the first of them may make another, of any kind
                self._context.handle(request, token, now_ms)
            return
        draft = self.DRAFT(group.state)
        for key in overdue:
            self.fence(group, draft, key, now_ms)
        for answer in answers:
            draft.mark()
            self.take_answer(group, draft, answer, now_ms)
        for position, (request, token) in enumerate(waiting):
            if not self.shares_write(draft, request):
                group.waiting = waiting[position:]
                break
            self._take(group, draft, request, token, now_ms)
        self.write(group, draft, now_ms)
        while group.waiting and group.writing is None:  # who shares no write with the others, if they wrote nothing
            request, token = group.waiting.pop(0)
            self._context.handle(request, token, now_ms)

    def answered(self, group: GroupT, answer: Any, now_ms: int) -> None:
        """The host has found out something for a group, which waits for its write in flight."""
        if group.writing is not None:
            group.answers.append(answer)
            return
        draft = self.DRAFT(group.state)
        self.take_answer(group, draft, answer, now_ms)
        self.write(group, draft, now_ms)

    # ------------------------------------------------------------ timers

    def _renew_waiting_session(self, group: GroupT, request: Any, now_ms: int) -> None:
        """A member whose heartbeat has to wait for a write is alive."""
        if isinstance(request, self.HEARTBEAT):
            member = group.state.members.get(request.member_id)
            if member is not None and member.member_epoch == request.member_epoch:
                self._timers.start_session(group, member, now_ms)

    def on_timer(self, key: TimerKey, now_ms: int) -> None:
        """A member was silent for too long, or has not done in time what it had to."""
        group = self._groups.get(key.group_id)
        if group is None or type(group) is not self.GROUP:
            return
        if group.writing is not None:
            group.overdue.append(key)
            return
        draft = self.DRAFT(group.state)
        self.fence(group, draft, key, now_ms)
        self.write(group, draft, now_ms)

    def fence(self, group: GroupT, draft: DraftT, key: TimerKey, now_ms: int) -> None:
        """Remove the member whose timer has fired, unless the timer was set again or the member has moved on."""
        if group.timer(key.kind, key.member_id).deadline_ms is not None:
            return
        member = draft.state.members.get(key.member_id)
        if member is None:
            group.fencing.append(key)  # another of its timers removes it; both fire again if the log refuses that
            return
        has_moved_on = member.member_epoch != group.revoking_epochs.get(key.member_id)
        if key.kind is not group.REVOCATION or not has_moved_on:
            assert key.kind.cause is not None
            self.remove_members(draft, (key.member_id,), key.kind.cause, now_ms)
            group.fencing.append(key)

    def begin_rebalance(self, group: Any, now_ms: int) -> bool:
        """Begin a new epoch though nothing has changed."""
        if group.writing is not None or group.is_empty:
            return False
        draft = self.DRAFT(group.state)
        draft.begin_epoch(group.state.metadata_hash, Trigger(Cause.METADATA_CHANGE))
        self.write(group, draft, now_ms)
        return True


class Strangers:
    """Tells members of the classic protocol that nobody knows them. JoinGroup is for each kind to judge.

    Attributes:
        handlers: by request, who takes it.
    """

    def __init__(self, context: HandlerContext) -> None:
        self._effects = context.effects
        self.handlers: dict[type, Handler] = {
            Heartbeat: self._heartbeat,
            SyncGroup: self._sync,
            LeaveGroup: self._leave,
        }

    def _heartbeat(self, request: Heartbeat, token: Token, now_ms: int) -> None:
        self._effects.reply(token, HeartbeatResponse(ErrorCode.UNKNOWN_MEMBER_ID))

    def _sync(self, request: SyncGroup, token: Token, now_ms: int) -> None:
        self._effects.reply(token, SyncGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID))

    def _leave(self, request: LeaveGroup, token: Token, now_ms: int) -> None:
        left = tuple(
            LeftMember(entry.member_id, entry.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
            for entry in request.members
        )
        self._effects.reply(token, LeaveGroupResponse(ErrorCode.NONE, left))
