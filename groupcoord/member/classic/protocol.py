"""Classic group protocol of a member: heartbeats, rebalances, leaving.

Polls drive a rebalance: commit and revoke, join, sync, revoke and assign.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from attrs import define, field

from groupcoord.core.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Assignment,
    ConsumerProtocolError,
    Subscription,
    TopicPartition,
    decode_assignment,
    encode_subscription,
)
from groupcoord.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    Response,
    SyncAssignment,
    SyncGroup,
    SyncGroupResponse,
)
from groupcoord.errors import ErrorCode
from groupcoord.member.assignors import Assignor, RebalanceProtocol
from groupcoord.member.classic.heartbeats import Generation, Heartbeats, MembershipManager
from groupcoord.member.classic.leader import Leading, LeadingError
from groupcoord.member.coordinator_link import NEVER_MS
from groupcoord.member.error_handling import Reaction, reaction_to
from groupcoord.member.membership import MemberState
from groupcoord.member.offsets import Commit, CommitKind
from groupcoord.member.outputs import (
    CommitFailure,
    ComputedAssignment,
    Joined,
    LeftGroup,
    MetadataNeeded,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    Send,
)
from groupcoord.member.parts import CloseOperation, Parts
from groupcoord.member.subscription import SubscriptionKind

REASON_LENGTH_MAX = 255
"""Longest reason in a request (KIP-800), in characters."""

JOIN_SLACK_MS = 5_000
"""Time that a JoinGroup may take beyond the rebalance timeout."""

_SHORTEST_ASSIGNMENT = 2
_POLL_TIMEOUT_REASON = "consumer poll timeout has expired."


class _Step(Enum):
    """Listener call in progress, which decides the next step."""

    NONE = "none"
    PREPARING = "what was owned is revoked or lost; then join"
    REVOKING = "a cooperative assignment took something away; then assign"
    ASSIGNING = "the new assignment is reported; then the rebalance is complete"


@define(eq=False, repr=False)
class ClassicProtocol:
    """``group.protocol=classic`` as in the Java consumer, with the rebalance in progress, if any."""

    _parts: Parts
    _membership: MembershipManager
    _assignors: Mapping[str, Assignor]
    _protocol: RebalanceProtocol
    _heartbeats: Heartbeats = field(init=False)
    _step: _Step = field(default=_Step.NONE, init=False)
    _is_joining: bool = field(default=False, init=False)
    _assignment: bytes | None = field(default=None, init=False)  # from the SyncGroup response
    _assigned: Assignment | None = field(default=None, init=False)
    _failure: tuple[ErrorCode, Reaction] | None = field(default=None, init=False)
    _leading: Leading | None = field(default=None, init=False)
    _kept: tuple[TopicPartition, ...] = field(default=(), init=False)  # stay when the listener has returned
    _commit: Commit | None = field(default=None, init=False)  # commit before the revocation
    _commit_deadline_ms: int | None = field(default=None, init=False)
    is_leader: bool = field(default=False, init=False)
    _retry_ms: int | None = field(default=None, init=False)

    @_heartbeats.default
    def _make_heartbeats(self) -> Heartbeats:
        return Heartbeats(self._parts, self._membership)

    # ------------------------------------------------------------ properties

    @property
    def can_subscribe(self) -> bool:
        """True if the member can assign."""
        return bool(self._assignors)

    @property
    def heartbeat_interval_ms(self) -> int:
        return self._parts.config.heartbeat_interval_ms

    # ------------------------------------------------------------ responses

    def receive(self, send: Send, response: Response, now_ms: int) -> None:
        """Handle a response."""
        request = send.request
        if isinstance(request, Heartbeat):
            self._heartbeats.receive(send, response, now_ms)
        elif isinstance(request, JoinGroup | SyncGroup):
            api, kind = (
                type(request).__name__,
                JoinGroupResponse if isinstance(request, JoinGroup) else SyncGroupResponse,
            )
            if not isinstance(response, kind):
                self._malformed(api, f"{type(response).__name__} is no answer to it")
            elif response.error_code is not ErrorCode.NONE:
                member_id = response.member_id if isinstance(response, JoinGroupResponse) else ""
                self._react(send, response.error_code, member_id)
            elif response.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
                message = f"its protocol type is {response.protocol_type!r}, not {CONSUMER_PROTOCOL_TYPE!r}"
                self._malformed(api, message)
            elif isinstance(response, JoinGroupResponse):
                self._joined(response, now_ms)
            else:
                self._synced(response)

    def failed(self, send: Send, error_code: ErrorCode, now_ms: int) -> None:
        """Handle a request without a response."""
        if isinstance(send.request, Heartbeat):
            self._heartbeats.failed(now_ms)
        elif isinstance(send.request, JoinGroup | SyncGroup):
            reaction = Reaction.RETRY if error_code is ErrorCode.NETWORK_EXCEPTION else Reaction.FAIL
            self._fail(type(send.request).__name__, error_code, reaction, f"no answer: {error_code.name}")

    def answered(self, send: Send, response: Response, now_ms: int) -> bool:
        """Handle a Heartbeat response of a quiet member if it changes nothing; return whether that is so."""
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
        """Handle a failed lookup. ``may_repeat`` is False if the error is not retriable."""
        self._parts.commits.lookup_failed(error_code)
        if not may_repeat:
            self._membership.fail("FindCoordinator", error_code, error_code.name)

    def metadata_updated(self, now_ms: int) -> None:
        """Handle new topic metadata before the next poll."""
        self._parts.topic_metadata.take_snapshot(self._parts.subscription.watched_topics())
        self._continue_leading(now_ms)

    def assignment_computed(self, computed: ComputedAssignment, now_ms: int) -> None:
        """Handle the result of an assignor."""
        self._continue_leading(now_ms, computed)

    # ------------------------------------------------------------ time

    def beat_on(self, now_ms: int) -> bool:
        """Send the heartbeat of a quiet member if nothing else is due; return whether that is so."""
        return self._heartbeats.beat_on(now_ms)

    def tick(self, now_ms: int) -> None:
        """Send due heartbeats, and leave after the poll deadline."""
        if self._heartbeats.tick(now_ms):
            self.leave(CloseOperation.DEFAULT, _POLL_TIMEOUT_REASON, now_ms)

    def settle(self, now_ms: int) -> None:
        """Do what does not wait for a poll, after each input."""
        if self._heartbeats.is_enabled and self._parts.link.node is None:
            self._heartbeats.tick(now_ms)

    def deadline_ms(self) -> int:
        return self._heartbeats.deadline_ms()

    # ------------------------------------------------------------ in the application's poll

    @property
    def is_busy(self) -> bool:
        """True if polls have something to do before the assignment is complete."""
        return (
            self._membership.rejoin_needed
            or self._is_joining
            or self._step is not _Step.NONE
            or self._parts.topic_metadata.has_changed
            or self._parts.subscription.has_changed
        )

    def polled(self, until_ms: int) -> None:
        """Set the end of the application's current poll."""
        self._heartbeats.polled(until_ms)

    def _note_changes(self) -> None:
        if not self._membership.rejoin_needed and not self._is_joining and self._step is _Step.NONE:
            if self._parts.topic_metadata.has_changed:
                self._membership.request_rejoin("cached metadata has changed")
            elif self._parts.subscription.has_changed:
                self._membership.request_rejoin("subscription has changed")

    def progress(self, now_ms: int) -> bool:
        """Execute the work of a poll as far as possible; return whether all is done."""
        while self.is_busy:
            self._note_changes()
            if self._parts.awaits_listener or self._membership.has_ended:
                return False
            if self._step is not _Step.NONE:
                self._listener_done(now_ms)
            elif self._parts.link.node is None:
                self._parts.link.find(now_ms)
                return False
            elif self._retry_ms is not None and now_ms < self._retry_ms:
                return False
            elif self._is_joining:
                if not self._finish_join(now_ms):
                    return False
            elif not self._has_fresh_topics():
                return False
            elif self._membership.needs_prepare:
                if not self._prepare(now_ms):
                    return False
            else:
                self._join(now_ms)
        return True

    def progress_deadline_ms(self) -> int:
        """Return when :meth:`progress` is due without any input."""
        if not self.is_busy or self._parts.awaits_listener or self._parts.link.node is None:
            return NEVER_MS
        is_committing = self._commit is not None and self._commit.outcome is None
        deadline_ms = self._commit_deadline_ms if is_committing else self._retry_ms
        return NEVER_MS if deadline_ms is None else deadline_ms

    def _listener_done(self, now_ms: int) -> None:
        step, self._step = self._step, _Step.NONE
        if step is _Step.PREPARING:
            self._prepared()
        elif step is _Step.REVOKING:
            self._assign(now_ms)

    def _has_fresh_topics(self) -> bool:
        """Return whether the topics are fresh, if a pattern needs that; request them if not."""
        if self._parts.subscription.kind is not SubscriptionKind.PATTERN or self._parts.topic_metadata.is_fresh:
            return True
        if not self._parts.topic_metadata.is_requested:
            self._parts.topic_metadata.is_requested = True
            self._parts.outputs.append(MetadataNeeded(None))
        return False

    # ------------------------------------------------------------ before the join

    def _prepare(self, now_ms: int) -> bool:
        """Commit and revoke partitions before a join; return whether the revocation has begun."""
        if self._parts.config.enable_auto_commit and not self._has_committed(now_ms):
            return False
        self._commit = None
        self._commit_deadline_ms = None
        self._retry_ms = None
        self._parts.commits.report_completed(now_ms)
        self._membership.needs_prepare = False
        self._step = _Step.PREPARING
        owned = tuple(self._parts.subscription.positions)
        self._kept = ()
        if self._membership.is_stranger:
            if owned:
                self._parts.emit(PartitionsLost(owned))
        elif self._protocol is RebalanceProtocol.EAGER:
            self._parts.emit(PartitionsRevoked(owned))
        else:
            topics = set(self._parts.subscription.topics)
            self._kept = tuple(partition for partition in owned if partition.topic in topics)
            if len(self._kept) < len(owned):
                self._parts.emit(PartitionsRevoked(tuple(p for p in owned if p.topic not in topics)))
        return True

    def _has_committed(self, now_ms: int) -> bool:
        """Commit all positions, with retries until the rebalance timeout; return whether that is over."""
        if self._commit_deadline_ms is None:
            self._commit_deadline_ms = now_ms + self._parts.config.max_poll_interval_ms
        if self._commit is None:
            if self._protocol is RebalanceProtocol.EAGER:
                self._parts.subscription.withhold(self._parts.subscription.positions)
            self._commit = self._parts.commits.begin_all(CommitKind.AUTO, now_ms)
        if self._commit is None or now_ms >= self._commit_deadline_ms:
            return True
        if self._commit.outcome is None:
            return False
        if self._commit.outcome.failure is CommitFailure.RETRIABLE:
            self._commit = None
            self._retry_ms = min(now_ms + self._parts.config.retry_backoff_ms, self._commit_deadline_ms)
            return False
        return True

    def _prepared(self) -> None:
        self._parts.subscription.assign_from_group(self._kept)
        self._parts.subscription.group_topics = frozenset()
        self.is_leader = False

    # ------------------------------------------------------------ the join

    def _join(self, now_ms: int) -> None:
        membership, config = self._membership, self._parts.config
        self._retry_ms = None
        try:
            protocols = tuple(self._protocol_of(assignor) for assignor in self._assignors.values())
        except Exception as error:  # an assignor may be user code, and a topic's name may be too long
            message = f"the subscription can't be written: {type(error).__name__}: {error}"
            membership.fail("", ErrorCode.UNKNOWN_SERVER_ERROR, message)
            return
        self._parts.subscription.joined_topics = self._parts.subscription.topics
        membership.move(MemberState.PREPARING_REBALANCE)
        self._is_joining = True
        request = JoinGroup(
            group_id=config.group_id or "",
            member_id=membership.member_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=protocols,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            group_instance_id=config.group_instance_id,
            client_id=config.client_id,
            reason=membership.rejoin_reason[:REASON_LENGTH_MAX],
        )
        timeout_ms = max(config.request_timeout_ms, config.max_poll_interval_ms + JOIN_SLACK_MS)
        self._parts.link.send(request, now_ms, membership.generation, timeout_ms)

    def _protocol_of(self, assignor: Assignor) -> JoinProtocol:
        topics = self._parts.subscription.topics
        subscription = Subscription(
            topics=topics,
            user_data=assignor.subscription_user_data(topics),
            owned_partitions=tuple(self._parts.subscription.positions),
            generation_id=self._membership.generation_id,
            rack_id=self._parts.config.client_rack or None,
        )
        return JoinProtocol(assignor.name, encode_subscription(subscription))

    def _joined(self, response: JoinGroupResponse, now_ms: int) -> None:
        membership = self._membership
        if membership.state is not MemberState.PREPARING_REBALANCE:
            self._fail("JoinGroup", ErrorCode.NONE, Reaction.RETRY, "the member has left meanwhile")
        elif response.protocol_name not in self._assignors:
            self._malformed("JoinGroup", f"it names the protocol {response.protocol_name!r}, which was not offered")
        else:
            membership.move(MemberState.COMPLETING_REBALANCE)
            self._heartbeats.enable(now_ms)
            membership.generation = Generation(response.generation_id, response.member_id, response.protocol_name)
            if response.leader == response.member_id:
                self._begin_leading(response, now_ms)
            else:
                self._sync((), now_ms)

    def _begin_leading(self, joined: JoinGroupResponse, now_ms: int) -> None:
        assignor = self._assignors[str(joined.protocol_name)]
        try:
            self._leading = Leading(joined, assignor, self._protocol, self._parts)
        except LeadingError as error:
            self._malformed("JoinGroup", str(error))
            return
        self.is_leader = True
        self._continue_leading(now_ms)

    def _continue_leading(self, now_ms: int, computed: ComputedAssignment | None = None) -> None:
        leading = self._leading
        if leading is None or not self._membership.is_at(MemberState.COMPLETING_REBALANCE, leading.generation_id):
            return
        try:
            if computed is not None:
                leading.computed(computed)
            if not leading.step():
                return
        except LeadingError as error:
            self._fail("", ErrorCode.UNKNOWN_SERVER_ERROR, Reaction.FAIL, str(error))
        else:
            self._sync(leading.assignments, now_ms)
        self._leading = None

    # ------------------------------------------------------------ the sync

    def _sync(self, assignments: tuple[SyncAssignment, ...], now_ms: int) -> None:
        generation = self._membership.generation
        if self._parts.link.node is None:
            self._fail("SyncGroup", ErrorCode.NONE, Reaction.RETRY, "the coordinator is not known")
            return
        request = SyncGroup(
            group_id=self._parts.config.group_id or "",
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self._parts.config.group_instance_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=generation.protocol_name,
            assignments=assignments,
        )
        self._parts.link.send(request, now_ms, generation)

    def _synced(self, response: SyncGroupResponse) -> None:
        """Complete the rebalance; the events of the assignment wait for a poll."""
        membership = self._membership
        generation = membership.generation
        if membership.is_reset or membership.state is not MemberState.COMPLETING_REBALANCE:
            self._fail("SyncGroup", ErrorCode.NONE, Reaction.REJOIN, "the generation was reset meanwhile")
        elif response.protocol_name not in (None, generation.protocol_name):
            expected = generation.protocol_name
            self._malformed("SyncGroup", f"its protocol is {response.protocol_name!r}, not {expected!r}")
        else:
            membership.move(MemberState.STABLE)
            membership.rejoin_reason = ""
            membership.rejoin_needed = False
            self._assignment = response.assignment
            self._parts.outputs.append(
                Joined(generation.generation_id, generation.member_id, str(generation.protocol_name), self.is_leader)
            )

    # ------------------------------------------------------------ failures

    def _react(self, send: Send, error_code: ErrorCode, member_id: str) -> None:
        membership, api = self._membership, type(send.request)
        reaction = reaction_to(api, error_code)
        if reaction is Reaction.FIND_COORDINATOR:
            self._parts.link.lose(f"error response {error_code.name}")
        elif reaction is Reaction.TAKE_MEMBER_ID:
            membership.generation = Generation(member_id=member_id)
            membership.request_rejoin(f"need to re-join with the given member-id: {member_id}")
        elif (
            reaction in (Reaction.RESET_MEMBER_ID, Reaction.RESET_GENERATION) and send.purpose == membership.generation
        ):
            reason = f"encountered {error_code.name} from {_JAVA_NAMES[api]} response"
            membership.reset(reason, forget_member_id=reaction is Reaction.RESET_MEMBER_ID)
        self._fail(api.__name__, error_code, reaction, error_code.name)

    def _malformed(self, api: str, message: str) -> None:
        self._fail(api, ErrorCode.UNKNOWN_SERVER_ERROR, Reaction.FAIL, f"the answer to {api} is malformed: {message}")

    def _fail(self, api: str, error_code: ErrorCode, reaction: Reaction, message: str) -> None:
        """Store the failure of a join. A fatal one is reported at once, others are handled by the next poll."""
        self._leading = None
        if reaction is Reaction.FAIL:
            self._is_joining = False
            self._membership.fail(api, error_code, message)
        elif self._is_joining:
            self._failure = error_code, reaction

    def _finish_join(self, now_ms: int) -> bool:
        """Handle the result of a join; return False if there is none yet."""
        membership = self._membership
        if self._assignment is not None:
            assignment, self._assignment = self._assignment, None
            self._is_joining = False
            if membership.is_reset or membership.state is not MemberState.STABLE:
                membership.reset("rebalance failed since the generation was modified meanwhile", forget_member_id=True)
            else:
                self._complete(assignment, now_ms)
            return True
        if self._leading is not None and membership.state is not MemberState.COMPLETING_REBALANCE:
            self._fail("SyncGroup", ErrorCode.NONE, Reaction.REJOIN, "the generation was reset meanwhile")
        if self._failure is None:
            return False
        (error_code, reaction), self._failure = self._failure, None
        self._is_joining = False
        if reaction is not Reaction.TAKE_MEMBER_ID:
            membership.request_rejoin(f"rebalance failed due to {error_code.name}")
        if reaction in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
            self._retry_ms = now_ms + self._parts.config.retry_backoff_ms
        return True

    # ------------------------------------------------------------ the end of a rebalance

    def _complete(self, data: bytes, now_ms: int) -> None:
        membership = self._membership
        membership.needs_prepare = True
        if not self.is_leader:
            self._parts.topic_metadata.forget()
        try:
            self._assigned = _read(data)
        except ConsumerProtocolError as error:
            self._malformed("SyncGroup", str(error))
            return
        if not self._parts.subscription.allows(self._assigned.partitions):
            membership.request_rejoin("received assignment does not match the current subscription")
            return
        self._step = _Step.REVOKING
        if self._protocol is RebalanceProtocol.COOPERATIVE:
            assigned = set(self._assigned.partitions)
            owned = self._parts.subscription.positions
            self._kept = tuple(partition for partition in owned if partition in assigned)
            revoked = tuple(partition for partition in owned if partition not in assigned)
            if revoked:
                self._parts.emit(PartitionsRevoked(revoked))
                membership.request_rejoin("need to revoke partitions and re-join")

    def _assign(self, now_ms: int) -> None:
        given = self._assigned
        assert given is not None
        self._assigned = None
        generation = self._membership.generation
        owned = self._parts.subscription.positions
        added = tuple(sorted({partition for partition in given.partitions if partition not in owned}))
        problem = self._notify_assignor(str(generation.protocol_name), given, generation.generation_id)
        self._parts.commits.restart_interval(now_ms)
        self._parts.subscription.assign_from_group(given.partitions)
        self._parts.topic_metadata.is_fresh = False
        self._step = _Step.ASSIGNING
        self._parts.emit(PartitionsAssigned(added))
        if problem is not None:
            self._membership.fail("", ErrorCode.UNKNOWN_SERVER_ERROR, problem)

    def _notify_assignor(self, name: str, given: Assignment, generation_id: int) -> str | None:
        """Pass the assignment to the assignor; return the message of an exception."""
        assignor = self._assignors.get(name)
        if assignor is None:
            return None  # the generation was reset while the listener was running
        try:
            assignor.on_assignment(given, generation_id)
        except Exception as error:
            return f"the assignor {name!r} failed: {type(error).__name__}: {error}"
        return None

    # ------------------------------------------------------------ leaving

    def leave(self, operation: CloseOperation, reason: str, now_ms: int) -> None:
        """Leave the group if the member is in it."""
        membership, config, link = self._membership, self._parts.config, self._parts.link
        if membership.state in (MemberState.UNJOINED, MemberState.CLOSED):
            return
        member_id = membership.member_id
        wants = operation is CloseOperation.LEAVE_GROUP or (
            operation is CloseOperation.DEFAULT and config.group_instance_id is None
        )
        is_sent = wants and bool(member_id) and link.node is not None
        if is_sent:
            leaving = LeavingMember(member_id, reason=reason[:REASON_LENGTH_MAX])
            link.send(LeaveGroup(config.group_id or "", (leaving,)), now_ms)
        self._parts.outputs.append(LeftGroup(reason, is_sent))
        membership.reset("consumer pro-actively leaving the group", forget_member_id=True, has_left=True)

    def begin_closing(self) -> None:
        """Stop heartbeats: the last commits are done."""
        self._heartbeats.is_enabled = False

    def drop_all(self) -> None:
        """Emit the revocation of all partitions before leaving, or their loss if ownership is uncertain."""
        self._cut_short()
        owned = tuple(self._parts.subscription.positions)
        if not self._parts.subscription.is_auto_assigned or not owned:
            return
        if self._membership.is_stranger or self._membership.is_rebalancing or self._membership.has_ended:
            self._parts.emit(PartitionsLost(owned))
        else:
            self._parts.emit(PartitionsRevoked(owned))

    def recover(self) -> None:
        """Restart after a failure."""
        self._membership.reset("the application goes on after a failure", forget_member_id=False)
        self._membership.move(MemberState.UNJOINED)
        self._cut_short()
        self._parts.link.forget(JoinGroup, SyncGroup)
        self._is_joining = False
        self._assignment = self._failure = self._leading = self._commit = self._commit_deadline_ms = None
        self._retry_ms = None

    def rest(self) -> None:
        """Do nothing: a failed member may recover."""

    def _cut_short(self) -> None:
        """Stop waiting for the listener; the partitions reported to it are gone nevertheless."""
        if self._step in (_Step.PREPARING, _Step.REVOKING):
            self._parts.subscription.assign_from_group(self._kept)
        self._step = _Step.NONE


_JAVA_NAMES: dict[type, str] = {JoinGroup: "JOIN_GROUP", SyncGroup: "SYNC_GROUP"}


def _read(data: bytes) -> Assignment:
    if len(data) < _SHORTEST_ASSIGNMENT:
        raise ConsumerProtocolError(f"the assignment has {len(data)} bytes: the leader gave this member none")
    return decode_assignment(data)
