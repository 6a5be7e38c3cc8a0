"""Sets the parts of a member going, in the right order, after each input; the last of it is closing."""

from __future__ import annotations

from enum import Enum

from attrs import define

from groupcoord.core.messages import (
    FindCoordinator,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetFetch,
    Response,
    SyncGroup,
)
from groupcoord.errors import ErrorCode
from groupcoord.member.commits import Commit, CommitKind, Commits
from groupcoord.member.config import MemberConfig
from groupcoord.member.fetches import Fetches
from groupcoord.member.heartbeats import Heartbeats
from groupcoord.member.leading import TopicMetadata
from groupcoord.member.link import CoordinatorLink
from groupcoord.member.membership import MembershipManager, MemberState
from groupcoord.member.outputs import Closed, LeftGroup, ListenerGate, Output, Send
from groupcoord.member.rebalance import REASON_LENGTH_MAX, Rebalance
from groupcoord.member.subscription import SubscriptionKind, SubscriptionState
from groupcoord.member.timing import NEVER_MS


class CloseOperation(Enum):
    """What closing a member means for its membership (KIP-1092)."""

    DEFAULT = "default"
    """A dynamic member leaves; a static one stays until its session's time is over."""
    LEAVE_GROUP = "leave_group"
    REMAIN_IN_GROUP = "remain_in_group"


class ClosingStep(Enum):
    """What closing waits for."""

    COMMITS = "the last automatic commit, and commits that wait for the coordinator"
    LISTENER = "the application's listener"
    ANSWERS = "answers to what was sent"


@define(eq=False)
class Closing:
    """How far closing has come."""

    deadline_ms: int
    operation: CloseOperation
    commit: Commit | None
    step: ClosingStep = ClosingStep.COMMITS


_POLL_TIMEOUT_REASON = "consumer poll timeout has expired."
_UNSUBSCRIBE_REASON = "the consumer unsubscribed from all topics"
_CLOSE_REASON = "the consumer is being closed"


class Dispatcher:
    """Hands inputs to the parts, and lets those go on that can.

    Attributes:
        closing: how far closing has come; None before.
        is_unsubscribing: the listener is told that all is revoked; then the member leaves.
        poll_until_ms: the application is in its poll until then.
        deadline_ms: when there is something to do without any input.
    """

    __slots__ = (
        "_commits",
        "_config",
        "_fetches",
        "_gate",
        "_heartbeats",
        "_is_quiet",
        "_link",
        "_membership",
        "_others_ms",
        "_outputs",
        "_poll_due_ms",
        "_rebalance",
        "_subscription",
        "_topic_metadata",
        "closing",
        "deadline_ms",
        "is_unsubscribing",
        "poll_until_ms",
    )

    def __init__(
        self,
        config: MemberConfig,
        *,
        link: CoordinatorLink,
        membership: MembershipManager,
        subscription: SubscriptionState,
        commits: Commits,
        fetches: Fetches,
        heartbeats: Heartbeats,
        rebalance: Rebalance,
        topic_metadata: TopicMetadata,
        gate: ListenerGate,
        outputs: list[Output],
    ) -> None:
        self._config = config
        self._link = link
        self._membership = membership
        self._subscription = subscription
        self._commits = commits
        self._fetches = fetches
        self._heartbeats = heartbeats
        self._rebalance = rebalance
        self._topic_metadata = topic_metadata
        self._gate = gate
        self._outputs = outputs
        self.closing: Closing | None = None
        self.is_unsubscribing = False
        self.poll_until_ms = 0
        self.deadline_ms = NEVER_MS
        self._poll_due_ms = NEVER_MS  # when the application's poll has something to do
        self._others_ms = NEVER_MS  # the deadline, apart from heartbeats and their answers
        self._is_quiet = False  # in the group, with nothing to do but to beat and to commit now and then

    # ------------------------------------------------------------ answers

    def receive(self, send: Send, response: Response, now_ms: int) -> None:
        """Take the answer to a request."""
        request = send.request
        if (
            self._is_quiet
            and isinstance(request, Heartbeat)
            and isinstance(response, HeartbeatResponse)
            and response.error_code is ErrorCode.NONE
        ):
            self._heartbeats.answered(now_ms)
            self._look_for_heartbeats()
        else:
            self._hand_over(send, response, now_ms)
            self.settle(now_ms)

    def _hand_over(self, send: Send, response: Response, now_ms: int) -> None:
        request = send.request
        if isinstance(request, Heartbeat):
            self._heartbeats.receive(send, response, now_ms)
        elif isinstance(request, OffsetCommit):
            self._commits.receive(send, response, now_ms)
        elif isinstance(request, OffsetFetch):
            self._fetches.receive(send, response, now_ms)
        elif isinstance(request, JoinGroup):
            self._rebalance.receive_join(send, response, now_ms)
        elif isinstance(request, SyncGroup):
            self._rebalance.receive_sync(send, response, now_ms)
        elif isinstance(request, FindCoordinator):
            self._looked_up(response, now_ms)

    def failed(self, send: Send, error_code: ErrorCode, now_ms: int) -> None:
        """A request has no answer."""
        request = send.request
        if isinstance(request, Heartbeat):
            self._heartbeats.failed(now_ms)
        elif isinstance(request, OffsetCommit):
            self._commits.failed(send, error_code, now_ms)
        elif isinstance(request, OffsetFetch):
            self._fetches.failed(send, error_code, now_ms)
        elif isinstance(request, JoinGroup | SyncGroup):
            self._rebalance.request_failed(send, error_code)
        elif isinstance(request, FindCoordinator):
            self._lookup_failed(error_code, now_ms)

    def _looked_up(self, response: Response, now_ms: int) -> None:
        entry = self._link.found(response)
        if entry is None:
            self._membership.fail(
                "FindCoordinator", ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(response).__name__} is no answer to it"
            )
        elif entry.error_code is not ErrorCode.NONE:
            self._lookup_failed(entry.error_code, now_ms)
        else:
            self._heartbeats.restart_session(now_ms)
            self._commits.coordinator_found(now_ms)

    def _lookup_failed(self, error_code: ErrorCode, now_ms: int) -> None:
        may_repeat = self._link.lookup_failed(error_code, now_ms)
        self._commits.lookup_failed(error_code)
        if not may_repeat:
            self._membership.fail("FindCoordinator", error_code, error_code.name)

    # ------------------------------------------------------------ going on

    def tick(self, now_ms: int) -> None:
        """Do what is due by now."""
        if (
            self._is_quiet
            and now_ms < self._others_ms
            and now_ms < self._link.deadline_ms()
            and self._heartbeats.beat_on(now_ms)
        ):
            self._look_for_heartbeats()
        else:
            self._do_what_is_due(now_ms)
            self.settle(now_ms)

    def _look_for_heartbeats(self) -> None:
        """Work out the next deadline when nothing but a heartbeat has come or gone."""
        self.deadline_ms = min(self._others_ms, self._link.deadline_ms(), self._heartbeats.deadline_ms())

    def _do_what_is_due(self, now_ms: int) -> None:
        for send in self._link.expire(now_ms):
            self.failed(send, ErrorCode.REQUEST_TIMED_OUT, now_ms)
        if self._heartbeats.tick(now_ms):
            self.leave(CloseOperation.DEFAULT, _POLL_TIMEOUT_REASON, now_ms)
        self._link.tick(now_ms)
        self._commits.tick(now_ms)
        self._fetches.tick(now_ms)
        if now_ms >= self._poll_due_ms:
            self.progress(now_ms)  # even if the host is late, and the poll over

    def settle(self, now_ms: int) -> None:
        """After each input: deal with what it set off, until nothing is left to do now."""
        while self._link.broken:
            broken, self._link.broken = self._link.broken, []
            for send in broken:
                self.failed(send, ErrorCode.NETWORK_EXCEPTION, now_ms)
        self._rest_if_failed(now_ms)
        if self._heartbeats.is_enabled and self._link.node is None:
            self._heartbeats.tick(now_ms)
        if not self._commits.is_idle:
            self._commits.tick(now_ms)
        if not self._fetches.is_idle:
            self._fetches.tick(now_ms)
        if self.is_unsubscribing and not self._gate.is_shut:
            self._finish_unsubscribing(now_ms)
        if self.closing is not None:
            self._go_on_closing(self.closing, now_ms)
        elif now_ms < self.poll_until_ms:
            self.progress(now_ms)
            self._rest_if_failed(now_ms)
        self._look_ahead(now_ms)

    def _rest_if_failed(self, now_ms: int) -> None:
        if self._membership.has_ended:
            self._link.rest()
            self._commits.give_up(now_ms)
            self._fetches.give_up(now_ms)

    def progress(self, now_ms: int) -> None:
        """Do what the application's poll does."""
        if self._membership.has_ended or self.closing is not None or self.is_unsubscribing:
            return
        self._commits.tell_completed(now_ms)
        kind = self._subscription.kind
        if kind is SubscriptionKind.NONE:
            return
        if kind is SubscriptionKind.MANUAL or self._rebalance.progress(now_ms):
            self._commits.auto_commit_if_due(now_ms)

    # ------------------------------------------------------------ leaving

    def leave(self, operation: CloseOperation, reason: str, now_ms: int) -> None:
        """Leave the group, if the member is in it; a static one just forgets that it was, unless told otherwise."""
        membership, config = self._membership, self._config
        if membership.state in (MemberState.UNJOINED, MemberState.CLOSED):
            return
        member_id = membership.generation.member_id
        wants = operation is CloseOperation.LEAVE_GROUP or (
            operation is CloseOperation.DEFAULT and config.group_instance_id is None
        )
        is_sent = wants and bool(member_id) and self._link.node is not None
        if is_sent:
            leaving = LeavingMember(member_id, reason=reason[:REASON_LENGTH_MAX])
            self._link.send(LeaveGroup(config.group_id or "", (leaving,)), now_ms)
        self._outputs.append(LeftGroup(reason, is_sent))
        membership.forget("consumer pro-actively leaving the group")

    def _finish_unsubscribing(self, now_ms: int) -> None:
        self.is_unsubscribing = False
        self._subscription.unsubscribe()
        self._topic_metadata.forget()
        self.leave(CloseOperation.DEFAULT, _UNSUBSCRIBE_REASON, now_ms)

    # ------------------------------------------------------------ closing

    def close(self, now_ms: int, deadline_ms: int, operation: CloseOperation) -> None:
        """Begin to close."""
        commit = None
        self._gate.is_shut = False
        offsets = self._subscription.all_consumed()
        if self._config.enable_auto_commit and offsets and not self._membership.has_ended:
            commit = Commit(0, offsets, CommitKind.SYNC, deadline_ms)
            self._commits.begin_sync(commit, now_ms)
        self.closing = Closing(deadline_ms, operation, commit)

    def _go_on_closing(self, closing: Closing, now_ms: int) -> None:
        is_late = now_ms >= closing.deadline_ms
        if closing.step is ClosingStep.COMMITS:
            is_committed = closing.commit is None or closing.commit.outcome is not None
            if is_late or (is_committed and not self._commits.has_waiting):
                self._commits.tell_completed(now_ms)
                self._heartbeats.is_enabled = False
                self._rebalance.drop_all()
                closing.step = ClosingStep.LISTENER
        if closing.step is ClosingStep.LISTENER and (is_late or not self._gate.is_shut):
            self._subscription.unsubscribe()
            self.leave(closing.operation, _CLOSE_REASON, now_ms)
            closing.step = ClosingStep.ANSWERS
        if closing.step is ClosingStep.ANSWERS and (is_late or not self._link.awaits_coordinator):
            self._end(now_ms)

    def _end(self, now_ms: int) -> None:
        if self._membership.state is not MemberState.CLOSED:
            self._link.abandon()
            self._commits.tell_completed(now_ms)
            self._membership.move(MemberState.CLOSED)
            self._outputs.append(Closed())

    # ------------------------------------------------------------ time

    def _look_ahead(self, now_ms: int) -> None:
        """Work out when there is something to do without any input, and whether that is all heartbeats."""
        others_ms = NEVER_MS
        is_quiet = self._membership.state is MemberState.STABLE and self._link.node is not None
        if not self._commits.is_idle:
            is_quiet = False
            others_ms = self._commits.deadline_ms()
        if not self._fetches.is_idle:
            is_quiet = False
            others_ms = min(others_ms, self._fetches.deadline_ms())
        self._poll_due_ms = self._next_in_poll_ms() if now_ms < self.poll_until_ms else NEVER_MS
        if self.closing is None:
            others_ms = min(others_ms, self._poll_due_ms)
        else:
            is_quiet = False
            if self._membership.state is not MemberState.CLOSED:
                others_ms = min(others_ms, self.closing.deadline_ms)
        self._is_quiet = is_quiet and not self._rebalance.is_needed
        self._others_ms = others_ms
        self.deadline_ms = min(others_ms, self._link.deadline_ms(), self._heartbeats.deadline_ms())

    def _next_in_poll_ms(self) -> int:
        """Return when the application's poll has something to do, if it still runs then."""
        kind = self._subscription.kind
        if kind is SubscriptionKind.NONE or self.is_unsubscribing or self._membership.has_ended:
            return NEVER_MS
        if kind is not SubscriptionKind.MANUAL and self._rebalance.is_needed:
            deadline_ms = self._rebalance.deadline_ms()
        else:
            deadline_ms = self._commits.next_auto_ms if self._config.enable_auto_commit else NEVER_MS
        return deadline_ms if deadline_ms < self.poll_until_ms else NEVER_MS
