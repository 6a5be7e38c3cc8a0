"""ACLs: CreateAcls, DescribeAcls, DeleteAcls, and decisions as by ``StandardAuthorizer`` (KIP-11, KIP-290, KIP-801).

Sources: ``AclApis``, ``AclControlManager`` of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from os.path import commonprefix
from typing import Any

from sortedcontainers import SortedList

from groupcoord.broker.json_file import Document, JsonFile, Place
from groupcoord.broker.work import Work, portions
from groupcoord.core.router.authorization import CLUSTER, Operation, Permissions, Principal, Resource, ResourceType
from groupcoord.errors import ErrorCode
from groupcoord.wire import WireResponse
from groupcoord.wire.security_messages import (
    ALL,
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

FILE_NAME = "acls.json"
WILDCARD, WILDCARD_PRINCIPAL = "*", "User:*"
DECISIONS_MAX = 8_192
REMEMBERED_NAME_MAX = 255
"""Longest name with cached decisions: clients choose longer ones."""

SCANNED_ACLS = 1_000
TYPES_END = 8
"""One above Kafka's last resource type."""

_Pattern = tuple[int, int, str]
"""Resource type, pattern type and resource name of an ACL."""

_IMPLY_DESCRIBE = (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset((ALL, *_IMPLY_DESCRIBE)),
    Operation.DESCRIBE_CONFIGS: frozenset((ALL, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)),
}


class Acls(Document):
    """ACLs with an index: the cost of a decision depends on the name's length and the ACLs for it."""

    def __init__(
        self, place: Place | None = None, super_users: Iterable[str] = (), *, allows_by_default: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allows_by_default = allows_by_default
        self._decide = lru_cache(DECISIONS_MAX)(self._decide_anew)
        self._set(())
        super().__init__(JsonFile(place, FILE_NAME, "ACLs"))

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        # Long names would fill memory.
        decide = self._decide if len(resource.name) <= REMEMBERED_NAME_MAX else self._decide_anew
        return decide(str(principal), getattr(principal, "host", ""), operation, resource)

    def find(self, wanted: AclFilter) -> Work[tuple[Acl, ...]]:
        found: list[Acl] = []
        for number, portion in enumerate(portions(self._candidates(wanted), SCANNED_ACLS)):
            if number:
                yield None
            found += (acl for acl in portion if matches(wanted, acl))
        return tuple(found)

    def __contains__(self, acl: object) -> bool:
        return acl in self._acls

    def change(self, added: Iterable[Acl], removed: Iterable[Acl] = ()) -> None:
        """Add and remove ACLs, all or none."""
        gone = [acl for acl in removed if acl in self._acls]
        new = [acl for acl in dict.fromkeys(added) if acl not in self._acls]
        # No write, and the cached decisions stay.
        if not gone and not new:
            return
        acls = self._acls | dict.fromkeys(new)
        for acl in gone:
            acls.pop(acl, None)
        self.file.write(lambda: {"acls": [acl._asdict() for acl in acls]})
        for acl in gone:
            self._remove(acl)
        for acl in new:
            self._add(acl)
        self._decide.cache_clear()

    def _load(self, content: dict[str, Any]) -> None:
        self._set([Acl(**entry) for entry in content["acls"]])

    def _set(self, acls: Iterable[Acl]) -> None:
        self._acls: dict[Acl, None] = {}  # in the order of their creation
        self._of_pattern: dict[_Pattern, dict[str, dict[Acl, None]]] = {}  # by principal
        self._of_principal: dict[str, dict[Acl, None]] = {}
        self._prefixes: dict[int, SortedList[str]] = {}
        for acl in acls:
            self._add(acl)
        self._decide.cache_clear()

    def _add(self, acl: Acl) -> None:
        self._acls[acl] = None
        pattern = _pattern_of(acl)
        if pattern not in self._of_pattern and acl.pattern_type == PatternType.PREFIXED:
            self._prefixes.setdefault(acl.resource_type, SortedList()).add(acl.resource_name)
        self._of_pattern.setdefault(pattern, {}).setdefault(acl.principal, {})[acl] = None
        self._of_principal.setdefault(acl.principal, {})[acl] = None

    def _remove(self, acl: Acl) -> None:
        self._acls.pop(acl, None)
        pattern = _pattern_of(acl)
        is_last = _remove_from(self._of_pattern.get(pattern, {}), acl)
        if is_last and self._of_pattern.pop(pattern, None) is not None and acl.pattern_type == PatternType.PREFIXED:
            self._prefixes[acl.resource_type].remove(acl.resource_name)
        _remove_from(self._of_principal, acl)

    def _decide_anew(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        if principal in self._super_users:
            return True
        patterns = self._patterns_for(*resource)
        # allow.everyone.if.no.acl.found is about the resource, not about the principal.
        if not patterns:
            return self._allows_by_default
        implied_by = _IMPLIED_BY.get(operation, frozenset((ALL, operation)))
        is_allowed = False
        for pattern in patterns:
            of_principal = self._of_pattern[pattern]
            for acl in (*of_principal.get(principal, ()), *of_principal.get(WILDCARD_PRINCIPAL, ())):
                if acl.host not in (host, WILDCARD):
                    continue
                if acl.permission_type == PermissionType.DENY:
                    # KIP-11: a DENY wins, and implies no other operation.
                    if acl.operation in (ALL, operation):
                        return False
                elif acl.operation in implied_by:
                    is_allowed = True
        return is_allowed

    def _patterns_for(self, kind: int, name: str) -> list[_Pattern]:
        # A resource may be named * itself.
        literal = [(kind, int(PatternType.LITERAL), pattern) for pattern in dict.fromkeys((name, WILDCARD))]
        prefixed = [(kind, int(PatternType.PREFIXED), prefix) for prefix in self._prefixes_of(kind, name)]
        return [pattern for pattern in literal if pattern in self._of_pattern] + prefixed

    def _prefixes_of(self, kind: int, name: str) -> Iterator[str]:
        """Yield the prefixes of a name that have ACLs, longest first."""
        prefixes = self._prefixes.get(kind)
        # The greatest prefix not above a name is a prefix of it, or shares its start with all that are.
        while prefixes and (index := prefixes.bisect_right(name)):
            found = prefixes[index - 1]
            if name.startswith(found):
                yield found
                name = found[:-1]
            else:
                name = commonprefix((name, found))  # noqa: RUF071 (characters are what is compared)

    def _candidates(self, wanted: AclFilter) -> Sequence[Acl]:
        """Return all ACLs that a filter may match, by its name and principal."""
        name, pattern_type = wanted.resource_name, wanted.pattern_type
        if name is None:
            return tuple(self._acls if wanted.principal is None else self._of_principal.get(wanted.principal, ()))
        kinds = range(TYPES_END) if wanted.resource_type == ANY else (wanted.resource_type,)
        # KIP-290: MATCH finds all ACLs that affect the name.
        if pattern_type == PatternType.MATCH:
            patterns = [pattern for kind in kinds for pattern in self._patterns_for(kind, name)]
        else:
            types = (PatternType.LITERAL, PatternType.PREFIXED) if pattern_type == PatternType.ANY else (pattern_type,)
            patterns = [(kind, int(of_type), name) for kind in kinds for of_type in types]
        found = (self._of_pattern.get(pattern, {}) for pattern in patterns)
        if wanted.principal is not None:
            return tuple(acl for of_principal in found for acl in of_principal.get(wanted.principal, ()))
        return tuple(chain.from_iterable(acls for of_principal in found for acls in of_principal.values()))


def _pattern_of(acl: Acl) -> _Pattern:
    return acl.resource_type, acl.pattern_type, acl.resource_name


def _remove_from(of_principal: dict[str, dict[Acl, None]], acl: Acl) -> bool:
    acls = of_principal.get(acl.principal, {})
    acls.pop(acl, None)
    if not acls:
        of_principal.pop(acl.principal, None)
    return not of_principal


def matches(wanted: AclFilter, acl: Acl) -> bool:
    return (
        wanted.resource_type in (ANY, acl.resource_type)
        and _matches_name(wanted, acl)
        and wanted.principal in (None, acl.principal)
        and wanted.host in (None, acl.host)
        and wanted.operation in (ANY, acl.operation)
        and wanted.permission_type in (ANY, acl.permission_type)
    )


def _matches_name(wanted: AclFilter, acl: Acl) -> bool:
    if wanted.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
        return False
    if wanted.resource_name in (None, acl.resource_name):
        return True
    if wanted.pattern_type != PatternType.MATCH or wanted.resource_name is None:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return wanted.resource_name.startswith(acl.resource_name)
    return acl.resource_name == WILDCARD


NO_AUTHORIZER = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
NO_AUTHORIZER_HERE = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
"""A broker answers DescribeAcls itself; changes are answered by its controller, with another message."""
NOT_ALLOWED = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
NOT_WRITTEN = (ErrorCode.UNKNOWN_SERVER_ERROR, "The ACLs could not be written.")

CHANGED_ACLS_MAX = 10_000
"""Most ACLs that one request may add or remove (``QuorumController.MAX_RECORDS_PER_USER_OP``)."""
MATCHES_MAX = 1_000_000
"""Most ACLs that the filters of one request may match, counted for each filter."""
CHECKED_ACLS = 1_000
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


def answer_acl_request(
    request: AclRequest, acls: Acls | None, permissions: Permissions
) -> WireResponse | Work[WireResponse | None]:
    operation = Operation.DESCRIBE if isinstance(request, DescribeAcls) else Operation.ALTER
    # SECURITY_DISABLED before permissions, as in AclApis.
    if acls is None:
        return request.refused(*(NO_AUTHORIZER_HERE if operation is Operation.DESCRIBE else NO_AUTHORIZER))
    if not permissions.on_cluster(operation):
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
        # Fails the whole request.
        if any(map(_is_filter, portion)):
            return request.refused(ErrorCode.UNKNOWN_SERVER_ERROR, None)
        checked = list(map(_checked, portion))
        results += checked
        pairs = zip(portion, checked, strict=True)
        new |= {acl: None for acl, result in pairs if not result.error_code and acl not in acls}
    if len(new) > CHANGED_ACLS_MAX:
        # An ACL that the broker refuses never reaches the controller, so it keeps its error.
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
        # The response repeats an ACL for each matching filter.
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
    # Unknown numbers win over host and principal, as in AclControlManager.
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
