"""Permissions to take away, for tests through the wire."""

from __future__ import annotations

from groupcoord import Operation, Resource, ResourceType
from tests.core import denials

GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC


class Rules(denials.Rules):
    """Authorizer that denies configured names of operations."""

    def deny(self, operation: str, where: ResourceType | Resource, *names: str) -> None:
        resources = [where] if isinstance(where, Resource) else [Resource(where, name) for name in names]
        self.denied.update((Operation[operation], resource) for resource in resources)
