"""Consumer group protocol (KIP-848) of a member: heartbeats, reconciliation, leaving."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from uuid import UUID

from attrs import define, field

from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse, Response
from groupcoord.errors import ErrorCode
from groupcoord.member.consumer.heartbeats import (
    NO_ASSIGNMENT,
    ConsumerHeartbeats,
    ConsumerMembership,
    LocalAssignment,
    Partitions,
    read_partitions,
)
from groupcoord.member.coordinator_link import NEVER_MS
from groupcoord.member.error_handling import Reaction
from groupcoord.member.membership import IllegalCallError, MemberState
from groupcoord.member.offsets import Commit, CommitKind
from groupcoord.member.outputs import (
    Joined,
    LeftGroup,
    MetadataNeeded,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RejoinRequested,
    RequestRefused,
    Send,
)
from groupcoord.member.protocol import CloseOperation, GroupProtocol, Parts
from groupcoord.member.subscription import SubscriptionKind, SubscriptionState

_API = "ConsumerGroupHeartbeat"
_PROTOCOL_NAME = "consumer"
_POLL_TIMEOUT_REASON = "consumer poll timeout has expired."


class ConsumerProtocol(GroupProtocol):
    """``group.protocol=consumer`` as in the Java consumer (KIP-848)."""

    __slots__ = ("_heartbeats", "_membership", "_parts", "_reconciliation")

    def __init__(self, parts: Parts, membership: ConsumerMembership) -> None:
        self._parts = parts
        self._membership = membership
        self._heartbeats = ConsumerHeartbeats(parts, membership)
        self._reconciliation = Reconciliation(parts, membership, parts.subscription)

    # ------------------------------------------------------------ state

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
        if self._parts.subscription.kind is SubscriptionKind.PATTERN and not metadata.is_requested:
            metadata.is_requested = True
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
        is_due = self._membership.is_in_group and now_ms >= heartbeats.poll_deadline_ms
        if is_due and self._parts.link.node is not None:
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


class _Step(Enum):
    NONE = "nothing: there is none"
    COMMITTING = "the positions are being committed; then revoke"
    REVOKING = "the listener deals with what is revoked; then assign"
    ASSIGNING = "the listener deals with what is new; then acknowledge"
    LOSING = "the listener deals with what is lost; then join again"


@define(eq=False, repr=False)
class Reconciliation:
    """Current and target assignment of a member, one assignment at a time.

    Positions are committed (with automatic commits), lost partitions revoked, new ones assigned, and then the
    assignment is acknowledged. So no partition has two readers.

    Source: KIP-848 and the Java consumer's ``AbstractMembershipManager``.

    Attributes:
        current: the partitions that the member owns and acknowledges.
        target: the partitions that it should own.
        is_lossy: whether the member must report its partitions as lost: it was fenced, has failed, or was not polled.
    """

    _parts: Parts
    _membership: ConsumerMembership
    _subscription: SubscriptionState
    _names: dict[UUID, str] = field(factory=dict, init=False)  # metadata may lose a topic before it is revoked
    _commit: Commit | None = field(default=None, init=False)
    _step: _Step = field(default=_Step.NONE, init=False)
    _towards: LocalAssignment = field(default=NO_ASSIGNMENT, init=False)  # the target of the reconciliation in progress
    _is_waiting: bool = field(default=False, init=False)  # for the names of topics
    _retry_ms: int = field(default=0, init=False)
    current: LocalAssignment = field(default=NO_ASSIGNMENT, init=False)
    target: LocalAssignment = field(default=NO_ASSIGNMENT, init=False)
    is_lossy: bool = field(default=False, init=False)

    @property
    def is_busy(self) -> bool:
        return self._step is not _Step.NONE

    @property
    def is_done(self) -> bool:
        return self.target == self.current

    # ------------------------------------------------------------ what the coordinator tells

    def assigned(self, partitions: Partitions) -> None:
        self.target = self.target.replaced_by(partitions)
        if not self.is_done:
            self._membership.move(MemberState.RECONCILING)

    def begin_anew(self) -> None:
        """Drop the target assignment, because the member joins."""
        self.target = NO_ASSIGNMENT
        self._names.clear()
        self._is_waiting = False

    # ------------------------------------------------------------ in the application's poll

    def progress(self, now_ms: int) -> None:
        while not self._parts.gate.is_shut:
            if self.is_busy and self._step is not _Step.LOSING:
                self._abort_if_out_of_place()
            if self._step is _Step.COMMITTING:
                if self._commit is not None and self._commit.outcome is None:
                    return
                self._revoke()
            elif self._step is _Step.REVOKING:
                self._assign()
            elif self._step is _Step.ASSIGNING:
                self._acknowledge(now_ms)
            elif self._step is _Step.LOSING:
                self.clear()
            elif self.is_lossy:
                self._lose()
            elif self._membership.state is not MemberState.RECONCILING or not self._begin(now_ms):
                return

    def _abort_if_out_of_place(self) -> None:
        if self._membership.state is MemberState.RECONCILING:
            return
        if self._step is _Step.REVOKING:
            gone = set(self._revoked())
            self._subscription.take([partition for partition in self._subscription.positions if partition not in gone])
        self._step = _Step.NONE

    def _begin(self, now_ms: int) -> bool:
        resolved = self._resolve(now_ms)
        if not self.current.is_none and resolved == self.current.partitions:
            if self.target.number == self.current.number:
                return False  # the rest waits for the names of its topics
            self.current = LocalAssignment(self.target.number, resolved)
            self._membership.move(MemberState.ACKNOWLEDGING)
            return True
        self._towards = LocalAssignment(self.target.number, resolved)
        self._step = _Step.COMMITTING
        self._commit = None
        self._subscription.withhold(self._revoked())
        config = self._parts.config
        if config.enable_auto_commit:
            deadline_ms = now_ms + config.max_poll_interval_ms
            self._commit = self._parts.commits.begin_all(CommitKind.BEFORE_REVOCATION, now_ms, deadline_ms)
        return True

    def _resolve(self, now_ms: int) -> Partitions:
        """Return the target's topics with known names; request metadata for the others."""
        metadata = self._parts.topic_metadata
        for topic_id in self.target.partitions:
            name = metadata.names.get(topic_id)
            if name is not None:
                self._names[topic_id] = name
        resolved = {id_: numbers for id_, numbers in self.target.partitions.items() if id_ in self._names}
        self._is_waiting = len(resolved) < len(self.target.partitions)
        if self._is_waiting and not metadata.is_requested and now_ms >= self._retry_ms:
            metadata.is_requested = True
            self._retry_ms = now_ms + self._parts.config.retry_backoff_ms
            self._parts.outputs.append(MetadataNeeded(self._subscription.metadata_topics()))
        return resolved

    def _named(self, assignment: LocalAssignment) -> Iterable[TopicPartition]:
        for topic_id, numbers in assignment.partitions.items():
            for number in numbers:
                yield TopicPartition(self._names[topic_id], number)

    def _revoked(self) -> tuple[TopicPartition, ...]:
        wanted = set(self._named(self._towards))
        return tuple(partition for partition in self._subscription.positions if partition not in wanted)

    def _revoke(self) -> None:
        self._step = _Step.REVOKING
        revoked = self._revoked()
        if revoked:
            self._parts.gate.emit(PartitionsRevoked(revoked))

    def _assign(self) -> None:
        wanted = set(self._named(self._towards))
        added = tuple(sorted(wanted.difference(self._subscription.positions)))
        self._subscription.take(wanted)
        self._subscription.withhold(added)
        self._step = _Step.ASSIGNING
        self._parts.gate.emit(PartitionsAssigned(added))

    def _acknowledge(self, now_ms: int) -> None:
        self._step = _Step.NONE
        self._subscription.withhold(())
        self.current = self._towards
        self._names = {id_: name for id_, name in self._names.items() if id_ in self.current.partitions}
        self._parts.commits.restart_interval(now_ms)
        self._membership.move(MemberState.ACKNOWLEDGING)

    # ------------------------------------------------------------ out of the group

    def begin_losing(self) -> None:
        self.is_lossy = True
        self.current = self.target = NO_ASSIGNMENT

    def _lose(self) -> None:
        self._step = _Step.LOSING
        owned = tuple(self._subscription.positions)
        if owned:
            self._subscription.withhold(owned)
            self._parts.gate.emit(PartitionsLost(owned))

    def lose_nothing(self) -> None:
        if self.is_lossy and not self.is_busy and not self._subscription.positions:
            self.clear()

    def drop_all(self) -> None:
        """Report all partitions as revoked or lost, except those that were reported already."""
        positions = self._subscription.positions
        owned = tuple(positions)
        if self._step is _Step.LOSING:
            owned = ()
        elif self._step is _Step.REVOKING:
            gone = set(self._revoked())
            owned = tuple(partition for partition in positions if partition not in gone)
        self._step = _Step.NONE
        self.is_lossy = False
        if owned and self._subscription.is_auto_assigned:
            self._parts.gate.emit(PartitionsRevoked(owned) if self._membership.has_epoch else PartitionsLost(owned))

    def clear(self) -> None:
        self._step = _Step.NONE
        self._commit = None
        self.is_lossy = False
        self.current = self.target = NO_ASSIGNMENT
        self._names.clear()
        self._is_waiting = False
        if self._subscription.is_auto_assigned:
            self._subscription.take(())

    # ------------------------------------------------------------ time

    def deadline_ms(self) -> int:
        if self._membership.state is not MemberState.RECONCILING or self.is_busy or not self._is_waiting:
            return NEVER_MS
        return NEVER_MS if self._parts.topic_metadata.is_requested else self._retry_ms
