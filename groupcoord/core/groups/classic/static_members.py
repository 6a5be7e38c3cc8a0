"""A static member comes back under its instance id: it takes its old place, usually without a rebalance (KIP-345)."""

from __future__ import annotations

from groupcoord.core.events import Cause, Trigger
from groupcoord.core.groups.classic.continuations import FormerMember, WhenReplaced
from groupcoord.core.groups.classic.group import GroupMetadata
from groupcoord.core.groups.classic.member import MemberMetadata, Parked
from groupcoord.core.groups.classic.rebalance import Rebalance
from groupcoord.core.groups.classic.states import GroupState
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.messages import JoinGroup, JoinGroupResponse, SyncGroupResponse
from groupcoord.core.replies import Token
from groupcoord.core.timers import Timer, TimerKey, TimerKind
from groupcoord.errors import ErrorCode


class StaticMembers:
    """Replaces static members, and puts the old id back when the new one could not be made durable."""

    __slots__ = ("_context", "_effects", "_rebalance")

    def __init__(self, context: HandlerContext, rebalance: Rebalance) -> None:
        self._context = context
        self._effects = context.effects
        self._rebalance = rebalance

    def replace(self, group: GroupMetadata, member_id: str, request: JoinGroup, token: Token, now_ms: int) -> None:
        """Give the member with the request's instance id a new member id, and let its join wait.

        Whoever still waits under the old id is fenced. In a Stable group whose chosen protocol stays, the new id is
        made durable before it is answered and nobody rebalances.
        """
        assert request.group_instance_id is not None
        member = group.members[group.static_members[request.group_instance_id]]
        former = FormerMember(
            member.member_id,
            group.leader or "",
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
        )
        self._rename(group, member, member_id, now_ms)
        self._context.observer.member_replaced(group, former.member_id, member, now_ms)
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        group.park_join(member, Parked(token, request.supports_skip_assignment))
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            assignments = {key: other.assignment for key, other in group.members.items()}
            written = WhenReplaced(group, former, member_id)
            self._context.writer.begin([group.to_record(assignments)], written)
        else:
            self._rebalance.start_or_complete(group, Trigger(Cause.STATIC_REPLACE, member_id), now_ms)

    def _rename(self, group: GroupMetadata, member: MemberMetadata, member_id: str, now_ms: int) -> None:
        """Change a member's id. Its session starts anew with the time-out that it had, as in Kafka.

        To Kafka it is another member, none of those whose first join is awaited: no session ends while its join waits.
        """
        old_member_id = member.member_id
        join = group.take_join(member)
        if join is not None:
            self._effects.reply(join.token, JoinGroupResponse(ErrorCode.FENCED_INSTANCE_ID, old_member_id))
        if member.parked_sync is not None:
            self._effects.reply(member.parked_sync.token, SyncGroupResponse(ErrorCode.FENCED_INSTANCE_ID))
            member.parked_sync = None
        group.rename(member, member_id)
        member.is_new = False
        self._context.timers.cancel(member.session_timer)
        member.session_timer = Timer(TimerKey(TimerKind.SESSION, self._context.partition, group.group_id, member_id))
        self._rebalance.renew_session(member, now_ms)

    def on_durable(self, written: WhenReplaced, now_ms: int) -> None:
        """Answer the returning member. If the group left Stable meanwhile, the rebalance under way answers it."""
        group = written.group
        member = group.members.get(written.new_member_id)
        if group.state is not GroupState.STABLE or member is None:
            return
        join = group.take_join(member)
        if join is None:
            # Its join was told that the log takes too long. If it stands here all the same, a later replacement has
            # taken too long as well and has put this id back.
            return
        if not join.supports_skip_assignment:
            # Older clients would assign again if they believed that they lead: they are told the leader's old id.
            response = self._response(group, member, written.former.leader)
        elif group.leader == member.member_id:
            response = self._response(group, member, member.member_id, lists_members=True)
        else:
            response = self._response(group, member, group.leader or "")
        self._effects.reply(join.token, response)

    def _response(
        self, group: GroupMetadata, member: MemberMetadata, leader: str, *, lists_members: bool = False
    ) -> JoinGroupResponse:
        return JoinGroupResponse(
            ErrorCode.NONE,
            member.member_id,
            group.generation_id,
            group.protocol_type,
            group.protocol_name,
            leader,
            skip_assignment=lists_members,
            members=group.joined_members() if lists_members else (),
        )

    def on_failure(self, written: WhenReplaced, error_code: ErrorCode, now_ms: int) -> None:
        """Put the old id, its protocols and its time-outs back, and refuse the join that waits for the new one."""
        group = written.group
        member = group.members.get(written.new_member_id)
        join = None if member is None else group.take_join(member)
        if member is None or join is None:
            return
        former = written.former
        group.update(member, former.protocols, former.rebalance_timeout_ms, former.session_timeout_ms)
        self._rename(group, member, former.member_id, now_ms)
        self._context.observer.member_replaced(group, written.new_member_id, member, now_ms)
        self._effects.reply(
            join.token,
            JoinGroupResponse(
                error_code,
                generation_id=group.generation_id,
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                leader=written.former.leader,
            ),
        )

    def on_refusal(self, written: WhenReplaced, error_code: ErrorCode, now_ms: int) -> None:
        """As :meth:`on_failure`; if the member was replaced again and that fails, too, it is as before both.

        Otherwise it would have an id that the log has never had.
        """
        self.on_failure(written, error_code, now_ms)
        for append in self._context.writer.in_flight:
            later = append.continuation
            if (
                isinstance(later, WhenReplaced)
                and later.group is written.group
                and later.former.member_id == written.new_member_id
            ):
                later.former = written.former
