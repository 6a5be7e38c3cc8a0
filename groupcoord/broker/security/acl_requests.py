"""CreateAcls, DescribeAcls and DeleteAcls.

Sources: ``AclApis``, ``AclControlManager`` of Apache Kafka 4.4, as recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from groupcoord.broker.answering import answers
from groupcoord.broker.connection import Connection
from groupcoord.broker.work import Work, portions
from groupcoord.core.router.authorization import CLUSTER, Operation, Permissions, ResourceType
from groupcoord.errors import ErrorCode
from groupcoord.wire import WireResponse
from groupcoord.wire.security_messages import (
    ANY,
    Acl,
    AclFilter,
    AclRequest,
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

CHANGED_ACLS_MAX = 10_000
"""ACLs that one request may add or remove (``QuorumController.MAX_RECORDS_PER_USER_OP``)."""
MATCHES_MAX = 1_000_000
"""ACLs that the filters of one request may match, each counted for each of its filters."""
CHECKED_ACLS = 1_000
"""ACLs that are checked between two yields."""
TOO_MANY_CREATIONS = AclResult(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
TOO_MANY_MATCHES = (ErrorCode.INVALID_REQUEST, f"The filters match more than {MATCHES_MAX} acls in all.")
TOO_MANY_DELETIONS = (
    ErrorCode.INVALID_REQUEST,
    f"Cannot remove more than {CHANGED_ACLS_MAX} acls in a single delete operation.",
)

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
    def answer(self, connection: Connection, request: AclRequest) -> WireResponse | Work[WireResponse | None] | None:
        """Create, describe or delete ACLs."""
        acls = self._acls
        operation = Operation.DESCRIBE if isinstance(request, DescribeAcls) else Operation.ALTER
        if acls is None:
            return request.refused(*(NO_AUTHORIZER_HERE if operation is Operation.DESCRIBE else NO_AUTHORIZER))
        if not self._permissions_of(connection).on_cluster(operation):
            return request.refused(*NOT_ALLOWED)
        match request:
            case CreateAcls():
                return _create(request, acls)
            case DeleteAcls():
                return _delete(request, acls)
        return _describe(request, acls)


def _describe(request: DescribeAcls, acls: Acls) -> Work[WireResponse | None]:
    return DescribeAclsResponse(_by_resource((yield from acls.find(request))))


def _create(request: CreateAcls, acls: Acls) -> Work[WireResponse | None]:
    results: list[AclResult] = []
    new: dict[Acl, None] = {}
    for number, portion in enumerate(portions(request.creations, CHECKED_ACLS)):
        if number:
            yield None
        if any(map(_is_filter, portion)):
            return request.refused(ErrorCode.UNKNOWN_SERVER_ERROR, None)
        checked = list(map(_checked, portion))
        results += checked
        pairs = zip(portion, checked, strict=True)
        new |= {acl: None for acl, result in pairs if not result.error_code and acl not in acls}
    if len(new) > CHANGED_ACLS_MAX:
        return CreateAclsResponse(tuple(_checked_by_broker(acl) or TOO_MANY_CREATIONS for acl in request.creations))
    try:
        acls.change(new)
    except OSError:
        results = [result if result.error_code else AclResult(*NOT_WRITTEN) for result in results]
    return CreateAclsResponse(tuple(results))


def _delete(request: DeleteAcls, acls: Acls) -> Work[WireResponse | None]:
    found: dict[AclFilter, DeletedAcls] = {}
    deleted: dict[Acl, None] = {}
    match_count = 0
    for number, wanted in enumerate(request.filters):
        if number:
            yield None
        if wanted not in found:
            found[wanted] = DeletedAcls((yield from acls.find(wanted)))
            deleted |= dict.fromkeys(found[wanted].matching_acls)
        match_count += len(found[wanted].matching_acls)
        if len(deleted) > CHANGED_ACLS_MAX:
            return request.refused(*TOO_MANY_DELETIONS)
        if match_count > MATCHES_MAX:
            return request.refused(*TOO_MANY_MATCHES)
    try:
        acls.change((), deleted)
    except OSError:
        return request.refused(*NOT_WRITTEN)
    return DeleteAclsResponse(tuple(found[wanted] for wanted in request.filters))


def _by_resource(found: Iterable[Acl]) -> tuple[AclsOfResource, ...]:
    resources: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in found:
        resources.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
    return tuple(AclsOfResource(*resource, tuple(acls)) for resource, acls in resources.items())


def _is_filter(acl: Acl) -> bool:
    numbers = (acl.resource_type, acl.pattern_type, acl.operation, acl.permission_type)
    return ANY in numbers or acl.pattern_type == PatternType.MATCH


def _checked(acl: Acl) -> AclResult:
    return _checked_by_broker(acl) or _checked_by_controller(acl)


def _checked_by_broker(acl: Acl) -> AclResult | None:
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER.name:
        return _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER.name}")
    return None if acl.resource_name else _invalid("Invalid empty resource name")


def _checked_by_controller(acl: Acl) -> AclResult:
    numbers = (acl.resource_type, acl.pattern_type, acl.operation, acl.permission_type)
    for kind, number, values in zip(_KINDS, numbers, _KNOWN, strict=True):
        if number not in values:
            return _invalid(f"Invalid {kind} UNKNOWN")
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
