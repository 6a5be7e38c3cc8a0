"""What the requests about ACLs have in common. As in Kafka, a number that stands for "unknown" is no request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from groupcoord.wire.acl_messages import Acl, AclFilter
from groupcoord.wire.errors import ProtocolError

T = TypeVar("T", Acl, AclFilter)

_UNKNOWN = 0


def acl_of(values: Mapping[str, Any]) -> Acl:
    """Return the ACL that stands in a request.

    Raises:
        ProtocolError: a number says that it is unknown.
    """
    return _known(
        Acl(
            values["resource_type"],
            values["resource_name"],
            values["resource_pattern_type"],
            values["principal"],
            values["host"],
            values["operation"],
            values["permission_type"],
        )
    )


def filter_of(values: Mapping[str, Any]) -> AclFilter:
    """Return the filter that stands in a request.

    Raises:
        ProtocolError: a number says that it is unknown.
    """
    return _known(
        AclFilter(
            values["resource_type_filter"],
            values["resource_name_filter"],
            values["pattern_type_filter"],
            values["principal_filter"],
            values["host_filter"],
            values["operation"],
            values["permission_type"],
        )
    )


def _known(found: T) -> T:
    if _UNKNOWN in (found.resource_type, found.pattern_type, found.operation, found.permission_type):
        raise ProtocolError("an ACL has something that is unknown")
    return found
