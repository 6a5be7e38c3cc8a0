"""CreateAcls, DescribeAcls and DeleteAcls.

Sources: ``AclApis``, ``AclControlManager`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from groupcoord.broker.answering import answers
from groupcoord.broker.connection import Connection
from groupcoord.core.front.authorization import CLUSTER, Operation, Permissions, ResourceType
from groupcoord.errors import ErrorCode
from groupcoord.wire import WireResponse
from groupcoord.wire.acl_messages import (
    ANY,
    Acl,
    AclResult,
    AclsOfResource,
    CreateAcls,
    CreateAclsResponse,
    DeleteAcls,
    DeleteAclsResponse,
    DeletedAcls,
    DescribeAcls,
    DescribeAclsResponse,
    PatternType,
    PermissionType,
)

if TYPE_CHECKING:
    from groupcoord.broker.security.acls import Acls

NO_AUTHORIZER = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
NO_AUTHORIZER_HERE = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
"""A broker answers DescribeAcls by itself, and leaves changes to its controller, whose words are others."""
NOT_ALLOWED = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
NOT_WRITTEN = (ErrorCode.UNKNOWN_SERVER_ERROR, "The ACLs could not be written.")

_KNOWN: tuple[frozenset[int], ...] = (
    frozenset(range(ANY, 8)),
    frozenset(PatternType),
    frozenset(range(ANY, 16)),
    frozenset(PermissionType),
)
_KINDS = ("resourceType", "patternType", "operation", "permissionType")


class AclRequests:
    """Answers requests about ACLs.

    Args:
        acls: the ACLs; None: permissions are decided by somebody else.
        permissions_of: returns what a connection's client may do.
    """

    def __init__(self, acls: Acls | None, permissions_of: Callable[[Connection], Permissions]) -> None:
        self._acls = acls
        self._permissions_of = permissions_of

    @answers(CreateAcls, DescribeAcls, DeleteAcls)
    def answer(self, connection: Connection, request: Any) -> WireResponse | None:
        """Make, tell or delete ACLs."""
        acls = self._acls
        operation = Operation.DESCRIBE if isinstance(request, DescribeAcls) else Operation.ALTER
        if acls is None:
            return _refused(request, *(NO_AUTHORIZER_HERE if operation is Operation.DESCRIBE else NO_AUTHORIZER))
        if not self._permissions_of(connection).on_cluster(operation):
            return _refused(request, *NOT_ALLOWED)
        match request:
            case CreateAcls():
                return _create(request, acls)
            case DeleteAcls():
                return _delete(request, acls)
        return DescribeAclsResponse(_by_resource(acls.find(request)))


def _create(request: CreateAcls, acls: Acls) -> CreateAclsResponse:
    results = [_checked(acl) for acl in request.creations]
    pairs = zip(request.creations, results, strict=True)
    try:
        acls.change(acl for acl, result in pairs if result.error_code is ErrorCode.NONE)
    except OSError:
        results = [AclResult(*NOT_WRITTEN) if result.error_code is ErrorCode.NONE else result for result in results]
    return CreateAclsResponse(tuple(results))


def _delete(request: DeleteAcls, acls: Acls) -> DeleteAclsResponse:
    results = [DeletedAcls(tuple(acls.find(wanted))) for wanted in request.filters]
    try:
        acls.change((), (acl for result in results for acl in result.matching_acls))
    except OSError:
        results = [DeletedAcls((), *NOT_WRITTEN) for _ in results]
    return DeleteAclsResponse(tuple(results))


def _by_resource(found: Iterable[Acl]) -> tuple[AclsOfResource, ...]:
    resources: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in found:
        resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
    return tuple(AclsOfResource(*resource, tuple(acls)) for resource, acls in resources.items())


def _checked(acl: Acl) -> AclResult:
    """Return what is wrong with an ACL that shall be, as Kafka says it."""
    numbers = (acl.resource_type, acl.pattern_type, acl.operation, acl.permission_type)
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER.name:
        return _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER.name}")
    if not acl.resource_name:
        return _invalid("Invalid empty resource name")
    for kind, number, values in zip(_KINDS, numbers, _KNOWN, strict=True):
        if number not in values:
            return _invalid(f"Invalid {kind} UNKNOWN")
    if ANY in numbers or acl.pattern_type == PatternType.MATCH:
        return AclResult(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    if not acl.host:
        return _invalid("Host pattern cannot be null or empty")
    if ":" not in acl.principal:
        return _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    return AclResult()


def _invalid(message: str) -> AclResult:
    return AclResult(ErrorCode.INVALID_REQUEST, message)


def _refused(request: Any, error_code: ErrorCode, message: str) -> WireResponse:
    match request:
        case CreateAcls():
            return CreateAclsResponse((AclResult(error_code, message),) * len(request.creations))
        case DeleteAcls():
            return DeleteAclsResponse((DeletedAcls((), error_code, message),) * len(request.filters))
    return DescribeAclsResponse((), error_code, message)
