"""Rebalance of a classic group: join phase, generation, assignments, and timers.

Kafka's rules: KIP-134 (initial delay), KIP-345 (static members), pending-sync timeout (KAFKA-12890).
"""

from __future__ import annotations

from typing import cast

from groupcoord.core.events import Cause, Trigger
from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.groups.classic.group import GroupMetadata, GroupState, MemberMetadata
from groupcoord.core.groups.group import Group
from groupcoord.core.handler_context import GroupKind, HandlerContext
from groupcoord.core.log.log_partition import Append, Continuation
from groupcoord.core.messages import JoinGroupResponse, JoinProtocol, SyncGroupResponse
from groupcoord.core.timers import TimerKey
from groupcoord.errors import ErrorCode


@define(eq=False)
class WhenGroupWritten(Continuation):
    """Record of a classic group in flight: of a group that a join created, or that became empty."""

    group: GroupMetadata

    def concerns(self, group: Group) -> bool:
        return self.group is group


@define(eq=False)
class WhenAssigned(WhenGroupWritten):
    """Record with the leader's assignments in flight."""

    generation_id: int
    assignments: dict[str, bytes]

    def on_durable(self, context: HandlerContext, now_ms: int) -> None:
        context.kinds[GroupMetadata].assign(self, now_ms)

    def on_refused(self, context: HandlerContext, error_code: ErrorCode, now_ms: int) -> None:
        context.kinds[GroupMetadata].fail_assignment(self, error_code, now_ms)

    # Members rejoin after the timeout; a late success then finds another state.
    on_overdue = on_refused


@frozen
class FormerMember:
    """State of a static member before its replacement, and the leader at that time."""

    member_id: str
    leader: str
    protocols: tuple[JoinProtocol, ...]
    rebalance_timeout_ms: int
    session_timeout_ms: int


@define(eq=False)
class WhenReplaced(WhenGroupWritten):
    """Record with the new id of a static member in flight (KIP-345)."""

    former: FormerMember
    new_member_id: str

    def on_durable(self, context: HandlerContext, now_ms: int) -> None:
        context.kinds[GroupMetadata].answer_replacement(self, now_ms)

    def on_refused(self, context: HandlerContext, error_code: ErrorCode, now_ms: int) -> None:
        context.kinds[GroupMetadata].undo_refused_replacement(self, error_code, now_ms)

    def on_overdue(self, context: HandlerContext, error_code: ErrorCode, now_ms: int) -> None:
        # The log may still accept this append, so later replacements build on its id.
        context.kinds[GroupMetadata].undo_replacement(self, error_code, now_ms)


CAN_REBALANCE = frozenset({GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE})


class Rebalance(GroupKind):
    """Rebalances of the classic groups of one log partition: the base of their handlers."""

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self._observer = context.observer
        self._config = context.config
        self._effects = context.effects
        self._groups = cast(dict[str, GroupMetadata], context.groups)
        self._timers = context.timers
        self._writer = context.writer

    # ------------------------------------------------------------ entering and ending the join phase

    def start_or_complete(self, group: GroupMetadata, trigger: Trigger, now_ms: int) -> Append | None:
        """Start a rebalance after a change of members, or complete a join phase that all have joined."""
        if group.state in CAN_REBALANCE:
            return self.start_rebalance(group, trigger, now_ms)
        return self.complete_if_joined(group, now_ms)

    def start_rebalance(self, group: GroupMetadata, trigger: Trigger, now_ms: int) -> Append | None:
        """Move to PreparingRebalance and wait for joins; return the record of a group that became Empty, if it did."""
        self._observer.rebalance_started(group, trigger, now_ms)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # Before the state changes: syncs that wait belong to the generation that ends here.
            self.reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        # The former generation's syncs are no longer awaited.
        group.pending_sync.clear()
        self._timers.cancel(group.sync_timer)
        group.to(GroupState.PREPARING_REBALANCE, now_ms)
        if group.is_initial_rebalance:
            # Kafka sets no lower bound for the delay.
            delay_ms = max(self._config.group_initial_rebalance_delay_ms, 0)
            # From Empty it waits for more members, even when all have joined (KIP-134).
            group.remaining_delay_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            # Even without a delay: Kafka completes the phase with a tick, not at once.
            self._timers.arm(group.join_timer, now_ms + delay_ms)
            return None
        if group.all_joined:  # also counts pending ids (KAFKA-7909)
            return self.complete_join(group, now_ms)
        # Clients may send a negative rebalance timeout, which Kafka does not check.
        self._timers.arm(group.join_timer, now_ms + max(group.rebalance_timeout_ms, 0))
        return None

    def complete_if_joined(self, group: GroupMetadata, now_ms: int) -> Append | None:
        """Complete the join phase if all have joined, except the initial one, which waits for its timer."""
        if group.state is GroupState.PREPARING_REBALANCE and group.all_joined and not group.is_initial_rebalance:
            return self.complete_join(group, now_ms)
        return None

    def on_join_timer(self, key: TimerKey, now_ms: int) -> None:
        group = self._groups[key.group_id]
        # Each newcomer extends the initial delay, up to the longest rebalance time-out (KIP-134, KAFKA-4925).
        if group.is_initial_rebalance and group.new_member_added and group.remaining_delay_ms:
            group.new_member_added = False
            delay_ms = min(max(self._config.group_initial_rebalance_delay_ms, 0), group.remaining_delay_ms)
            group.remaining_delay_ms -= delay_ms
            self._timers.arm(group.join_timer, now_ms + delay_ms)
        else:
            self.complete_join(group, now_ms)

    def complete_join(self, group: GroupMetadata, now_ms: int) -> Append | None:
        """Form the next generation from the joined members, or make the group Empty."""
        self._timers.cancel(group.join_timer)
        # A static member's absence is a restart until its session ends (KAFKA-8220).
        # Dynamic members without a join are out; static ones stay with their old protocols.
        for member in [m for m in group.members.values() if not m.is_static and m.parked_join is None]:
            self.remove_member(group, member, Cause.REBALANCE_TIMEOUT, now_ms)
        # Only static members that did not rejoin are left: none can lead, so the phase is repeated.
        if not group.elect_joined_leader() and group.members:
            group.remaining_delay_ms = 0  # Kafka no longer extends the initial rebalance for newcomers
            # At least a millisecond, or the timer would repeat forever at one moment.
            self._timers.arm(group.join_timer, now_ms + max(group.rebalance_timeout_ms, 1))
            return None
        # The generation increases even if it turns out Empty, and before its record is written.
        group.generation_id += 1
        group.pending_sync.clear()
        if not group.members:
            return self._fall_empty(group, now_ms)
        group.protocol_name = group.select_protocol()
        if group.protocol_name is None:
            # A single member that lists its only protocol twice leaves no candidate. Kafka fails inside its timer:
            # nothing is answered, and the group stays until a leave or the new member's timeout.
            return None
        group.subscribed_topics = group.subscriptions()
        group.to(GroupState.COMPLETING_REBALANCE, now_ms)
        self._answer_joins(group, now_ms)
        # A member with heartbeats but without a sync would keep the group here forever (KAFKA-12890).
        self._timers.arm(group.sync_timer, now_ms + max(group.rebalance_timeout_ms, 0))
        return None

    def _fall_empty(self, group: GroupMetadata, now_ms: int) -> Append:
        group.protocol_name = None
        # The protocol type stays: it decides how the offsets of the empty group expire (KIP-211).
        group.subscribed_topics = group.subscriptions()
        group.to(GroupState.EMPTY, now_ms)
        append = self._writer.begin([group.to_record({})], WhenGroupWritten(group))
        self._observer.rebalance_completed(group, now_ms)
        return append

    def _answer_joins(self, group: GroupMetadata, now_ms: int) -> None:
        for member_id, member in group.members.items():
            # Also static members that did not rejoin have to sync, or are removed.
            member.is_new = False
            group.pending_sync[member_id] = None
            join = group.take_join(member)
            if join is not None:
                self._effects.reply(join.token, self.joined_response(group, member))
            self.renew_session(member, now_ms)  # replaces the time-out of a new member's join (KAFKA-9752)

    def joined_response(self, group: GroupMetadata, member: MemberMetadata) -> JoinGroupResponse:
        """Return a member's response for the current generation; only the leader sees the members."""
        is_leader, protocol_name = group.leader == member.member_id, group.protocol_name
        return JoinGroupResponse(
            ErrorCode.NONE,
            member.member_id,
            group.generation_id,
            group.protocol_type,
            protocol_name,
            group.leader or "",
            members=tuple(each.joined(protocol_name) for each in group.members.values()) if is_leader else (),
        )

    # ------------------------------------------------------------ assignments

    def synced_response(self, group: GroupMetadata, member: MemberMetadata) -> SyncGroupResponse:
        return SyncGroupResponse(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)

    def assign(self, written: WhenAssigned, now_ms: int) -> None:
        group = written.group
        # Not before this: a new coordinator could have another leader's assignments in its log (KAFKA-2017).
        if not self._still_waits(written):
            return
        for member_id, member in group.members.items():
            member.assignment = written.assignments.get(member_id, b"")
            if member.parked_sync is not None:
                self._effects.reply(member.parked_sync.token, self.synced_response(group, member))
                member.parked_sync = None
                # Only of members with a waiting sync: in Kafka the response starts the session.
                self.renew_session(member, now_ms)
        group.to(GroupState.STABLE, now_ms)
        self._observer.members_assigned(group, now_ms)
        self._observer.rebalance_completed(group, now_ms)

    def fail_assignment(self, written: WhenAssigned, error_code: ErrorCode, now_ms: int) -> None:
        # A refused write of an ended generation concerns no member.
        if self._still_waits(written):
            self.reset_assignments(written.group, error_code, now_ms)
            self.start_rebalance(written.group, Trigger(Cause.ASSIGNMENT_FAILED), now_ms)

    def _still_waits(self, written: WhenAssigned) -> bool:
        group = written.group
        return group.state is GroupState.COMPLETING_REBALANCE and group.generation_id == written.generation_id

    def reset_assignments(self, group: GroupMetadata, error_code: ErrorCode, now_ms: int) -> None:
        for member in group.members.values():
            # DescribeGroups shows these empty assignments during the next round.
            member.assignment = b""
            if member.parked_sync is not None:
                self._effects.reply(member.parked_sync.token, SyncGroupResponse(error_code))
                member.parked_sync = None
                self.renew_session(member, now_ms)

    def synced(self, group: GroupMetadata, member: MemberMetadata) -> None:
        group.pending_sync.pop(member.member_id, None)
        if not group.pending_sync:
            self._timers.cancel(group.sync_timer)

    def on_sync_timer(self, key: TimerKey, now_ms: int) -> None:
        group = self._groups[key.group_id]
        # A static replacement leaves the old id here, as in Kafka.
        late = [group.members[member_id] for member_id in group.pending_sync if member_id in group.members]
        # Kafka removes late members, also static ones and the leader, and rebalances (KAFKA-12890).
        for member in late:
            self.remove_member(group, member, Cause.SYNC_TIMEOUT, now_ms)
        self.start_rebalance(group, Trigger(Cause.SYNC_TIMEOUT, late[0].member_id if late else ""), now_ms)

    # ------------------------------------------------------------ sessions

    def renew_session(self, member: MemberMetadata, now_ms: int) -> None:
        self._timers.arm(member.session_timer, now_ms + member.session_timeout_ms)

    def on_session_timer(self, key: TimerKey, now_ms: int) -> None:
        # Group and member exist: their timers are cancelled with them.
        group, member_id = self._groups[key.group_id], key.member_id
        # A pending id that expires may complete the join phase like a member (KAFKA-7909).
        if group.pending_members.pop(member_id, None) is None:
            member = group.members[member_id]
            # Clients send no heartbeats while a request of theirs waits; its response starts the session.
            if member.keeps_session:
                if group.state is GroupState.STABLE:
                    # A replaced static member waits for the log; that response starts no session.
                    self.renew_session(member, now_ms)
                return
            self.remove_member(group, member, Cause.SESSION_EXPIRY, now_ms)
        elif group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.state is not GroupState.PREPARING_REBALANCE:
            self.start_rebalance(group, Trigger(Cause.SESSION_EXPIRY, member_id), now_ms)
        elif group.all_joined:
            # Unlike every other way to end the join phase, Kafka's expiry does not spare the initial rebalance.
            self.complete_join(group, now_ms)

    def remove_member(self, group: GroupMetadata, member: MemberMetadata, cause: Cause, now_ms: int) -> None:
        # A timer left behind would start a rebalance later, without a member (KAFKA-7196).
        self._timers.cancel(member.session_timer)
        group.remove(member)
        self._observer.member_removed(group, member, cause, now_ms)
        if member.parked_join is not None:
            self._effects.reply(member.parked_join.token, JoinGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID))
        if member.parked_sync is not None:
            # Kafka never answers the waiting sync of a member that is gone.
            self._effects.reply(member.parked_sync.token, None)
