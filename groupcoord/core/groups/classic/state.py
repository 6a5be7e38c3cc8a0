"""States of a classic group with the table of legal moves between them, and the state of one member."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from attrs import define

from groupcoord.core.fast_construct import plain_members
from groupcoord.core.log.records import MemberRecord
from groupcoord.core.messages import DescribedMember, JoinedMember, JoinProtocol, Token
from groupcoord.core.timers import Timer


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
