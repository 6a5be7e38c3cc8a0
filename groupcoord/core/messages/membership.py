"""Membership of classic groups: join, sync, heartbeat, leave."""

from __future__ import annotations

from typing import NamedTuple

from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.messages.request import GroupRequest, Response
from groupcoord.errors import ErrorCode

UNKNOWN_MEMBER_ID = ""


UNKNOWN_GENERATION_ID = -1


class JoinProtocol(NamedTuple):
    """One protocol that a member supports: an assignor's name and the member's metadata for it."""

    name: str
    metadata: bytes


class JoinedMember(NamedTuple):
    """A member in the leader's join response."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@define(unsafe_hash=True)
class JoinGroupResponse(Response):
    """Response to a :class:`JoinGroup`; only the leader's has ``members``, and ``protocol_name`` may be None."""

    error_code: ErrorCode
    member_id: str = UNKNOWN_MEMBER_ID
    generation_id: int = UNKNOWN_GENERATION_ID
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = UNKNOWN_MEMBER_ID
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@define
class JoinGroup(GroupRequest[JoinGroupResponse]):
    """Join a classic group for its next generation (API key 11).

    Attributes:
        client_id, client_host: from the request's header and connection (``/127.0.0.1`` is Kafka's form).
        group_instance_id: the id of a static member (KIP-345); None for a dynamic one.
        requires_known_member_id: a new dynamic member first gets an id with MEMBER_ID_REQUIRED (KIP-394; request
            versions from 4).
        supports_skip_assignment: a returning static leader may skip the assignment (KIP-814; from 9).
    """

    group_id: str
    member_id: str = UNKNOWN_MEMBER_ID
    protocol_type: str = "consumer"
    protocols: tuple[JoinProtocol, ...] = ()
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    reason: str | None = None
    requires_known_member_id: bool = True
    supports_skip_assignment: bool = True


class SyncAssignment(NamedTuple):
    """Assignment of one member by the leader."""

    member_id: str
    assignment: bytes


@define(unsafe_hash=True)
class SyncGroupResponse(Response):
    """Response to a :class:`SyncGroup`; the assignment is empty on errors, or if the leader gave none."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@define
class SyncGroup(GroupRequest[SyncGroupResponse]):
    """Fetch a member's assignment; the leader's request has all assignments (API key 14).

    ``protocol_type`` and ``protocol_name`` are None, and not checked, in request versions below 5.
    """

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[SyncAssignment, ...] = ()


@frozen
class HeartbeatResponse(Response):
    """Result of a heartbeat; on REBALANCE_IN_PROGRESS the member rejoins."""

    error_code: ErrorCode


@define
class Heartbeat(GroupRequest[HeartbeatResponse]):
    """Renew a member's session (API key 12)."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class LeavingMember(NamedTuple):
    """A member to remove: by its id, or by its instance id alone (``member_id`` empty)."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeftMember(NamedTuple):
    """Result of one entry of a :class:`LeaveGroup`; the ids are echoed as sent."""

    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode


@frozen
class LeaveGroupResponse(Response):
    """Result of each member; none with a top-level error."""

    error_code: ErrorCode
    members: tuple[LeftMember, ...] = ()


@define
class LeaveGroup(GroupRequest[LeaveGroupResponse]):
    """Remove members (API key 13; batches and instance ids: KIP-345)."""

    group_id: str
    members: tuple[LeavingMember, ...]
