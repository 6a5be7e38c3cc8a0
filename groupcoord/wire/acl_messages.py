"""ACL requests and responses (KIP-140, KIP-290), independent of version."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from groupcoord.errors import ErrorCode

ANY, ALL = 1, 2
"""Kafka's numbers for any value in filters, and for all operations in ACLs."""


class PatternType(IntEnum):
    """Type of a resource name pattern, by Kafka's numbers. ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    """Permission of an ACL, by Kafka's numbers. ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One ACL. Numbers are Kafka's and may be unknown ones."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AclFilter(NamedTuple):
    """Filter for ACLs; None matches any value."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int


class CreateAcls(NamedTuple):
    """Create ACLs (API key 30)."""

    creations: tuple[Acl, ...]

    def refused(self, error_code: ErrorCode, message: str | None = None) -> CreateAclsResponse:
        return CreateAclsResponse((AclResult(error_code, message),) * len(self.creations))


class AclResult(NamedTuple):
    """Result for one ACL."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = ""


class CreateAclsResponse(NamedTuple):
    """One entry for each ACL."""

    results: tuple[AclResult, ...]


class DescribeAcls(AclFilter):
    """Describe ACLs (API key 29)."""

    def refused(self, error_code: ErrorCode, message: str | None = None) -> DescribeAclsResponse:
        return DescribeAclsResponse((), error_code, message)


class AclsOfResource(NamedTuple):
    """ACLs of one resource pattern."""

    resource_type: int
    resource_name: str
    pattern_type: int
    acls: tuple[Acl, ...]


class DescribeAclsResponse(NamedTuple):
    """The ACLs, or an error."""

    resources: tuple[AclsOfResource, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = ""


class DeleteAcls(NamedTuple):
    """Delete ACLs (API key 31)."""

    filters: tuple[AclFilter, ...]

    def refused(self, error_code: ErrorCode, message: str | None = None) -> DeleteAclsResponse:
        return DeleteAclsResponse((DeletedAcls((), error_code, message),) * len(self.filters))


class DeletedAcls(NamedTuple):
    """ACLs that a filter matched and deleted, or an error."""

    matching_acls: tuple[Acl, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class DeleteAclsResponse(NamedTuple):
    """One entry for each filter."""

    filter_results: tuple[DeletedAcls, ...]


AclRequest = CreateAcls | DescribeAcls | DeleteAcls
AclResponse = CreateAclsResponse | DescribeAclsResponse | DeleteAclsResponse
