"""Consumer group protocol (KIP-848) of a member: heartbeats, reconciliation, leaving."""

from __future__ import annotations

from groupcoord.core.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse, Response
from groupcoord.errors import ErrorCode
from groupcoord.member.consumer.heartbeats import (
    ConsumerHeartbeats,
    ConsumerMembership,
    HeartbeatRequests,
    read_partitions,
)
from groupcoord.member.consumer.reconciliation import Reconciliation
from groupcoord.member.coordinator_link import NEVER_MS
from groupcoord.member.error_handling import Reaction
from groupcoord.member.membership import IllegalCallError, MemberState
from groupcoord.member.outputs import (
    Joined,
    LeftGroup,
    MetadataNeeded,
    RejoinRequested,
    RequestRefused,
    Send,
)
from groupcoord.member.protocol import CloseOperation, GroupProtocol, Parts
from groupcoord.member.subscription import SubscriptionKind

_API = "ConsumerGroupHeartbeat"
_PROTOCOL_NAME = "consumer"
_POLL_TIMEOUT_REASON = "consumer poll timeout has expired."


class ConsumerProtocol(GroupProtocol):
    """``group.protocol=consumer`` as in the Java consumer (KIP-848)."""

    __slots__ = ("_heartbeats", "_membership", "_parts", "_reconciliation")

    def __init__(self, parts: Parts, membership: ConsumerMembership) -> None:
        self._parts = parts
        self._membership = membership
        requests = HeartbeatRequests(parts.config, membership, parts.subscription)
        self._heartbeats = ConsumerHeartbeats(parts, membership, requests)
        self._reconciliation = Reconciliation(parts, membership, parts.subscription)

    # ------------------------------------------------------------ state

    @property
    def member_id(self) -> str:
        return self._membership.member_id

    @property
    def generation_id(self) -> int:
        return self._membership.epoch if self._membership.has_epoch else -1

    @property
    def heartbeat_interval_ms(self) -> int:
        return self._heartbeats.interval_ms

    @property
    def is_busy(self) -> bool:
        return self._reconciliation.is_busy

    # ------------------------------------------------------------ the application's polls

    def polled(self, until_ms: int) -> None:
        self._heartbeats.polled(until_ms)

    def progress(self, now_ms: int) -> bool:
        self._reconciliation.progress(now_ms)
        self._rejoin_if_fenced()
        if (
            self._membership.state in (MemberState.UNSUBSCRIBED, MemberState.STALE)
            and not self._reconciliation.is_lossy
        ):
            self._join()
        self._beat(now_ms)
        return not self._reconciliation.is_busy

    def progress_deadline_ms(self) -> int:
        return self._reconciliation.deadline_ms()

    def _join(self) -> None:
        self._membership.forget_epoch()
        self._membership.move(MemberState.JOINING)
        self._reconciliation.begin_anew()
        metadata = self._parts.topic_metadata
        if self._parts.subscription.kind is SubscriptionKind.PATTERN and not metadata.is_asked:
            metadata.is_asked = True
            self._parts.outputs.append(MetadataNeeded(None))  # topics that match now; the join does not wait for them

    def _rejoin_if_fenced(self) -> None:
        if self._membership.state is MemberState.FENCED and not self._reconciliation.is_lossy:
            self._join()

    # ------------------------------------------------------------ heartbeats

    def settle(self, now_ms: int) -> None:
        """Send due heartbeats, and rejoin after a fencing if no partitions are owned; neither waits for a poll."""
        self._reconciliation.lose_nothing()
        self._rejoin_if_fenced()
        self._beat(now_ms)

    def tick(self, now_ms: int) -> None:
        heartbeats = self._heartbeats
        # As in Java, the poll deadline counts only while the coordinator is known.
        if heartbeats.is_due_for_polls and now_ms >= heartbeats.poll_deadline_ms and self._parts.link.node is not None:
            self._leave_unpolled(now_ms)
        self._beat(now_ms)

    def beat_on(self, now_ms: int) -> bool:
        if now_ms >= self._heartbeats.poll_deadline_ms:
            return False
        self._beat(now_ms)
        return True

    def deadline_ms(self) -> int:
        return self._heartbeats.deadline_ms() if self._parts.link.node is not None else NEVER_MS

    def _beat(self, now_ms: int) -> None:
        if not self._heartbeats.is_wanted:
            return
        if self._parts.link.node is None:
            self._parts.link.find(now_ms)
        elif self._heartbeats.is_due(now_ms):
            self._heartbeats.send(self._reconciliation.current, now_ms)
            if self._membership.state is MemberState.ACKNOWLEDGING:
                is_done = self._reconciliation.is_done
                self._membership.move(MemberState.STABLE if is_done else MemberState.RECONCILING)

    # ------------------------------------------------------------ responses

    def receive(self, send: Send, response: Response, now_ms: int) -> None:
        """Ignore responses to leaving, and to heartbeats from before a fencing."""
        if not self._heartbeats.is_awaited(send):
            return
        is_leave = isinstance(send.request, ConsumerGroupHeartbeat) and send.request.member_epoch < 0
        if is_leave:
            self._heartbeats.forget()
        elif not isinstance(response, ConsumerGroupHeartbeatResponse):
            self._membership.fail(_API, ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(response).__name__} is no answer to it")
        elif response.error_code is not ErrorCode.NONE:
            self._heartbeats.failed(now_ms)
            self._react(response.error_code, response.error_message or response.error_code.name, now_ms)
        else:
            self._heartbeats.answered(response.heartbeat_interval_ms, now_ms)
            self._follow(response, now_ms)

    def _follow(self, response: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        membership = self._membership
        if response.member_epoch < 0:
            return
        membership.take_epoch(response.member_epoch)
        is_joining = membership.state is MemberState.JOINING
        if response.assignment is None or not membership.is_in_group:
            if is_joining:
                self._heartbeats.failed(now_ms)  # a response to a join must hold an assignment; retry after a pause
            return
        if is_joining:
            self._parts.outputs.append(Joined(membership.epoch, membership.member_id, _PROTOCOL_NAME, is_leader=False))
        self._reconciliation.assigned(read_partitions(response.assignment))

    def _react(self, error_code: ErrorCode, message: str, now_ms: int) -> None:
        reaction = self._membership.reactions.to(ConsumerGroupHeartbeat, error_code)
        if reaction is Reaction.FIND_COORDINATOR:
            self._parts.link.lose(f"error response {error_code.name}")
            self._heartbeats.hurry(now_ms)
        elif reaction is Reaction.RESET_GENERATION:
            self._heartbeats.hurry(now_ms)
            self._fence(error_code)
        elif reaction is Reaction.REPORT:
            self._parts.outputs.append(RequestRefused(_API, error_code, message))
        elif reaction is Reaction.FAIL:
            self._membership.fail(_API, error_code, message)

    def _fence(self, error_code: ErrorCode) -> None:
        membership = self._membership
        if membership.state is MemberState.PREPARE_LEAVING:  # already removed, so it sends no request to leave
            membership.begin_leaving(CloseOperation.DEFAULT)
            membership.move(MemberState.UNSUBSCRIBED)
        else:
            membership.move(MemberState.FENCED)
            membership.forget_epoch()
            self._reconciliation.begin_losing()
            self._parts.outputs.append(RejoinRequested(f"encountered {error_code.name} from heartbeat response"))

    def failed(self, send: Send, error_code: ErrorCode, now_ms: int) -> None:
        if not self._heartbeats.is_awaited(send):
            return
        self._heartbeats.failed(now_ms)
        if error_code is ErrorCode.UNSUPPORTED_VERSION:
            self._membership.fail(_API, error_code, "the broker does not know consumer groups (KIP-848)")

    def answered(self, send: Send, response: Response, now_ms: int) -> bool:
        if not self._heartbeats.is_awaited(send) or not isinstance(response, ConsumerGroupHeartbeatResponse):
            return False
        if (
            response.error_code is not ErrorCode.NONE
            or response.assignment is not None
            or response.member_epoch != self._membership.epoch
        ):
            return False
        self._heartbeats.answered(response.heartbeat_interval_ms, now_ms)
        return True

    def coordinator_found(self, now_ms: int) -> None:
        """Delay the next lookup by ``retry.backoff.ms``, in case this node answers NOT_COORDINATOR.

        Heartbeats do not wait for that. Source: ``RequestState`` of the Java client.
        """
        self._parts.link.pause(now_ms)

    def lookup_failed(self, error_code: ErrorCode, now_ms: int, *, may_repeat: bool) -> None:
        """Retry after any error; waiting commits stay while the error is retriable."""
        if not may_repeat:
            self._parts.commits.lookup_failed(error_code)
            self._parts.outputs.append(RequestRefused("FindCoordinator", error_code, error_code.name))
            self._parts.link.back_off(now_ms)

    # ------------------------------------------------------------ leaving

    def drop_all(self) -> None:
        self._reconciliation.drop_all()
        if self._membership.is_in_group:
            self._membership.move(MemberState.PREPARE_LEAVING)

    def leave(self, operation: CloseOperation, reason: str, now_ms: int) -> None:
        """Leave by one heartbeat, without waiting for its response."""
        membership = self._membership
        if membership.state in (MemberState.FENCED, MemberState.STALE):
            membership.move(MemberState.UNSUBSCRIBED)
        self._reconciliation.clear()
        if membership.state is MemberState.PREPARE_LEAVING:
            is_dynamic = self._parts.config.group_instance_id is None
            # A static member sends epoch -2 even if it stays (KIP-1092).
            stays = is_dynamic and operation is CloseOperation.REMAIN_IN_GROUP
            self._send_leave(operation, reason, now_ms, is_sent=not stays)
            membership.move(MemberState.UNSUBSCRIBED)

    def _send_leave(self, operation: CloseOperation, reason: str, now_ms: int, *, is_sent: bool) -> None:
        self._membership.begin_leaving(operation)
        is_sent = is_sent and self._parts.link.node is not None
        if is_sent:
            self._heartbeats.send(self._reconciliation.current, now_ms)
        self._parts.outputs.append(LeftGroup(reason, is_sent))

    def _leave_unpolled(self, now_ms: int) -> None:
        self._reconciliation.begin_losing()
        self._send_leave(CloseOperation.DEFAULT, _POLL_TIMEOUT_REASON, now_ms, is_sent=True)
        self._membership.move(MemberState.STALE)
        self._heartbeats.forget()

    def rest(self) -> None:
        self._membership.forget_epoch()
        self._reconciliation.drop_all()
        self._reconciliation.clear()

    def recover(self) -> None:
        """Raise IllegalCallError: as in Java, the application creates another member."""
        raise IllegalCallError("a failed member of a consumer group can't go on: close it, and make another one")
