"""Who coordinates what: the answers of FindCoordinator."""

from __future__ import annotations

import re
from collections.abc import Callable

from groupcoord.core.javacompat.hashing import partition_for
from groupcoord.core.messages import NO_NODE, CoordinatorType, FindCoordinator, FoundCoordinator, Node
from groupcoord.errors import ErrorCode

Owner = Callable[[int], Node | None]
"""Returns the node that coordinates a partition of ``__consumer_offsets``, or None while nobody does."""

TransactionOwner = Callable[[str], Node | None]
"""Returns the node that coordinates the transactions of a transactional id, or None while nobody does."""

ShareOwner = Callable[[str], Node | None]
"""Returns the node that coordinates a share-partition, by its key, or None while nobody does."""

_SHARE_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}:\d{1,9}", re.DOTALL)


class Coordinators:
    """The nodes, as far as FindCoordinator tells of them.

    Attributes:
        node: this node.
        owner: which node coordinates a log partition; None: this one coordinates all.
        transaction_owner: which node coordinates a transactional id; None: this one coordinates all.
        partition_count: how many log partitions there are.
    """

    __slots__ = ("node", "owner", "partition_count", "share_owner", "transaction_owner")

    def __init__(
        self,
        node: Node,
        owner: Owner | None,
        partition_count: int,
        transaction_owner: TransactionOwner | None = None,
        share_owner: ShareOwner | None = None,
    ) -> None:
        self.node = node
        self.owner = owner
        self.transaction_owner = transaction_owner
        self.share_owner = share_owner
        self.partition_count = partition_count

    def coordinator_of(self, group_id: str) -> Node | None:
        """Return the node that coordinates a group, or None while nobody does."""
        return self.node if self.owner is None else self.owner(partition_for(group_id, self.partition_count))

    def transaction_coordinator_of(self, transactional_id: str) -> Node | None:
        """Return the node that coordinates a transactional id, or None while nobody does."""
        return self.node if self.transaction_owner is None else self.transaction_owner(transactional_id)

    def share_coordinator_of(self, key: str) -> Node | None:
        """Return the node that coordinates a share-partition, or None while nobody does."""
        return None if self.share_owner is None else self.share_owner(key)


def find_coordinator(
    request: FindCoordinator, key: str, cluster: Coordinators, refusal: ErrorCode = ErrorCode.NONE
) -> FoundCoordinator:
    """Answer one key: a group's by its log partition, a transactional id's by itself.

    A well-formed key of a share-partition (KIP-932) is COORDINATOR_NOT_AVAILABLE where nobody coordinates those.
    ``refusal``: the asker may not know.
    """
    node, error_code = None, refusal
    if refusal is ErrorCode.NONE:
        error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        match request.key_type:
            case CoordinatorType.GROUP:
                node = cluster.coordinator_of(key)
            case CoordinatorType.TRANSACTION:
                node = cluster.transaction_coordinator_of(key)
            case CoordinatorType.SHARE if request.supports_share_keys and _SHARE_KEY.fullmatch(key):
                node = cluster.share_coordinator_of(key)
            case _:
                error_code = ErrorCode.INVALID_REQUEST
    return FoundCoordinator(key, node or NO_NODE, ErrorCode.NONE if node else error_code)
