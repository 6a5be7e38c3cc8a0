"""Handlers of classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup in Kafka's order of checks (KIP-345)."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from groupcoord.config import GroupType
from groupcoord.core.events import Cause, Trigger
from groupcoord.core.groups.classic.group import GroupMetadata, GroupState, MemberMetadata, Parked
from groupcoord.core.groups.classic.rebalance import (
    CAN_REBALANCE,
    FormerMember,
    Rebalance,
    WhenAssigned,
    WhenGroupWritten,
    WhenReplaced,
)
from groupcoord.core.groups.group import Group, session_timeouts_ms, why_not_found
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.log.log_partition import Append
from groupcoord.core.log.records import CLASSIC_GROUP_KEY
from groupcoord.core.messages import (
    DescribedGroup,
    DescribeGroups,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    Reply,
    SyncGroup,
    SyncGroupResponse,
    Token,
)
from groupcoord.core.timers import Timer, TimerKey, TimerKind
from groupcoord.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Timeout of a new member's first join (KAFKA-7610); not configurable in Kafka."""

# Made once: heartbeats are the most frequent requests, and these never change.
_HEARTBEAT_RESPONSES = {code: HeartbeatResponse(code) for code in ErrorCode}


class ClassicGroups(Rebalance):
    """Handlers of classic groups."""

    group_class = GroupMetadata
    describe_request = DescribeGroups
    record_types = frozenset({CLASSIC_GROUP_KEY[0]})

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._session_timeouts_ms = session_timeouts_ms(context.config)
        self.handlers = {
            JoinGroup: self.join,
            SyncGroup: self.sync,
            Heartbeat: self.heartbeat,
            LeaveGroup: self.leave,
        }
        # Requests of other protocols convert the group or fail in handlers of their type.
        self.guest_handlers = {}
        self._timer_handlers = {
            TimerKind.SESSION: self.on_session_timer,
            TimerKind.JOIN: self.on_join_timer,
            TimerKind.SYNC: self.on_sync_timer,
        }

    def on_timer(self, key: TimerKey, now_ms: int) -> None:
        self._timer_handlers[key.kind](key, now_ms)

    def create(self, group_id: str, now_ms: int) -> GroupMetadata:
        group = GroupMetadata(group_id, self._context.partition, now_ms)
        self._context.add_group(group, now_ms)
        return group

    # ------------------------------------------------------------ JoinGroup

    def join(self, request: JoinGroup, token: Token, now_ms: int) -> None:
        """Handle a join: fail, return a member id, respond at once, or park it for the next generation."""
        # Kafka's order: group id (KAFKA-2648), session time-out, group, size, protocols, member id.
        if not request.group_id:
            self._refuse_join(token, ErrorCode.INVALID_GROUP_ID, request.member_id)
            return
        if request.session_timeout_ms not in self._session_timeouts_ms:
            self._refuse_join(token, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
            return
        group = self._groups.get(request.group_id)
        if group is not None:
            self._join_group(group, request, token, now_ms)
        elif request.member_id:
            # A member id does not create a group.
            self._refuse_join(token, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        else:
            group = self.create(request.group_id, now_ms)
            # The record of the empty group is written even if the join is refused, as in Kafka 4.
            record = group.to_record({})
            self._join_group(group, request, token, now_ms)
            # Made before the join changes the group, written after it: the join's response does not wait for it.
            self._context.writer.begin([record], WhenGroupWritten(group))

    def _join_group(self, group: GroupMetadata, request: JoinGroup, token: Token, now_ms: int) -> None:
        member_id = request.member_id
        # The size comes before the protocols, and the last to rejoin find no room (KAFKA-9844).
        size_error = group.join_error(member_id, self._config.group_max_size)
        if size_error is not ErrorCode.NONE:
            # Kafka forgets the refused id: a pending one can't join later.
            self._forget(group, member_id, now_ms)
            # Kafka answers with an empty member id here, also to a known member.
            self._refuse_join(token, size_error)
        elif not group.supports(request.protocol_type, request.protocols):  # an empty list, too (KAFKA-6005)
            self._refuse_join(token, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif not member_id:
            self._join_new(group, request, token, now_ms)
        elif member_id in group.pending_members:
            if request.group_instance_id is not None:  # only dynamic members get an id first (KIP-394)
                self._refuse_join(token, ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                self._add_member(group, member_id, request, token, now_ms)
        else:
            member = group.identify(member_id, request.group_instance_id)
            if isinstance(member, ErrorCode):
                self._refuse_join(token, member, member_id)
            else:
                self._rejoin(group, member, request, token, now_ms)

    def _refuse_join(self, token: Token, error_code: ErrorCode, member_id: str = "") -> None:
        self._effects.reply(token, JoinGroupResponse(error_code, member_id))

    def _forget(self, group: GroupMetadata, member_id: str, now_ms: int) -> None:
        timer = group.pending_members.pop(member_id, None)
        if timer is not None:
            self._timers.cancel(timer)
        member = group.members.get(member_id)
        if member is not None:
            # As in Kafka 4 this does not complete the join phase; its timer or the next event does.
            self.remove_member(group, member, Cause.GROUP_FULL, now_ms)

    def _join_new(self, group: GroupMetadata, request: JoinGroup, token: Token, now_ms: int) -> None:
        instance_id = request.group_instance_id
        member_id = self._context.new_member_id(request.client_id if instance_id is None else instance_id)
        if instance_id is not None and instance_id in group.static_members:
            # At once and in any state: of two instances with one id the last to join stays (KAFKA-8225).
            self.replace_static(group, member_id, request, token, now_ms)
        elif instance_id is None and request.requires_known_member_id:
            # A client that loses this response leaves an id but no member (KIP-394, KAFKA-7824).
            timer = Timer(TimerKey(TimerKind.SESSION, self._context.partition, group.group_id, member_id))
            group.pending_members[member_id] = timer
            self._timers.arm(timer, now_ms + request.session_timeout_ms)
            self._refuse_join(token, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add_member(group, member_id, request, token, now_ms)

    def _add_member(self, group: GroupMetadata, member_id: str, request: JoinGroup, token: Token, now_ms: int) -> None:
        # A pending id's timer has the same key as the member's.
        timer = group.pending_members.pop(member_id, None)
        if timer is None:
            timer = Timer(TimerKey(TimerKind.SESSION, self._context.partition, group.group_id, member_id))
        member = MemberMetadata(
            member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
            session_timer=timer,
            parked_join=Parked(token, request.supports_skip_assignment),
        )
        if not group.members:
            # Any type is accepted, even another one than the group had before.
            group.protocol_type = request.protocol_type
        group.add(member)
        if group.is_initial_rebalance:
            # Pending ids and replaced static members do not extend the initial rebalance.
            group.new_member_added = True
        # No session before the generation is formed: clients with a waiting join send no heartbeats (KAFKA-7610).
        self._timers.arm(timer, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._context.observer.member_added(group, member, now_ms)
        self.start_or_complete(group, Trigger(Cause.JOIN, member_id), now_ms)

    def _rejoin(
        self, group: GroupMetadata, member: MemberMetadata, request: JoinGroup, token: Token, now_ms: int
    ) -> None:
        # Names, metadata and order: a new order of preference is a change.
        is_unchanged = member.protocols == request.protocols
        is_leader = group.leader == member.member_id
        if is_unchanged and (
            group.state is GroupState.COMPLETING_REBALANCE or (group.state is GroupState.STABLE and not is_leader)
        ):
            # The response to its last join was lost; only a leader that rejoins a stable group wants a rebalance.
            # A waiting sync of the member stays, and is answered with the assignments.
            self._effects.reply(token, self.joined_response(group, member))
            return
        # Also for unchanged protocols, since the timeouts may differ (KAFKA-14009).
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        replaced = group.park_join(member, Parked(token, request.supports_skip_assignment))
        if replaced is not None:
            self._effects.reply(replaced.token, None)  # Kafka never answers a join that another one replaces
        cause = Cause.LEADER_REJOIN if is_unchanged else Cause.METADATA_CHANGE
        self.start_or_complete(group, Trigger(cause, member.member_id), now_ms)

    # ------------------------------------------------------------ SyncGroup

    def sync(self, request: SyncGroup, token: Token, now_ms: int) -> None:
        """Handle a sync: fail, respond from a stable generation, or park it until the assignments are durable."""
        if not request.group_id:
            self._effects.reply(token, SyncGroupResponse(ErrorCode.INVALID_GROUP_ID))
            return
        group = self._groups.get(request.group_id)
        if group is None:
            self._effects.reply(token, SyncGroupResponse(ErrorCode.UNKNOWN_MEMBER_ID))
            return
        # Kafka's order: identity, generation, protocol, state.
        member = group.identify(request.member_id, request.group_instance_id)
        if isinstance(member, ErrorCode):
            self._effects.reply(token, SyncGroupResponse(member))
        # A stale generation is not reported as a rebalance: clients react differently (KAFKA-2557).
        elif request.generation_id != group.generation_id:
            self._effects.reply(token, SyncGroupResponse(ErrorCode.ILLEGAL_GENERATION))
        # Requests before version 5 have neither, so skip the check (KIP-559).
        elif _differs(request.protocol_type, group.protocol_type) or _differs(
            request.protocol_name, group.protocol_name
        ):
            self._effects.reply(token, SyncGroupResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif group.state is GroupState.PREPARING_REBALANCE:
            self._effects.reply(token, SyncGroupResponse(ErrorCode.REBALANCE_IN_PROGRESS))
        else:
            # A waiting sync counts: the sync timer removes only members without one (KAFKA-12890).
            self.synced(group, member)
            if group.state is GroupState.STABLE:
                # Kafka 4 renews no session here.
                self._effects.reply(token, self.synced_response(group, member))
            else:
                self._park_sync(group, member, request, token)

    def _park_sync(self, group: GroupMetadata, member: MemberMetadata, request: SyncGroup, token: Token) -> None:
        if member.parked_sync is not None:
            # Kafka never answers a sync that another one of the member replaces.
            self._effects.reply(member.parked_sync.token, None)
        # Followers wait until the leader's assignments are durable (KAFKA-2017).
        member.parked_sync = Parked(token)
        if group.leader == member.member_id:
            # Ids that are no members are ignored; members without an assignment get an empty one.
            assignments = dict(request.assignments)
            # With its generation: a rebalance may start before the log has answered.
            written = WhenAssigned(group, group.generation_id, assignments)
            self._context.writer.begin([group.to_record(assignments)], written)

    # ------------------------------------------------------------ Heartbeat

    def heartbeat(self, request: Heartbeat, token: Token, now_ms: int) -> None:
        """Renew the member's session; the response reports a join phase."""
        group = self._groups.get(request.group_id or "")
        if group is None:
            error_code = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        else:
            member = group.identify(request.member_id, request.group_instance_id)
            if not isinstance(member, MemberMetadata):
                error_code = member
            elif request.generation_id != group.generation_id:
                error_code = ErrorCode.ILLEGAL_GENERATION
            else:
                # Heartbeats are legal during a rebalance; only its join phase is reported (KAFKA-10134).
                self._timers.arm(member.session_timer, now_ms + member.session_timeout_ms)
                is_rebalancing = group.state is GroupState.PREPARING_REBALANCE
                error_code = ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE
        self._effects.reply(token, _HEARTBEAT_RESPONSES[error_code])

    # ------------------------------------------------------------ LeaveGroup

    def leave(self, request: LeaveGroup, token: Token, now_ms: int) -> None:
        if not request.group_id:
            self._effects.reply(token, LeaveGroupResponse(ErrorCode.INVALID_GROUP_ID))
            return
        group = self._groups.get(request.group_id)
        left = tuple(
            LeftMember(
                entry.member_id,
                entry.group_instance_id,
                ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._leave_one(group, entry, now_ms),
            )
            for entry in request.members
        )
        response = LeaveGroupResponse(ErrorCode.NONE, left)
        emptied: Append | None = None
        # Only a successful entry may start a rebalance.
        gone = [entry.member_id for entry in left if entry.error_code is ErrorCode.NONE]
        # One rebalance for all entries, not one for each (KIP-345).
        if group is not None and gone:
            # Kafka 4 starts a rebalance also if only a pending id left.
            # An Empty group stays Empty after a pending id has left it.
            if group.state in CAN_REBALANCE and group.state is not GroupState.EMPTY:
                emptied = self.start_rebalance(group, Trigger(Cause.LEAVE, gone[0]), now_ms)
            else:
                emptied = self.complete_if_joined(group, now_ms)
        # The response of the last leave waits for the record of the Empty group, as in Kafka 4.
        if emptied is None:
            self._effects.reply(token, response)
        else:
            emptied.held.append(Reply(token, response))

    def _leave_one(self, group: GroupMetadata, entry: LeavingMember, now_ms: int) -> ErrorCode:
        member_id, instance_id = entry.member_id, entry.group_instance_id
        if not member_id and instance_id is not None:
            # An administrator removes a static member by its instance id alone.
            member_id = group.static_members.get(instance_id, "")
        elif member_id in group.pending_members:
            # The instance id of a leaving pending id is not checked.
            self._timers.cancel(group.pending_members.pop(member_id))
            return ErrorCode.NONE
        member = group.identify(member_id, instance_id)
        if isinstance(member, ErrorCode):
            return member
        self.remove_member(group, member, Cause.LEAVE, now_ms)
        return ErrorCode.NONE

    # ------------------------------------------------------------ replacement of static members

    def replace_static(
        self, group: GroupMetadata, member_id: str, request: JoinGroup, token: Token, now_ms: int
    ) -> None:
        """Give the member with the request's instance id a new member id, and park its join."""
        assert request.group_instance_id is not None
        member = group.members[group.static_members[request.group_instance_id]]
        former = FormerMember(
            member.member_id,
            group.leader or "",
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
        )
        # Before the update: Kafka renews the session with the old timeout.
        self._rename(group, member, member_id, now_ms)
        self._context.observer.member_replaced(group, former.member_id, member, now_ms)
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        # Counted as joined from here on, in any state of the group.
        group.park_join(member, Parked(token, request.supports_skip_assignment))
        # An unwritten id would be lost in a failover, and the old one would fence the live member (KAFKA-10284).
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            assignments = {key: other.assignment for key, other in group.members.items()}
            written = WhenReplaced(group, former, member_id)
            self._context.writer.begin([group.to_record(assignments)], written)
        else:
            # In CompletingRebalance the leader's assignment names the old id, so all members rejoin (KAFKA-9801).
            self.start_or_complete(group, Trigger(Cause.STATIC_REPLACE, member_id), now_ms)

    def _rename(self, group: GroupMetadata, member: MemberMetadata, member_id: str, now_ms: int) -> None:
        """Change a member's id and renew its session; requests that wait under the old id are fenced."""
        old_member_id = member.member_id
        join = group.take_join(member)
        if join is not None:
            self._effects.reply(join.token, JoinGroupResponse(ErrorCode.FENCED_INSTANCE_ID, old_member_id))
        if member.parked_sync is not None:
            self._effects.reply(member.parked_sync.token, SyncGroupResponse(ErrorCode.FENCED_INSTANCE_ID))
            member.parked_sync = None
        group.rename(member, member_id)
        # Kafka treats it as a known member: its session does not end while its join waits.
        member.is_new = False
        self._timers.cancel(member.session_timer)
        member.session_timer = Timer(TimerKey(TimerKind.SESSION, self._context.partition, group.group_id, member_id))
        self.renew_session(member, now_ms)

    def answer_replacement(self, written: WhenReplaced, now_ms: int) -> None:
        group = written.group
        member = group.members.get(written.new_member_id)
        # A rebalance that started during the write answers the join.
        if group.state is not GroupState.STABLE or member is None:
            return
        join = group.take_join(member)
        if join is None:
            # The join was answered after the append timeout; a later replacement may have restored the id.
            return
        response = self.joined_response(group, member)
        if not join.supports_skip_assignment:
            # Older clients would assign again as leader, so they get the leader's old id (KIP-814).
            response = evolve(response, leader=written.former.leader, members=())
        elif group.leader == member.member_id:
            response = evolve(response, skip_assignment=True)
        self._effects.reply(join.token, response)

    def undo_replacement(self, written: WhenReplaced, error_code: ErrorCode, now_ms: int) -> None:
        """Restore the old id, protocols and timeouts, and fail the join that waits for the new one."""
        group = written.group
        member = group.members.get(written.new_member_id)
        join = None if member is None else group.take_join(member)
        # A later round or replacement has answered or removed the member meanwhile.
        if member is None or join is None:
            return
        former = written.former
        # The replacement had changed the timeouts as well (KAFKA-14009).
        group.update(member, former.protocols, former.rebalance_timeout_ms, former.session_timeout_ms)
        self._rename(group, member, former.member_id, now_ms)
        self._context.observer.member_replaced(group, written.new_member_id, member, now_ms)
        # Kafka's form of this error: no member id, but the group's generation and leader.
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

    def undo_refused_replacement(self, written: WhenReplaced, error_code: ErrorCode, now_ms: int) -> None:
        """Restore the old id after a refused write, also in a later replacement that is in flight."""
        self.undo_replacement(written, error_code, now_ms)
        for append in self._context.writer.in_flight:
            later = append.continuation
            if (
                isinstance(later, WhenReplaced)
                and later.group is written.group
                and later.former.member_id == written.new_member_id
            ):
                # If that write fails, too, the member must not get an id that the log never had.
                later.former = written.former

    # ------------------------------------------------------------ descriptions, loads and conversions

    def describe(self, group_id: str) -> DescribedGroup:
        group = self._context.visible(group_id)
        if isinstance(group, GroupMetadata):
            return group.described()
        error_message = why_not_found(group, group_id, GroupType.CLASSIC)
        return DescribedGroup(group_id, ErrorCode.GROUP_ID_NOT_FOUND, error_message, GroupState.DEAD.value)

    def begin_rebalance(self, group: Group, now_ms: int) -> bool:
        assert isinstance(group, GroupMetadata)
        if group.is_empty or group.state not in CAN_REBALANCE:
            return False
        self.start_rebalance(group, Trigger(Cause.LEADER_REJOIN), now_ms)
        return True

    def load(self, group_id: str, now_ms: int) -> None:
        group = self.bring_to_life(group_id, now_ms)
        self._context.observer.group_loaded(group_id, group.generation_id, len(group.members), now_ms)
        # A lowered limit shrinks a loaded group by a rebalance, and the first to rejoin stay (KAFKA-7641).
        if len(group.members) > self._context.config.group_max_size:
            self.start_rebalance(group, Trigger(Cause.LOAD), now_ms)

    def bring_to_life(self, group_id: str, now_ms: int) -> GroupMetadata:
        record = self._context.writer.hard.classic_record(group_id)
        if record is None:
            # The log has only offsets: a simple group, without a state timestamp.
            group = GroupMetadata(group_id, self._context.partition, None)
        else:
            group = GroupMetadata.from_record(record, self._context.partition)
        self._context.groups[group_id] = group
        for member in group.members.values():
            # The log has no heartbeats, so all sessions start with the load.
            self.renew_session(member, now_ms)
        return group

    def go_on(
        self,
        group: GroupMetadata,
        protocols: Mapping[str, tuple[JoinProtocol, ...]],
        trigger: Trigger | None,
        now_ms: int,
    ) -> None:
        """Continue with a converted group."""
        for member_id, supported in protocols.items():
            member = group.members[member_id]
            # The record has only the chosen protocol; members offered more.
            group.update(member, supported, member.rebalance_timeout_ms, member.session_timeout_ms)
        if trigger is not None:
            self.start_rebalance(group, trigger, now_ms)


def _differs(given: str | None, current: str | None) -> bool:
    return given is not None and current is not None and given != current
