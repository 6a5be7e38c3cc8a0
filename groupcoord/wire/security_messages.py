"""SASL, SCRAM credential, delegation token and ACL requests and responses, independent of version."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from attrs import define

from groupcoord.core.messages.request import Request
from groupcoord.errors import ErrorCode

# ---------------------------------------------------------------- SASL (KIP-43, KIP-152, KIP-368)


@define
class SaslHandshake(Request["SaslHandshakeResponse"]):
    """Choose a SASL mechanism (API key 17).

    ``uses_requests``: whether the tokens follow in SaslAuthenticate requests; otherwise raw.
    """

    mechanism: str
    uses_requests: bool = True


class SaslHandshakeResponse(NamedTuple):
    """Success or an error, and the enabled mechanisms."""

    error_code: ErrorCode
    mechanisms: tuple[str, ...] = ()


@define
class SaslAuthenticate(Request["SaslAuthenticateResponse"]):
    """A token of the chosen mechanism (API key 36)."""

    auth_bytes: bytes

    def __repr__(self) -> str:
        return f"SaslAuthenticate({len(self.auth_bytes)} bytes)"


class SaslAuthenticateResponse(NamedTuple):
    """Token of the server. ``session_lifetime_ms``: time until the client must re-authenticate, or 0."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0


# ---------------------------------------------------------------- credentials of users (KIP-554)


class ScramMechanism(IntEnum):
    """The SCRAM mechanisms, by Kafka's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class ScramDeletion(NamedTuple):
    """A credential to delete. ``mechanism`` is a :class:`ScramMechanism` or an unknown number."""

    name: str
    mechanism: int


class ScramUpsertion(NamedTuple):
    """A credential to create or replace. ``mechanism`` is a :class:`ScramMechanism` or an unknown number."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"ScramUpsertion({self.name!r}, {self.mechanism}, {self.iterations})"


@define
class AlterUserScramCredentials(Request["AlterUserScramCredentialsResponse"]):
    """Change the credentials of users (API key 51)."""

    deletions: tuple[ScramDeletion, ...] = ()
    upsertions: tuple[ScramUpsertion, ...] = ()

    def refused(self, error_code: ErrorCode, message: str | None = None) -> AlterUserScramCredentialsResponse:
        deleted, upserted = (entry.name for entry in self.deletions), (entry.name for entry in self.upsertions)
        users = dict.fromkeys([*deleted, *upserted])
        return AlterUserScramCredentialsResponse(tuple([AlteredUser(user, error_code) for user in users]))


class AlteredUser(NamedTuple):
    """Result for one user."""

    user: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class AlterUserScramCredentialsResponse(NamedTuple):
    """One entry for each user."""

    results: tuple[AlteredUser, ...]


@define
class DescribeUserScramCredentials(Request["DescribeUserScramCredentialsResponse"]):
    """Describe the credentials of users (API key 50). None or no names stand for all users."""

    users: tuple[str, ...] | None


class ScramCredentialInfo(NamedTuple):
    """Mechanism and iterations of a credential."""

    mechanism: int
    iterations: int


class DescribedUser(NamedTuple):
    """Credentials of a user, or an error."""

    user: str
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = ""
    credential_infos: tuple[ScramCredentialInfo, ...] = ()


class DescribeUserScramCredentialsResponse(NamedTuple):
    """One entry for each user, or an error."""

    results: tuple[DescribedUser, ...] = ()
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = ""


# ---------------------------------------------------------------- delegation tokens (KIP-48)


@define
class CreateDelegationToken(Request["CreateDelegationTokenResponse"]):
    """Create a delegation token (API key 38); without an owner for the requester."""

    owner_principal_type: str | None = None
    owner_principal_name: str | None = None


class CreateDelegationTokenResponse(NamedTuple):
    """Error, with the requested owner."""

    error_code: ErrorCode
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = ""
    token_requester_principal_name: str = ""
    issue_timestamp_ms: int = -1
    expiry_timestamp_ms: int = -1
    max_timestamp_ms: int = -1


@define
class RenewDelegationToken(Request["DelegationTokenResponse"]):
    """Extend a delegation token (API key 39)."""


@define
class ExpireDelegationToken(Request["DelegationTokenResponse"]):
    """Shorten the life of a delegation token (API key 40)."""


class DelegationTokenResponse(NamedTuple):
    """Error: the expiry of the token is unchanged."""

    error_code: ErrorCode
    expiry_timestamp_ms: int = -1


@define
class DescribeDelegationToken(Request["DescribeDelegationTokenResponse"]):
    """Describe delegation tokens (API key 41)."""


class DescribeDelegationTokenResponse(NamedTuple):
    """Error."""

    error_code: ErrorCode


LoginResponse = (
    SaslHandshakeResponse
    | SaslAuthenticateResponse
    | AlterUserScramCredentialsResponse
    | DescribeUserScramCredentialsResponse
    | CreateDelegationTokenResponse
    | DelegationTokenResponse
    | DescribeDelegationTokenResponse
)


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


@define
class CreateAcls(Request["CreateAclsResponse"]):
    """Create ACLs (API key 30)."""

    creations: tuple[Acl, ...]


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


@define
class DeleteAcls(Request["DeleteAclsResponse"]):
    """Delete ACLs (API key 31)."""

    filters: tuple[AclFilter, ...]


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
