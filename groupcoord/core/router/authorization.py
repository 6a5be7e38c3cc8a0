"""Authorization (KIP-11): an injected authorizer, called where Kafka calls its own."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

from groupcoord.core.fast_construct import plain_members
from groupcoord.errors import ErrorCode


@plain_members
class Operation(IntEnum):
    """Operation on a resource, by Kafka's numbers (``AclOperation``)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    """Type of a resource, by Kafka's numbers."""

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
OPERATIONS_ON_A_TOPIC = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
OPERATIONS_ON_THE_CLUSTER = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)

Principal = Any
"""Principal of a request; the coordinator only passes it on."""

Authorize = Callable[[Principal, Operation, Resource], bool]
"""Returns whether a principal may do this. Called often: it should be quick, and must not raise."""


class Permissions:
    """Permissions of one principal; without an authorizer, all.

    >>> Permissions(lambda principal, *_: principal == "User:alice", "User:bob").on_group("orders", Operation.READ)
    False
    """

    __slots__ = ("_authorize", "principal")

    def __init__(self, authorize: Authorize | None, principal: Principal) -> None:
        self._authorize = authorize
        self.principal = principal

    def on_group(self, group_id: str | None, operation: Operation) -> bool:
        # A null group id stands for the empty one.
        return self._allows(operation, ResourceType.GROUP, group_id or "")

    def on_topic(self, topic: str, operation: Operation) -> bool:
        return self._allows(operation, ResourceType.TOPIC, topic)

    def on_transactional_id(self, transactional_id: str, operation: Operation) -> bool:
        return self._allows(operation, ResourceType.TRANSACTIONAL_ID, transactional_id)

    def on_cluster(self, operation: Operation) -> bool:
        return self._allows(operation, *CLUSTER)

    def group_operations(self, group_id: str) -> int:
        """Return the allowed operations on a group as a bit set (KIP-430)."""
        return self._bits(OPERATIONS_ON_A_GROUP, ResourceType.GROUP, group_id)

    def topic_operations(self, topic: str) -> int:
        return self._bits(OPERATIONS_ON_A_TOPIC, ResourceType.TOPIC, topic)

    def cluster_operations(self) -> int:
        return self._bits(OPERATIONS_ON_THE_CLUSTER, *CLUSTER)

    def group_error(self, group_id: str | None, operation: Operation) -> ErrorCode:
        return ErrorCode.NONE if self.on_group(group_id, operation) else ErrorCode.GROUP_AUTHORIZATION_FAILED

    def topic_error(self, topic: str, operation: Operation) -> ErrorCode:
        return ErrorCode.NONE if self.on_topic(topic, operation) else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        authorize = self._authorize
        return authorize is None or authorize(self.principal, operation, Resource(resource_type, name))

    def _bits(self, operations: tuple[Operation, ...], resource_type: ResourceType, name: str) -> int:
        return sum(1 << operation for operation in operations if self._allows(operation, resource_type, name))


UNRESTRICTED = Permissions(None, None)
