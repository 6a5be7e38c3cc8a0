"""An authorizer for tests of what comes before a group: it denies what it is told to deny."""

from __future__ import annotations

from groupcoord import Operation, Resource, ResourceType


class Rules:
    """Denies what it is told to deny, and remembers who asked."""

    def __init__(self) -> None:
        self.denied: set[tuple[Operation, Resource]] = set()
        self.principals: set[object] = set()

    def deny(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """From now on nobody may do this."""
        self.denied.add((operation, Resource(resource_type, name)))

    def __call__(self, principal: object, operation: Operation, resource: Resource) -> bool:
        self.principals.add(principal)
        return (operation, resource) not in self.denied
