"""Requests of administrators (describe, list, delete groups) and FindCoordinator, with their responses."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from attrs import setters

from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.messages.request import Request, Response, names_field
from groupcoord.errors import ErrorCode

AUTHORIZED_OPERATIONS_OMITTED = -(2**31)


class DescribedMember(NamedTuple):
    """A member in a description."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribedGroup(NamedTuple):
    """A described group; a missing one is ``Dead`` with GROUP_ID_NOT_FOUND (NONE in request versions below 6)."""

    group_id: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()
    authorized_operations: int = AUTHORIZED_OPERATIONS_OMITTED


@frozen
class DescribeGroupsResponse(Response):
    """Descriptions of the requested groups."""

    groups: tuple[DescribedGroup, ...]


@define(on_setattr=setters.NO_OP)
class DescribeGroups(Request[DescribeGroupsResponse]):
    """Describe classic groups (API key 15)."""

    group_ids: tuple[str | None, ...] = names_field()
    include_authorized_operations: bool = False


class ListedGroup(NamedTuple):
    """One line of the list."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


@frozen
class ListGroupsResponse(Response):
    """Groups of all log partitions; while one is loading, the error and no groups."""

    error_code: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


@define(on_setattr=setters.NO_OP)
class ListGroups(Request[ListGroupsResponse]):
    """List groups by state (KIP-518) and type (KIP-848); empty filters match all (API key 16)."""

    states_filter: tuple[str, ...] = names_field(())
    types_filter: tuple[str, ...] = names_field(())


class DeletedGroup(NamedTuple):
    """Result of deleting one group; repeated names have one result."""

    group_id: str
    error_code: ErrorCode


@frozen
class DeleteGroupsResponse(Response):
    """One entry for each distinct group."""

    results: tuple[DeletedGroup, ...]


@define(on_setattr=setters.NO_OP)
class DeleteGroups(Request[DeleteGroupsResponse]):
    """Delete empty groups and their offsets (API key 42)."""

    group_ids: tuple[str | None, ...] = names_field()


class CoordinatorType(IntEnum):
    """Type of a :class:`FindCoordinator` key."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Node(NamedTuple):
    """A node that clients can connect to."""

    node_id: int
    host: str
    port: int


NO_NODE = Node(-1, "", -1)


class FoundCoordinator(NamedTuple):
    """The coordinator of one key; on errors the node is :data:`NO_NODE`."""

    key: str
    node: Node
    error_code: ErrorCode


@frozen
class FindCoordinatorResponse(Response):
    """One entry for each occurrence of a key."""

    coordinators: tuple[FoundCoordinator, ...]


@define(on_setattr=setters.NO_OP)
class FindCoordinator(Request[FindCoordinatorResponse]):
    """Find the coordinator of each key (API key 10). ``key_type`` is a :class:`CoordinatorType` or
    an unknown number.
    """

    key_type: int
    keys: tuple[str, ...] = names_field()
    supports_share_keys: bool = True

    def refused(self, error_code: ErrorCode, message: str | None = None) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(tuple([FoundCoordinator(key, NO_NODE, error_code) for key in self.keys]))
