"""Authorizer that denies configured operations, for tests of the checks before a group."""

from __future__ import annotations

from groupcoord import Operation, Resource, ResourceType


class Rules:
    """Denies configured operations, and records its calls."""

    def __init__(self) -> None:
        self.denied: set[tuple[Operation, Resource]] = set()
        self.principals: set[object] = set()

    def deny(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Deny an operation to all principals."""
        self.denied.add((operation, Resource(resource_type, name)))

    def __call__(self, principal: object, operation: Operation, resource: Resource) -> bool:
        self.principals.add(principal)
        return (operation, resource) not in self.denied
