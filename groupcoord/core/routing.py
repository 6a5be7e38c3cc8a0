"""Who coordinates what: the answers of FindCoordinator."""

from __future__ import annotations

import re
from collections.abc import Callable

from groupcoord.core.java import partition_for
from groupcoord.core.messages import NO_NODE, CoordinatorType, FindCoordinator, FoundCoordinator, Node
from groupcoord.errors import ErrorCode

Owner = Callable[[int], Node | None]
"""Returns the node that coordinates a partition of ``__consumer_offsets``, or None while nobody does."""

_SHARE_KEY = re.compile(r"[^:]+:[A-Za-z0-9_-]{22}:\d+")


def find_coordinators(
    request: FindCoordinator, partition_count: int, owner: Owner, own_node: Node
) -> tuple[FoundCoordinator, ...]:
    """Answer each key: a group's by its log partition, a transactional id's with this node.

    Share groups (KIP-932) are not served; a well-formed key of theirs is COORDINATOR_NOT_AVAILABLE.
    """

    def find(key: str) -> tuple[Node | None, ErrorCode]:
        match request.key_type:
            case CoordinatorType.GROUP:
                return owner(partition_for(key, partition_count)), ErrorCode.COORDINATOR_NOT_AVAILABLE
            case CoordinatorType.TRANSACTION:
                return own_node, ErrorCode.NONE
            case CoordinatorType.SHARE if request.supports_share_keys and _SHARE_KEY.fullmatch(key):
                return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None, ErrorCode.INVALID_REQUEST

    found = []
    for key in request.keys:
        node, error_code = find(key)
        found.append(FoundCoordinator(key, node or NO_NODE, ErrorCode.NONE if node else error_code))
    return tuple(found)
