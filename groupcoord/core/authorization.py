"""Who may do what: an injected decision, asked wherever Kafka asks its authorizer (KIP-11)."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

from groupcoord.errors import ErrorCode


class Operation(IntEnum):
    """What somebody wants to do, by Kafka's numbers (``AclOperation``)."""

    READ = 3
    WRITE = 4
    DELETE = 6
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11


class ResourceType(IntEnum):
    """What it is done to, by Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class Resource(NamedTuple):
    """A named thing; the cluster's name is Kafka's ``kafka-cluster``."""

    resource_type: ResourceType
    name: str


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")
OPERATIONS_ON_A_GROUP = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)

Principal = Any
"""Whoever a request speaks for; the coordinator only passes it on."""

Authorize = Callable[[Principal, Operation, Resource], bool]
"""Returns whether ``principal`` may do this. Called often: it should be quick, and must not raise."""


class Permissions:
    """What one principal may do.

    >>> Permissions(lambda principal, *_: principal == "User:alice", "User:bob").on_group("orders", Operation.READ)
    False
    """

    __slots__ = ("_authorize", "_principal")

    def __init__(self, authorize: Authorize, principal: Principal) -> None:
        self._authorize = authorize
        self._principal = principal

    def on_group(self, group_id: str | None, operation: Operation) -> bool:
        """Tell whether this is allowed on a group."""
        return self._authorize(self._principal, operation, Resource(ResourceType.GROUP, group_id or ""))

    def on_topic(self, topic: str, operation: Operation) -> bool:
        """Tell whether this is allowed on a topic."""
        return self._authorize(self._principal, operation, Resource(ResourceType.TOPIC, topic))

    def on_transactional_id(self, transactional_id: str, operation: Operation) -> bool:
        """Tell whether this is allowed on a transactional id."""
        return self._authorize(self._principal, operation, Resource(ResourceType.TRANSACTIONAL_ID, transactional_id))

    def on_cluster(self, operation: Operation) -> bool:
        """Tell whether this is allowed on the cluster."""
        return self._authorize(self._principal, operation, CLUSTER)

    def group_operations(self, group_id: str) -> int:
        """Return what is allowed on a group as DescribeGroups reports it: a bit for each operation (KIP-430)."""
        return sum(1 << operation for operation in OPERATIONS_ON_A_GROUP if self.on_group(group_id, operation))

    def topic_error(self, topic: str, operation: Operation) -> ErrorCode:
        """Return TOPIC_AUTHORIZATION_FAILED, or NONE if this is allowed."""
        return ErrorCode.NONE if self.on_topic(topic, operation) else ErrorCode.TOPIC_AUTHORIZATION_FAILED
