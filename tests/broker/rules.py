"""Permissions to take away, and answers to read, for tests through the wire."""

from __future__ import annotations

from typing import Any

from groupcoord import ErrorCode, Operation, Resource, ResourceType
from tests.core import denials

GROUP, TOPIC, TRANSACTION = ResourceType.GROUP, ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
TOPIC_DENIED, CLUSTER_DENIED = "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"
UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"


class Rules(denials.Rules):
    """Authorizer that denies configured names of operations."""

    def deny(self, operation: str, where: ResourceType | Resource, *names: str) -> None:
        resources = [where] if isinstance(where, Resource) else [Resource(where, name) for name in names]
        self.denied.update((Operation[operation], resource) for resource in resources)


def errors(
    topics: Any, key: str = "error_code", partitions: str = "partitions"
) -> list[tuple[object, list[tuple[int, str]]]]:
    """Return topics, by name or id, with the partitions' indexes and errors."""
    return [
        (
            next(topic[field] for field in ("name", "topic", "topic_id") if field in topic),
            [
                (
                    partition["partition_index" if "partition_index" in partition else "index"],
                    ErrorCode(partition[key]).name,
                )
                for partition in topic[partitions]
            ],
        )
        for topic in topics
    ]
