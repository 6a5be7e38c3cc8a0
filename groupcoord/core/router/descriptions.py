"""What a request meets that describes groups of a newer kind: each is allowed, found and shown by itself.

The order is that of Kafka's ``KafkaApis``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from attrs import frozen

from groupcoord.core.router.authorization import Operation, Permissions
from groupcoord.errors import ErrorCode

REFUSED_FIRST = {ErrorCode.GROUP_AUTHORIZATION_FAILED: 0, ErrorCode.INVALID_GROUP_ID: 1}
"""In an answer, groups with these errors come before all others."""


@frozen
class DescribedKind:
    """How groups of one kind are described.

    Attributes:
        described: the class of one group in an answer.
        response: the class of the answer.
        topics_of: returns the topics that a group's description names.
        hidden: what is said of a group with topics that the asker may not DESCRIBE.
    """

    described: type
    response: type
    topics_of: Callable[[Any], Iterable[str]]
    hidden: str

    def answer(self, groups: Iterable[Any]) -> Any:
        """Return the answer, in Kafka's order."""
        ordered = sorted(groups, key=lambda group: REFUSED_FIRST.get(group.error_code, len(REFUSED_FIRST)))
        return self.response(tuple(ordered))

    def hide(self, group: Any, permissions: Permissions) -> Any:
        """Return a description, or its refusal if it names a topic that the asker may not DESCRIBE."""
        if all(permissions.on_topic(topic, Operation.DESCRIBE) for topic in sorted(set(self.topics_of(group)))):
            return group
        return self.described(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, self.hidden)


def with_operations(group: Any, operations: int) -> Any:
    """Return a description that says what is allowed on the group; an error says nothing of it."""
    return group if group.error_code is not ErrorCode.NONE else group._replace(authorized_operations=operations)
