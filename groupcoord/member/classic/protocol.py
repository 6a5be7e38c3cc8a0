"""Classic group protocol of a member: heartbeats, rebalances, leaving."""

from __future__ import annotations

from collections.abc import Sequence

from groupcoord.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    Response,
    SyncGroup,
)
from groupcoord.errors import ErrorCode
from groupcoord.member.assignors import Assignor, RebalanceProtocol
from groupcoord.member.classic.heartbeats import Heartbeats, MembershipManager
from groupcoord.member.classic.rebalance import REASON_LENGTH_MAX, Rebalance
from groupcoord.member.coordinator_link import NEVER_MS
from groupcoord.member.membership import MemberState
from groupcoord.member.outputs import ComputedAssignment, LeftGroup, Send
from groupcoord.member.protocol import CloseOperation, GroupProtocol, Parts

_POLL_TIMEOUT_REASON = "consumer poll timeout has expired."


class ClassicProtocol(GroupProtocol):
    """``group.protocol=classic`` as in the Java consumer."""

    __slots__ = ("_has_assignors", "_heartbeats", "_membership", "_parts", "_rebalance")

    def __init__(
        self,
        parts: Parts,
        membership: MembershipManager,
        assignors: Sequence[Assignor],
        protocol: RebalanceProtocol,
    ) -> None:
        self._parts = parts
        self._membership = membership
        self._has_assignors = bool(assignors)
        self._heartbeats = Heartbeats(parts.config, parts.link, membership, parts.backoff)
        by_name = {assignor.name: assignor for assignor in assignors}
        self._rebalance = Rebalance(parts, membership, self._heartbeats, by_name, protocol)

    # ------------------------------------------------------------ properties

    @property
    def member_id(self) -> str:
        return self._membership.generation.member_id

    @property
    def generation_id(self) -> int:
        return self._membership.generation.generation_id

    @property
    def is_leader(self) -> bool:
        return self._rebalance.is_leader

    @property
    def can_subscribe(self) -> bool:
        return self._has_assignors

    @property
    def heartbeat_interval_ms(self) -> int:
        return self._parts.config.heartbeat_interval_ms

    @property
    def is_busy(self) -> bool:
        return self._rebalance.is_needed

    # ------------------------------------------------------------ the application's polls

    def polled(self, until_ms: int) -> None:
        self._heartbeats.polled(until_ms)

    def progress(self, now_ms: int) -> bool:
        return self._rebalance.progress(now_ms)

    def progress_deadline_ms(self) -> int:
        return self._rebalance.deadline_ms() if self._rebalance.is_needed else NEVER_MS

    def request_rejoin(self, reason: str) -> None:
        self._membership.request_rejoin(reason)

    # ------------------------------------------------------------ responses

    def receive(self, send: Send, response: Response, now_ms: int) -> None:
        request = send.request
        if isinstance(request, Heartbeat):
            self._heartbeats.receive(send, response, now_ms)
        elif isinstance(request, JoinGroup):
            self._rebalance.receive_join(send, response, now_ms)
        elif isinstance(request, SyncGroup):
            self._rebalance.receive_sync(send, response, now_ms)

    def failed(self, send: Send, error_code: ErrorCode, now_ms: int) -> None:
        if isinstance(send.request, Heartbeat):
            self._heartbeats.failed(now_ms)
        elif isinstance(send.request, JoinGroup | SyncGroup):
            self._rebalance.request_failed(send, error_code)

    def answered(self, send: Send, response: Response, now_ms: int) -> bool:
        if not isinstance(send.request, Heartbeat) or not isinstance(response, HeartbeatResponse):
            return False
        if response.error_code is not ErrorCode.NONE:
            return False
        self._heartbeats.answered(now_ms)
        return True

    def coordinator_found(self, now_ms: int) -> None:
        """Restart the session, so that the new coordinator has the full time to respond."""
        self._heartbeats.restart_session(now_ms)

    def lookup_failed(self, error_code: ErrorCode, now_ms: int, *, may_repeat: bool) -> None:
        self._parts.commits.lookup_failed(error_code)
        if not may_repeat:
            self._membership.fail("FindCoordinator", error_code, error_code.name)

    def metadata_updated(self, now_ms: int) -> None:
        self._parts.topic_metadata.take_snapshot(self._parts.subscription.watched_topics())
        self._rebalance.lead(now_ms)

    def assignment_computed(self, computed: ComputedAssignment, now_ms: int) -> None:
        self._rebalance.lead(now_ms, computed)

    # ------------------------------------------------------------ time

    def beat_on(self, now_ms: int) -> bool:
        return self._heartbeats.beat_on(now_ms)

    def tick(self, now_ms: int) -> None:
        if self._heartbeats.tick(now_ms):
            self.leave(CloseOperation.DEFAULT, _POLL_TIMEOUT_REASON, now_ms)

    def settle(self, now_ms: int) -> None:
        if self._heartbeats.is_enabled and self._parts.link.node is None:
            self._heartbeats.tick(now_ms)

    def deadline_ms(self) -> int:
        return self._heartbeats.deadline_ms()

    # ------------------------------------------------------------ leaving

    def drop_all(self) -> None:
        self._rebalance.drop_all()

    def leave(self, operation: CloseOperation, reason: str, now_ms: int) -> None:
        membership, config, link = self._membership, self._parts.config, self._parts.link
        if membership.state in (MemberState.UNJOINED, MemberState.CLOSED):
            return
        member_id = membership.generation.member_id
        wants = operation is CloseOperation.LEAVE_GROUP or (
            operation is CloseOperation.DEFAULT and config.group_instance_id is None
        )
        is_sent = wants and bool(member_id) and link.node is not None
        if is_sent:
            leaving = LeavingMember(member_id, reason=reason[:REASON_LENGTH_MAX])
            link.send(LeaveGroup(config.group_id or "", (leaving,)), now_ms)
        self._parts.outputs.append(LeftGroup(reason, is_sent))
        membership.forget("consumer pro-actively leaving the group")

    def begin_closing(self) -> None:
        self._heartbeats.is_enabled = False

    def recover(self) -> None:
        self._membership.reset("the application goes on after a failure", forget_member_id=False)
        self._membership.move(MemberState.UNJOINED)
        self._rebalance.recover()
