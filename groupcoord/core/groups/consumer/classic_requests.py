"""Syncs and heartbeats of members of consumer groups that still use the classic protocol: they go by what is durable.

Joins and leaves of such members write: they wait their turn in
:class:`~groupcoord.core.groups.consumer.membership.ConsumerMembership`, as heartbeats of the consumer protocol do.
"""

from __future__ import annotations

from groupcoord.core.groups.base.refusal import RefusedError
from groupcoord.core.groups.consumer.classic_members import identify, judge_heartbeat, judge_sync, synced
from groupcoord.core.groups.consumer.environment import ConsumerGroupEnvironment
from groupcoord.core.groups.consumer.group import ConsumerGroup, consumer_groups
from groupcoord.core.groups.consumer.member_timers import ConsumerTimers
from groupcoord.core.groups.consumer.state import ConsumerMember
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.messages import Heartbeat, HeartbeatResponse, SyncGroup
from groupcoord.core.replies import Token
from groupcoord.errors import ErrorCode


class ClassicRequests:
    """Answers classic members of the consumer groups of one log partition."""

    __slots__ = ("_context", "_environment", "_groups", "_timers")

    def __init__(self, context: HandlerContext, environment: ConsumerGroupEnvironment, timers: ConsumerTimers) -> None:
        self._context = context
        self._groups = consumer_groups(context.groups)
        self._environment = environment
        self._timers = timers

    def sync(self, request: SyncGroup, token: Token, now_ms: int) -> None:
        """Take a sync: a member fetches its assignment."""
        group, effects = self._groups[request.group_id], self._context.effects
        member = self._identified(group, request, token)
        if member is None:
            return
        judgement = judge_sync(group.state, member, request)
        if judgement.must_rejoin:
            self._timers.await_join(group, member, now_ms)
        if judgement.error_code is not ErrorCode.NONE:
            effects.reply(token, request.refused(judgement.error_code))
            return
        self._timers.synced(group, member, now_ms)
        effects.reply(token, synced(member, self._environment))

    def heartbeat(self, request: Heartbeat, token: Token, now_ms: int) -> None:
        """Take a heartbeat."""
        group = self._groups[request.group_id]
        member = self._identified(group, request, token)
        if member is None:
            return
        judgement = judge_heartbeat(group.state, member, request)
        if judgement.error_code is not ErrorCode.ILLEGAL_GENERATION:
            self._timers.start_session(group, member, now_ms)
        if judgement.must_rejoin:
            self._timers.await_join(group, member, now_ms)
        self._context.effects.reply(token, HeartbeatResponse(judgement.error_code))

    def _identified(self, group: ConsumerGroup, request: SyncGroup | Heartbeat, token: Token) -> ConsumerMember | None:
        """Return whose request it is; None if nobody's, and it is refused."""
        try:
            return identify(group.state, request.member_id, request.group_instance_id)
        except RefusedError as error:
            self._context.effects.reply(token, request.refused(error.error_code, error.message))
            return None
