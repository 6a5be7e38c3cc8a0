"""Handlers of consumer groups: heartbeats, joins and leaves of both protocols, timers, regular expressions, loads.

Sources: ``GroupMetadataManager`` (``consumerGroupLeave``, ``consumerGroupStaticMemberGroupLeave``,
``consumerGroupFenceMembers``) of Apache Kafka 4.4; KIP-848.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from groupcoord.core.events import Cause, Trigger
from groupcoord.core.groups.base.state import find_member, find_sender
from groupcoord.core.groups.classic.group import GroupMetadata, GroupState
from groupcoord.core.groups.classic.kind import ClassicGroups
from groupcoord.core.groups.classic.rebalance import WhenGroupWritten
from groupcoord.core.groups.consumer.classic_members import (
    check_join,
    heartbeat_error,
    identify_classic,
    join,
    sync_error,
    synced,
)
from groupcoord.core.groups.consumer.conversion import (
    WhenConsumerGroupConverted,
    can_downgrade,
    check_upgrade,
    downgrade,
    upgraded,
)
from groupcoord.core.groups.consumer.group import (
    ConsumerDraft,
    ConsumerGroup,
    ConsumerGroupEnvironment,
    ConsumerMember,
    ConsumerState,
)
from groupcoord.core.groups.consumer.heartbeat import (
    Step,
    handle_heartbeat,
    next_resolution_ms,
    take_resolution,
)
from groupcoord.core.groups.consumer.records import ConsumerGroupRegularExpressionRecord
from groupcoord.core.groups.conversion import ConvertibleGroups
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.host_queries import ResolvedRegexes, ResolveRegexes
from groupcoord.core.log.records import GroupTombstone
from groupcoord.core.messages import (
    JOIN_GROUP_MEMBER_EPOCH,
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResponse,
    DescribedConsumerGroup,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    Reply,
    SyncGroup,
    Token,
)
from groupcoord.core.messages.request import GroupRequest, RefusedError
from groupcoord.core.router.authorization import Principal
from groupcoord.core.timers import TimerKind
from groupcoord.errors import ErrorCode


def steady_until_ms(group: ConsumerGroup, environment: ConsumerGroupEnvironment) -> int | None:
    """Return the last moment before expressions are matched again; None during a query for them."""
    return None if group.is_resolving else next_resolution_ms(group.state, environment)


class ConsumerGroups(ConvertibleGroups[ConsumerGroup, ConsumerDraft]):
    """Handlers of consumer groups."""

    group_class = ConsumerGroup
    draft_class = ConsumerDraft
    converted_class = WhenConsumerGroupConverted
    heartbeat_request = ConsumerGroupHeartbeat
    response_class = ConsumerGroupHeartbeatResponse
    describe_request = ConsumerGroupDescribe
    described_class = DescribedConsumerGroup
    answer_class = ResolvedRegexes
    _environment: ConsumerGroupEnvironment
    steady_until_ms = staticmethod(steady_until_ms)

    def __init__(self, context: HandlerContext, environment: ConsumerGroupEnvironment, classic: ClassicGroups) -> None:
        super().__init__(context, environment, classic)
        self.rules = {
            ConsumerGroupHeartbeat: self._handle_heartbeat,
            JoinGroup: self._handle_join,
            LeaveGroup: self._handle_leave,
            ResolvedRegexes: self._take_resolution,
        }
        self.guest_handlers = {
            JoinGroup: self.join_as_guest,
            SyncGroup: self.sync_classic_member,
            Heartbeat: self.heartbeat_of_classic_member,
            LeaveGroup: self.leave,
        }

    # ------------------------------------------------------------ requests that may write

    def meet_no_group(self, request: ConsumerGroupHeartbeat, token: Token, now_ms: int) -> None:
        group = self._context.groups.get(request.group_id)
        if isinstance(group, GroupMetadata) and request.member_epoch == JOIN_GROUP_MEMBER_EPOCH:
            self._upgrade(group, request, token, now_ms)
        else:
            super().meet_no_group(request, token, now_ms)

    def join_members(self, group: ConsumerGroup, request: JoinGroup, token: Token, now_ms: int) -> None:
        self.take_or_wait(group, request, token, now_ms)

    def leave(self, request: LeaveGroup, token: Token, now_ms: int) -> None:
        self.take_or_wait(self._groups[request.group_id], request, token, now_ms)

    def remove_members(self, draft: ConsumerDraft, member_ids: Collection[str], cause: Cause, now_ms: int) -> None:
        """Write the removal of members, and the group's next epoch or its downgrade to a classic group."""
        state, topics = draft.state, self._known_topics
        draft.add_removals(member_ids, cause)
        trigger = Trigger(cause, next(iter(member_ids)))
        # Possible if the remaining members are all classic, and the policy allows a downgrade (KIP-848).
        if can_downgrade(state, member_ids, self._environment):
            downgrade(draft, self._environment, trigger, now_ms, gone=member_ids)
            return
        # Expressions that only these members used lose their topics.
        regexes = sorted({state.members[member_id].regex for member_id in member_ids} - {""})
        draft.write(*state.member_tombstones(*member_ids))
        state = draft.state
        draft.write(
            *(
                GroupTombstone(state.group_id, ConsumerGroupRegularExpressionRecord.key_of(regex))
                for regex in regexes
                if regex not in state.regex_subscribers
            )
        )
        # Always, even with the same hash: partitions may have become free.
        draft.begin_epoch_without_members(state.topics_hash(topics), trigger)

    def shares_write(self, draft: ConsumerDraft, request: GroupRequest[Any]) -> bool:
        # Both end the consumer group: the request waits for the classic one.
        is_its_end = draft.downgrade is not None or (isinstance(request, JoinGroup) and not draft.state.members)
        return not is_its_end and super().shares_write(draft, request)

    def _handle_heartbeat(
        self, group: ConsumerGroup, draft: ConsumerDraft, request: ConsumerGroupHeartbeat, now_ms: int
    ) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch < JOIN_GROUP_MEMBER_EPOCH:
            response: ConsumerGroupHeartbeatResponse = self.leave_by_heartbeat(draft, request, now_ms)
            return response
        # Only version 0 of the request may omit the id (KIP-1082).
        member_id = request.member_id or self._context.new_uuid()
        response, step = handle_heartbeat(group, draft, request, member_id, now_ms)
        self._follow_step(group, draft, step, request.principal, now_ms)
        return response

    def _handle_join(
        self, group: ConsumerGroup, draft: ConsumerDraft, request: JoinGroup, now_ms: int
    ) -> JoinGroupResponse:
        check_join(draft.state, request, self._environment)
        member_id = request.member_id
        if not member_id:
            member_id = self._context.new_uuid()
            # Nothing is stored for the id, unlike in a classic group (KIP-394).
            if request.group_instance_id is None and request.requires_known_member_id:
                return JoinGroupResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        state, environment = draft.state, self._environment
        # Replacing the last member of the consumer protocol by a classic one ends the group (KAFKA-17317).
        replaced = state.members.get(state.static_members.get(request.group_instance_id or "", ""))
        ends_group = (
            replaced is not None
            and not replaced.uses_classic_protocol
            and can_downgrade(state, (replaced.member_id,), environment, joining=1)
        )
        response, step = join(group, draft, request, member_id, now_ms, ends_group=ends_group)
        self._follow_step(group, draft, step, None, now_ms)
        if ends_group:
            is_behind = draft.state.assignment_epoch < draft.state.epoch
            trigger = Trigger(Cause.STATIC_REPLACE, member_id) if is_behind else None
            downgrade(draft, environment, trigger, now_ms, joiner_id=member_id)
        draft.joined.append(member_id)
        return response

    def _handle_leave(
        self, group: ConsumerGroup, draft: ConsumerDraft, request: LeaveGroup, now_ms: int
    ) -> LeaveGroupResponse:
        left, gone = [], []
        for entry in request.members:
            member = _leaving_member(draft.state, entry)
            if isinstance(member, ErrorCode):
                left.append(LeftMember(entry.member_id, entry.group_instance_id, member))
                continue
            left.append(LeftMember(entry.member_id, entry.group_instance_id, ErrorCode.NONE))
            # Two entries may name one member, by its id and by its instance.
            if member.member_id not in gone:
                gone.append(member.member_id)
        if gone:
            self.remove_members(draft, gone, Cause.LEAVE, now_ms)
        return LeaveGroupResponse(ErrorCode.NONE, tuple(left))

    def _follow_step(
        self, group: ConsumerGroup, draft: ConsumerDraft, step: Step, principal: Principal, now_ms: int
    ) -> None:
        if step.looked_at_topics:
            self.looked_at_topics(group)
        # At most one query for a group.
        if step.wants_resolution and not group.is_resolving:
            group.is_resolving = True
            self._context.effects.questions.append(self._query(draft.state, principal, now_ms))
        # A new member's session begins when it is durable.
        if step.member.metadata.member_id in group.state.members:
            self.start_session(group, step.member, now_ms)

    def _query(self, state: ConsumerState, principal: Principal, now_ms: int) -> ResolveRegexes:
        """Return the host query for a group's expressions."""
        regexes, version = tuple(sorted(state.regex_subscribers)), self._known_topics.version
        return ResolveRegexes(self._context.partition, state.group_id, regexes, principal, version, now_ms)

    # ------------------------------------------------------------ classic members, answered from durable state

    def sync_classic_member(self, request: SyncGroup, token: Token, now_ms: int) -> None:
        group, effects = self._groups[request.group_id], self._context.effects
        member = self._identified(group, request, token)
        if member is None:
            return
        error_code = sync_error(group.state, member, request)
        if error_code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.await_join(group, member, now_ms)
        if error_code is not ErrorCode.NONE:
            effects.reply(token, request.refused(error_code))
            return
        self._timers.cancel(group.timer(TimerKind.MEMBER_SYNC, member.member_id))
        self.start_session(group, member, now_ms)
        effects.reply(token, synced(member, self._environment))

    def heartbeat_of_classic_member(self, request: Heartbeat, token: Token, now_ms: int) -> None:
        group = self._groups[request.group_id]
        member = self._identified(group, request, token)
        if member is None:
            return
        error_code = heartbeat_error(group.state, member, request)
        # A member that has to rejoin is alive; one of another generation may be a zombie.
        if error_code is not ErrorCode.ILLEGAL_GENERATION:
            self.start_session(group, member, now_ms)
        if error_code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.await_join(group, member, now_ms)
        self._context.effects.reply(token, HeartbeatResponse(error_code))

    def _identified(self, group: ConsumerGroup, request: SyncGroup | Heartbeat, token: Token) -> ConsumerMember | None:
        try:
            return identify_classic(group.state, request.member_id, request.group_instance_id)
        except RefusedError as error:
            self._context.effects.reply(token, request.refused(error.error_code, error.message))
            return None

    # ------------------------------------------------------------ writes

    def write(self, group: ConsumerGroup, draft: ConsumerDraft, now_ms: int) -> None:
        if draft.downgrade is not None:
            written = WhenConsumerGroupConverted(group, draft.events, downgrade=draft.downgrade)
            self.begin_conversion(written, draft.records, draft.held)
        else:
            super().write(group, draft, now_ms)

    def adopt(self, group: ConsumerGroup, draft: ConsumerDraft, now_ms: int) -> None:
        super().adopt(group, draft, now_ms)
        if draft.joined:
            # Members that joined with the classic protocol have to sync next.
            for member_id in draft.joined:
                if (member := group.state.members.get(member_id)) is not None:
                    self._timers.cancel(group.timer(TimerKind.MEMBER_JOIN, member_id))
                    self.start_session(group, member, now_ms)
                    sync_timer = group.timer(TimerKind.MEMBER_SYNC, member_id)
                    self._timers.arm(sync_timer, now_ms + member.metadata.rebalance_timeout_ms)
            draft.joined = []

    # ------------------------------------------------------------ timers

    def follow_assignment(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        # Classic members revoke by rejoining, within the timeout of their join timer.
        if member.metadata.classic_member_metadata is None:
            super().follow_assignment(group, member, now_ms)

    def revive(self, group: ConsumerGroup, now_ms: int, *, uses_own_timeouts: bool = False) -> None:
        # A load uses the group's timeout for classic members, too; a conversion uses their own.
        start_session = self.start_session if uses_own_timeouts else super().start_session
        for member in group.state.members.values():
            start_session(group, member, now_ms)
            # Also for classic members, which have no revocation timer otherwise (``GroupMetadataManager.onLoaded``).
            super().follow_assignment(group, member, now_ms)

    def start_session(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        classic = member.metadata.classic_member_metadata
        timeout_ms = self._environment.settings_of(group.group_id).session_timeout_ms
        if classic is not None:
            # A classic member has chosen its session timeout itself.
            timeout_ms = classic.session_timeout_ms
        self._timers.arm(group.timer(TimerKind.MEMBER_SESSION, member.metadata.member_id), now_ms + timeout_ms)

    def await_join(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        timer = group.timer(TimerKind.MEMBER_JOIN, member.member_id)
        # Repeated heartbeats must not postpone the deadline for the rejoin.
        if timer.deadline_ms is None:
            self._timers.arm(timer, now_ms + member.metadata.rebalance_timeout_ms)

    # ------------------------------------------------------------ conversion

    def _upgrade(self, classic: GroupMetadata, request: ConsumerGroupHeartbeat, token: Token, now_ms: int) -> None:
        context, environment = self._context, self._environment
        member_id = request.member_id or context.new_uuid()
        group = ConsumerGroup(classic.group_id, context.partition, environment)
        draft = ConsumerDraft(group.state)
        try:
            # An append's outcome would decide which members the new group has.
            in_flight = [append.continuation for append in context.writer.in_flight]
            if any(isinstance(written, WhenGroupWritten) and written.concerns(classic) for written in in_flight):
                raise RefusedError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if not classic.is_empty:
                check_upgrade(classic, environment)
                # Members rejoin, and reach the consumer group. Kafka answers them even if the upgrade fails.
                context.effects.replies += classic.refuse_waiting(ErrorCode.REBALANCE_IN_PROGRESS)
                draft.write(*upgraded(classic, environment))
            draft.mark()
            # The upgraded members are the state that the join builds on.
            response, step = handle_heartbeat(group, draft, request, member_id, now_ms)
        except RefusedError as error:
            self.refuse(request, token, error)
            return
        query = self._query(draft.state, request.principal, now_ms) if step.wants_resolution else None
        written = WhenConsumerGroupConverted(classic, question=query, events=draft.events)
        self.begin_conversion(written, [*classic.tombstones(), *draft.records], (Reply(token, response),))

    def go_on_as_classic_group(self, written: WhenConsumerGroupConverted, group: GroupMetadata, now_ms: int) -> None:
        self._announce_members_of(group, now_ms)
        if group.state is GroupState.STABLE:
            self._context.observer.members_assigned(group, now_ms)
        if written.downgrade is not None:
            self._classic.go_on(group, written.downgrade.protocols, written.downgrade.trigger, now_ms)
        super().go_on_as_classic_group(written, group, now_ms)

    def go_on_as_modern_group(self, written: WhenConsumerGroupConverted, group: ConsumerGroup, now_ms: int) -> None:
        before, observer = written.group, self._context.observer
        assert isinstance(before, GroupMetadata)
        self._announce_members_of(before, now_ms)
        observer.announce(group.group_id, group.TYPE, written.events, now_ms)
        observer.assignments_changed(None, group.state, now_ms)
        observer.look_at_rebalance(group, now_ms)
        # Emitted only now: the answer needs a group that exists.
        if written.question is not None:
            group.is_resolving = True
            self._context.effects.questions.append(written.question)

    def _announce_members_of(self, group: GroupMetadata, now_ms: int) -> None:
        if group.members:
            # Observers know members by joins and loads only.
            self._context.observer.group_loaded(group.group_id, group.generation_id, len(group.members), now_ms)

    # ------------------------------------------------------------ topics and regular expressions

    def found_out(self, resolved: ResolvedRegexes, now_ms: int) -> None:
        group = self._context.groups.get(resolved.question.group_id)
        # The group may have ended or become a classic one during the query.
        if not isinstance(group, ConsumerGroup):
            return
        group.is_resolving = False
        if group.group_id in self._context.writings:
            # Lost during a conversion, as in Kafka; if that fails, the next heartbeat queries again.
            return
        self.answered(group, resolved, now_ms)

    def _take_resolution(
        self, group: ConsumerGroup, draft: ConsumerDraft, answer: ResolvedRegexes, now_ms: int
    ) -> None:
        # An expired timer earlier in this draft may have ended the consumer group.
        if draft.downgrade is None and take_resolution(draft, answer, self._environment):
            group.is_topics_look_due = False

    # ------------------------------------------------------------ groups from the log

    def make_of_records(self, group_id: str) -> ConsumerGroup:
        group: ConsumerGroup = super().make_of_records(group_id)
        versions = [record.version for record in group.state.resolved.values()]
        topics = self._environment.topics
        # The versions of this process continue those in the log, so that later changes of topics are newer.
        topics.version = max(topics.version, *versions, 0)
        return group

    def convert(self, group_id: str, now_ms: int) -> ConsumerGroup:
        group = self.make_of_records(group_id)
        self.revive(group, now_ms, uses_own_timeouts=True)
        return group


def _leaving_member(state: ConsumerState, entry: LeavingMember) -> ConsumerMember | ErrorCode:
    try:
        # Administrators name a static member by its instance id alone.
        if not entry.member_id and entry.group_instance_id is not None:
            return find_member(state, state.static_members.get(entry.group_instance_id, ""))
        return find_sender(state, entry.member_id, entry.group_instance_id)
    except RefusedError as error:
        return error.error_code
