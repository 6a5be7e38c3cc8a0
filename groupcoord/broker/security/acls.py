"""ACLs: who may do what to which things, decided as Kafka's ``StandardAuthorizer`` does (KIP-11, KIP-290, KIP-801).

They are kept in one file of the data directory. Decisions are remembered until an ACL changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from groupcoord.broker.json_file import DataFileError, JsonFile, Place
from groupcoord.core.front.authorization import Operation, Principal, Resource
from groupcoord.wire.acl_messages import ALL, ANY, Acl, AclFilter, PatternType, PermissionType

FILE_NAME = "acls.json"
WILDCARD, WILDCARD_PRINCIPAL = "*", "User:*"
DECISIONS_MAX = 8_192

_IMPLY_DESCRIBE = (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset((ALL, *_IMPLY_DESCRIBE)),
    Operation.DESCRIBE_CONFIGS: frozenset((ALL, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)),
}


class AclFileError(DataFileError):
    """The file of ACLs can't be read or does not hold what it should; the message names file and reason."""


class Acls:
    """The ACLs that there are, and what they allow.

    Args:
        place: where ``acls.json`` lies or will lie; None keeps everything in memory.
        super_users: principals that may do everything (``super.users``).
        allows_by_default: whether everybody may do everything to what no ACL is for
            (``allow.everyone.if.no.acl.found``).

    Raises:
        AclFileError: the file is there but can't be read or does not hold ACLs.

    Attributes:
        file: where they are kept.
    """

    def __init__(
        self, place: Place | None = None, super_users: Iterable[str] = (), *, allows_by_default: bool = False
    ) -> None:
        self.file = JsonFile(place, FILE_NAME, "ACLs", AclFileError)
        self._super_users = frozenset(super_users)
        self._allows_by_default = allows_by_default
        self._acls: dict[Acl, None] = {}  # in the order in which they were made
        self._literal: dict[tuple[int, str], list[Acl]] = {}
        self._prefixed: list[Acl] = []
        self._decide = lru_cache(DECISIONS_MAX)(self._decide_anew)
        self._set(self.file.read(_parsed) or {})

    def reload(self) -> None:
        """Read the file again if another process has written it.

        Raises:
            AclFileError: it can't be read.
        """
        acls = self.file.read_if_changed(_parsed)
        if acls is not None:
            self._set(acls)

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Tell whether a principal may do this: an ``authorize`` function for coordinator and host."""
        return self._decide(str(principal), getattr(principal, "host", ""), operation, resource)

    def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the ACLs that a filter is for."""
        return [acl for acl in self._acls if matches(wanted, acl)]

    def change(self, added: Iterable[Acl], removed: Iterable[Acl] = ()) -> None:
        """Have ACLs that are new, and others no more, together.

        Raises:
            OSError: the file can't be written; nothing has changed then.
        """
        gone = frozenset(removed)
        acls = {acl: None for acl in (*self._acls, *added) if acl not in gone}
        if acls.keys() != self._acls.keys():
            self.file.write(lambda: {"acls": [acl._asdict() for acl in acls]})
            self._set(acls)

    def _set(self, acls: dict[Acl, None]) -> None:
        self._acls = acls
        self._prefixed = [acl for acl in acls if acl.pattern_type == PatternType.PREFIXED]
        self._literal = {}
        for acl in acls:
            if acl.pattern_type == PatternType.LITERAL:
                self._literal.setdefault((acl.resource_type, acl.resource_name), []).append(acl)
        self._decide.cache_clear()

    def _decide_anew(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        if principal in self._super_users:
            return True
        acls = self._acls_for(resource)
        if not acls:
            return self._allows_by_default
        implied_by = _IMPLIED_BY.get(operation, frozenset((ALL, operation)))
        is_allowed = False
        for acl in acls:
            if acl.principal not in (principal, WILDCARD_PRINCIPAL) or acl.host not in (host, WILDCARD):
                continue
            if acl.permission_type == PermissionType.DENY:
                if acl.operation in (ALL, operation):
                    return False
            elif acl.operation in implied_by:
                is_allowed = True
        return is_allowed

    def _acls_for(self, resource: Resource) -> list[Acl]:
        """Return the ACLs for a thing: under its name, for every name, and for how its name begins."""
        kind, name = resource
        return [
            *self._literal.get((kind, name), ()),
            *(self._literal.get((kind, WILDCARD), ()) if name != WILDCARD else ()),
            *(acl for acl in self._prefixed if acl.resource_type == kind and name.startswith(acl.resource_name)),
        ]


def matches(wanted: AclFilter, acl: Acl) -> bool:
    """Tell whether a filter is for an ACL."""
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


def _parsed(content: dict[str, Any]) -> dict[Acl, None]:
    return {Acl(**entry): None for entry in content["acls"]}
