"""One classic group in memory: its states, membership, the vote for a protocol, and leadership."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from enum import Enum
from typing import NamedTuple

from groupcoord.config import Config, GroupType
from groupcoord.core.consumer_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from groupcoord.core.fast_construct import define, plain_members
from groupcoord.core.groups.base.state import count
from groupcoord.core.groups.group import BEFORE_ALL_APPENDS
from groupcoord.core.javacompat import hash_map_order
from groupcoord.core.log.records import (
    CLASSIC_GROUP_KEY,
    NO_TIMESTAMP,
    CommitKind,
    GroupMetadataRecord,
    GroupTombstone,
    MemberRecord,
    Record,
    RecordsOfGroup,
)
from groupcoord.core.messages import (
    DescribedGroup,
    DescribedMember,
    GroupToFetch,
    JoinedMember,
    JoinGroupResponse,
    JoinProtocol,
    ListedGroup,
    OffsetCommit,
    Reply,
    SyncGroupResponse,
    Token,
    TopicToCommit,
    TxnOffsetCommit,
    Waiting,
)
from groupcoord.core.timers import Timer, TimerKey, TimerKind, TimerQueue
from groupcoord.errors import NO_ERROR, ErrorCode, IllegalTransitionError, InvariantError


@plain_members
class GroupState(Enum):
    """States by Kafka's names, with their responses and exits. Each but Dead may also end by an unload (Dead)."""

    EMPTY = "Empty"
    """No members; perhaps offsets, and pending ids that have not joined yet.

    Responses: a join starts the initial rebalance; sync and heartbeat fail with UNKNOWN_MEMBER_ID; commits without a
    generation succeed. Exits: the first member joins (PreparingRebalance); deletion or expiry (Dead).
    """

    PREPARING_REBALANCE = "PreparingRebalance"
    """Join phase of the next generation.

    Responses: joins wait; sync and heartbeat fail with REBALANCE_IN_PROGRESS; commits of the current generation
    succeed. Exits: all have joined or the time is over (CompletingRebalance, or Empty without members).
    """

    COMPLETING_REBALANCE = "CompletingRebalance"
    """Generation without durable assignments of its leader.

    Responses: syncs wait; heartbeat NONE; commits fail with REBALANCE_IN_PROGRESS. Exits: the assignments are durable
    (Stable); a member joins, changes, leaves, expires or never syncs, or the write failed (PreparingRebalance).
    """

    STABLE = "Stable"
    """Generation with durable assignments.

    Responses: sync returns the assignment; heartbeat NONE; commits of this generation succeed. Exits: a member joins,
    changes, leaves, expires or never syncs, or the leader rejoins (PreparingRebalance).
    """

    DEAD = "Dead"
    """The group was deleted, has expired, or its log partition was unloaded. Final."""


LEGAL_TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}


class Parked(NamedTuple):
    """A request that waits for its response. ``supports_skip_assignment`` matters to joins only (KIP-814)."""

    token: Token
    supports_skip_assignment: bool = False


@define(eq=False, repr=False)
class MemberMetadata:
    """Soft state of a member of a classic group.

    Attributes:
        protocols: in the member's order of preference.
        is_new: no generation with this member is complete yet; its first join may wait for five minutes.
        parked_join, parked_sync: its waiting requests; at most one of each.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[JoinProtocol, ...]
    session_timer: Timer
    assignment: bytes = b""
    is_new: bool = True
    parked_join: Parked | None = None
    parked_sync: Parked | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def keeps_session(self) -> bool:
        """True while a waiting request proves that the member lives; a new member's first join does not."""
        return not self.is_new and (self.parked_join is not None or self.parked_sync is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: set[str]) -> str | None:
        return next((name for name, _ in self.protocols if name in candidates), None)

    def joined(self, protocol_name: str | None) -> JoinedMember:
        return JoinedMember(self.member_id, self.group_instance_id, self.metadata(protocol_name))

    def described(self, protocol_name: str | None) -> DescribedMember:
        """Return the member as administrators see it; without metadata where ``protocol_name`` is None."""
        return DescribedMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            b"" if protocol_name is None else self.metadata(protocol_name),
            self.assignment,
        )

    def to_record(self, protocol_name: str | None, assignment: bytes) -> MemberRecord:
        return MemberRecord(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol_name),
            assignment,
        )

    def __repr__(self) -> str:
        return f"MemberMetadata({self.member_id!r}, group_instance_id={self.group_instance_id!r})"


class GroupMetadata:
    """Soft state of a classic group. :meth:`to` makes its transitions.

    Attributes:
        previous_state: the state before the current one; ``Dead`` at first.
        state_timestamp_ms: time of the last transition; None if unknown after a load.
        pending_members: ids sent with MEMBER_ID_REQUIRED without a join yet, with their timers (KIP-394).
        pending_sync: members of the current generation that have not synced yet.
        subscribed_topics: the topics of the last completed join phase; None if unknown.
        new_member_added: a member joined during the current delay of the initial rebalance, which extends it.
        remaining_delay_ms: remaining extension of the initial rebalance.
    """

    may_expire = True

    def __init__(self, group_id: str, partition: int, now_ms: int | None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = now_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader: str | None = None
        self.members: dict[str, MemberMetadata] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, Timer] = {}
        self.pending_sync: dict[str, None] = {}
        self.supported_protocols: dict[str, int] = {}
        self.waiting_joins = 0
        self.subscribed_topics: frozenset[str] | None = None
        self.first_append = BEFORE_ALL_APPENDS
        self.waiting: list[Waiting] = []
        self.overdue: list[TimerKey] = []
        self.new_member_added = False
        self.remaining_delay_ms = 0
        self.join_timer = Timer(TimerKey(TimerKind.JOIN, partition, group_id))
        self.sync_timer = Timer(TimerKey(TimerKind.SYNC, partition, group_id))

    @classmethod
    def from_record(cls, record: GroupMetadataRecord, partition: int) -> GroupMetadata:
        timestamp = record.state_timestamp_ms
        group = cls(record.group_id, partition, None if timestamp == NO_TIMESTAMP else timestamp)
        # The record of a group without a first generation has an empty type.
        group.protocol_type = record.protocol_type or None
        group.protocol_name = record.protocol_name
        group.generation_id = record.generation_id
        for member in record.members:
            rebalance_timeout_ms = member.rebalance_timeout_ms
            group.add(
                MemberMetadata(
                    member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    # Records of version 0 have no rebalance timeout, and mean the session timeout.
                    rebalance_timeout_ms=member.session_timeout_ms
                    if rebalance_timeout_ms == -1
                    else rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    # The record has the chosen protocol alone, so a rejoin with others is a change.
                    protocols=(JoinProtocol(record.protocol_name or "", member.subscription),),
                    session_timer=Timer(TimerKey(TimerKind.SESSION, partition, record.group_id, member.member_id)),
                    assignment=member.assignment,
                    # Members in a record have a generation, so a waiting request keeps their session.
                    is_new=False,
                )
            )
        # An empty group has no leader; a damaged record may name one that is no member.
        if record.leader in group.members:
            group.leader = record.leader
        # A rebalance in progress is not logged: clients find the last assigned generation.
        if group.members:
            group.state = GroupState.STABLE
        group.subscribed_topics = group.subscriptions()
        return group

    # ------------------------------------------------------------ state

    def to(self, state: GroupState, now_ms: int) -> None:
        if state not in LEGAL_TRANSITIONS[self.state]:
            raise IllegalTransitionError(f"a group cannot move from {self.state.value} to {state.value}")
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms

    @property
    def is_initial_rebalance(self) -> bool:
        """True while the group waits for its first members (KIP-134)."""
        return self.state is GroupState.PREPARING_REBALANCE and self.previous_state is GroupState.EMPTY

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.waiting_joins and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max([member.rebalance_timeout_ms for member in self.members.values()], default=0)

    # ------------------------------------------------------------ members

    def identify(self, member_id: str, group_instance_id: str | None) -> MemberMetadata | ErrorCode:
        if group_instance_id is not None:
            owner = self.static_members.get(group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            # Kafka checks the pair of ids before membership, so a fenced client stops (KIP-345).
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        # A known static member may omit its instance id (KIP-345). Pending ids are no members.
        return self.members.get(member_id, ErrorCode.UNKNOWN_MEMBER_ID)

    def join_error(self, member_id: str, max_size: int) -> ErrorCode:
        """Return NONE if ``group.max.size`` leaves room for a join with this member id (KIP-389)."""
        member = self.members.get(member_id)
        if self.state is GroupState.EMPTY:
            # The limit is at least 1, and pending ids do not count.
            return ErrorCode.NONE
        if self.state is GroupState.PREPARING_REBALANCE:
            # In the join phase only joined members count, in the order of their rejoin (KAFKA-9844).
            is_counted, size = member is not None and member.parked_join is not None, self.waiting_joins
        else:
            is_counted, size = member is not None, len(self.members)
        return ErrorCode.NONE if is_counted or size < max_size else ErrorCode.GROUP_MAX_SIZE_REACHED

    def add(self, member: MemberMetadata) -> None:
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        # Once per entry: a name that a member lists twice counts twice, as in Kafka.
        for name, _ in member.protocols:
            self.supported_protocols[name] = self.supported_protocols.get(name, 0) + 1
        if member.parked_join is not None:
            self.waiting_joins += 1
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: MemberMetadata) -> None:
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        self._forget_protocols(member)
        if member.parked_join is not None:
            self.waiting_joins -= 1
        self.pending_sync.pop(member.member_id, None)
        if self.leader == member.member_id:
            # Kafka takes the first of a hash map of random ids; here the first that joined.
            self.leader = next(iter(self.members), None)

    def rename(self, member: MemberMetadata, member_id: str) -> None:
        del self.members[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        # As in Kafka the old id stays in ``pending_sync``: the member counts as not synced.
        member.member_id = member_id
        self.members[member_id] = member
        assert member.group_instance_id is not None
        self.static_members[member.group_instance_id] = member_id

    def update(
        self,
        member: MemberMetadata,
        protocols: tuple[JoinProtocol, ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        if protocols != member.protocols:  # a rejoin rarely changes them
            self._forget_protocols(member)
            member.protocols = protocols
            for name, _ in protocols:
                count(self.supported_protocols, name, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def _forget_protocols(self, member: MemberMetadata) -> None:
        for name, _ in member.protocols:
            count(self.supported_protocols, name, -1)

    # ------------------------------------------------------------ waiting requests

    def park_join(self, member: MemberMetadata, join: Parked) -> Parked | None:
        """Set a member's waiting join; return the one that it replaces."""
        replaced, member.parked_join = member.parked_join, join
        if replaced is None:
            self.waiting_joins += 1
        return replaced

    def take_join(self, member: MemberMetadata) -> Parked | None:
        join, member.parked_join = member.parked_join, None
        if join is not None:
            self.waiting_joins -= 1
        return join

    def parked_tokens(self) -> list[Token]:
        parked = [p for m in self.members.values() for p in (m.parked_join, m.parked_sync) if p is not None]
        return [p.token for p in parked] + [entry.token for entry in self.waiting]

    # ------------------------------------------------------------ protocol, leader, generation

    def supports(self, protocol_type: str, protocols: tuple[JoinProtocol, ...]) -> bool:
        """Return whether a member with these protocols could share a generation with all members."""
        if self.state is GroupState.EMPTY:
            # An empty list or type is refused even for the first member (KAFKA-6005).
            return bool(protocol_type) and bool(protocols)
        size = len(self.members)
        # A member's former protocols count: alone in a group it can't change to a disjoint list.
        return protocol_type == self.protocol_type and any(
            self.supported_protocols.get(name, 0) == size for name, _ in protocols
        )

    def select_protocol(self) -> str | None:
        """Return the protocol with the most votes among those that all members support, if any."""
        size = len(self.members)
        # Also members that have not rejoined vote, with their last protocols.
        candidates = {name for name, supporters in self.supported_protocols.items() if supporters == size}
        if not candidates:
            return None
        votes: Counter[str] = Counter()
        for member in self.members.values():
            # A name that one member lists twice counts twice, so another may lack the candidate.
            vote = member.vote(candidates)
            if vote is None:
                return None
            votes[vote] += 1
        most = max(votes.values())
        # Kafka 4 breaks ties by the order of a Java ``HashMap``, not by the order of joins.
        return next(name for name in hash_map_order(votes) if votes[name] == most)

    def elect_joined_leader(self) -> bool:
        """Return whether a member with a waiting join leads, after electing one if necessary."""
        # The former leader stays, even if others joined before it.
        leader = self.members.get(self.leader) if self.leader is not None else None
        if leader is not None and leader.parked_join is not None:
            return True
        for member in self.members.values():
            if member.parked_join is not None:
                self.leader = member.member_id
                return True
        return False

    def subscriptions(self) -> frozenset[str] | None:
        """Return the topics that the members subscribe to under the chosen protocol; None if unknown."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.protocol_name is None:
            # Empty groups of consumers use no topic, so OffsetDelete may delete all their offsets.
            return None if self.members or self.protocol_type != CONSUMER_PROTOCOL_TYPE else frozenset()
        return subscribed_topics(member.metadata(self.protocol_name) for member in self.members.values())

    def to_record(self, assignments: dict[str, bytes]) -> GroupMetadataRecord:
        timestamp = self.state_timestamp_ms
        return GroupMetadataRecord(
            self.group_id,
            self.protocol_type or "",
            self.generation_id,
            self.protocol_name,
            self.leader,
            NO_TIMESTAMP if timestamp is None else timestamp,
            tuple(
                [
                    member.to_record(self.protocol_name, assignments.get(member_id, b""))
                    for member_id, member in self.members.items()
                ]
            )
            if self.members
            else (),
        )

    # ------------------------------------------------------------ interface of all groups

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    def commit_error(
        self, request: OffsetCommit, topics: tuple[TopicToCommit, ...], timers: TimerQueue, now_ms: int
    ) -> ErrorCode:
        # Consumers that assign partitions themselves commit with generation -1.
        if request.generation_id < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        member = self.identify(request.member_id, request.group_instance_id)
        if not isinstance(member, MemberMetadata):
            return member
        # Before the state: ILLEGAL_GENERATION wins over REBALANCE_IN_PROGRESS.
        if request.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        # Commits succeed during the join phase, when members commit before they rejoin (KAFKA-10134).
        if self.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        # A commit counts as a heartbeat, before its partitions are checked (KAFKA-3470).
        timers.arm(member.session_timer, now_ms + member.session_timeout_ms)
        return NO_ERROR

    def transactional_commit_error(self, request: TxnOffsetCommit) -> ErrorCode:
        # Producers before KIP-447 name no member, and may always commit.
        is_anonymous = not request.member_id and request.group_instance_id is None
        if request.generation_id < 0 and (is_anonymous or self.state is GroupState.EMPTY):
            return ErrorCode.NONE
        member = self.identify(request.member_id, request.group_instance_id)
        if isinstance(member, ErrorCode):
            return member
        # In CompletingRebalance, too: only plain commits are refused there.
        return ErrorCode.NONE if request.generation_id == self.generation_id else ErrorCode.ILLEGAL_GENERATION

    def fetch_error(self, wanted: GroupToFetch) -> ErrorCode:
        # Kafka ignores member id and epoch of a fetch from a classic group.
        return ErrorCode.NONE

    def offset_deletion_error(self) -> ErrorCode:
        # The topics of members of another protocol type are unknown.
        if self.state is not GroupState.EMPTY and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def uses_topic(self, topic: str) -> bool:
        """Return whether members used a topic when the last join phase ended; if unknown, any for consumers."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def offset_age_base_ms(self, commit: CommitKind) -> int | None:
        # The group never had members: consumers that assign partitions themselves (KIP-211).
        if self.protocol_type is None:
            return commit.commit_timestamp_ms
        if self.state is GroupState.EMPTY:
            # Records before version 3 lack the time at which the group became empty (KAFKA-10401).
            return commit.commit_timestamp_ms if self.state_timestamp_ms is None else self.state_timestamp_ms
        topics = self.subscribed_topics
        # During a rebalance the subscriptions are unknown, so nothing expires (KAFKA-13636).
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.state is not GroupState.STABLE or topics is None:
            return None
        return None if commit.topic in topics else commit.commit_timestamp_ms

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.protocol_type or "", self.state.value, GroupType.CLASSIC.value)

    def described(self) -> DescribedGroup:
        """Return the group as DescribeGroups shows it: metadata and protocol in Stable only."""
        # In other states administrators see assignments, but no metadata.
        shown_protocol = self.protocol_name if self.state is GroupState.STABLE else None
        return DescribedGroup(
            self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=shown_protocol or "",
            members=tuple(member.described(shown_protocol) for member in self.members.values()),
        )

    def tombstones(self) -> list[Record]:
        return [GroupTombstone(self.group_id)]

    def end(self, now_ms: int) -> None:
        self.pending_members.clear()
        self.to(GroupState.DEAD, now_ms)

    def take_waiting(self) -> list[Waiting]:
        # Only of a conversion or deletion: otherwise memory is ahead of the log here.
        waiting, self.waiting = self.waiting, []
        self.overdue.clear()
        return waiting

    def refuse_waiting(self, error_code: ErrorCode, *, names_members: bool = True) -> list[Reply]:
        replies = []
        for member in self.members.values():
            join = self.take_join(member)
            if join is not None:
                # A refused creation answers with an empty id, an unload with the member's own.
                member_id = member.member_id if names_members else ""
                replies.append(Reply(join.token, JoinGroupResponse(error_code, member_id)))
            if member.parked_sync is not None:
                replies.append(Reply(member.parked_sync.token, SyncGroupResponse(error_code)))
                member.parked_sync = None
        return replies

    def topics_changed(self, names: Collection[str]) -> None:
        """Ignore it: members watch their topics."""

    def timers(self) -> Iterator[Timer]:
        yield self.join_timer
        yield self.sync_timer
        yield from self.pending_members.values()
        yield from (member.session_timer for member in self.members.values())

    def member_ids(self) -> Collection[str]:
        return self.members.keys()

    def counted_size(self) -> int:
        # A static member that did not rejoin stays in the generation without taking room.
        if self.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return self.waiting_joins
        return max(self.waiting_joins, len(self.members) - len(self.static_members))

    def max_size(self, config: Config) -> int:
        return config.group_max_size

    # ------------------------------------------------------------ checks

    def check_durable(self, records: RecordsOfGroup | None) -> None:
        _, record = (records or {}).get(CLASSIC_GROUP_KEY, (None, None))
        # A generation is logged with its assignments, so other states may be ahead of the log.
        is_durable = isinstance(record, GroupMetadataRecord) and record.generation_id == self.generation_id
        if self.state is GroupState.STABLE and not is_durable:
            raise InvariantError(f"{self!r} is Stable, but the log has {record!r}")

    def check(self) -> None:
        for rule, holds in self._invariants().items():
            if not holds:
                raise InvariantError(f"group {self.group_id!r} in {self.state.value}: {rule}")

    def _invariants(self) -> dict[str, bool]:
        members = self.members.values()
        statics = {m.group_instance_id: m.member_id for m in members if m.group_instance_id is not None}
        counts = Counter(name for m in members for name, _ in m.protocols)
        is_preparing = self.state is GroupState.PREPARING_REBALANCE
        is_stable = self.state is GroupState.STABLE
        return {
            "a member's key is its id": all(key == m.member_id for key, m in self.members.items()),
            "static index and members mirror each other": statics == self.static_members,
            "protocol counts are those of the members": counts == self.supported_protocols,
            "waiting joins are counted": self.waiting_joins == sum(m.parked_join is not None for m in members),
            "a pending id is no member": not self.pending_members.keys() & self.members.keys(),
            "members imply that the group is not empty": not (self.members and self.state is GroupState.EMPTY),
            "the leader is a member": (self.leader in self.members) if self.members else self.leader is None,
            "a sync waits only while completing": self.state is GroupState.COMPLETING_REBALANCE
            or all(m.parked_sync is None for m in members),
            "the join timer runs only while preparing": is_preparing or self.join_timer.deadline_ms is None,
            # A rebalance starts without awaiting the former generation's syncs.
            "the sync timer runs only in a generation": not self.pending_sync
            or self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE),
            "the chosen protocol is supported by all": not is_stable
            or self.supported_protocols.get(self.protocol_name or "", 0) >= len(self.members),
            "a stable group has members": not is_stable or bool(self.members),
        }

    def __repr__(self) -> str:
        return f"GroupMetadata({self.group_id!r}, {self.state.value}, generation_id={self.generation_id})"
