"""Who coordinates what."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from attrs import define, frozen, setters

from groupcoord.core.messages.request import Request, names_field
from groupcoord.errors import ErrorCode


class CoordinatorType(IntEnum):
    """What a :class:`FindCoordinator` key names."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Node(NamedTuple):
    """A node that clients can connect to."""

    node_id: int
    host: str
    port: int


NO_NODE = Node(-1, "", -1)


class FoundCoordinator(NamedTuple):
    """The answer for one key; on errors the node is :data:`NO_NODE`."""

    key: str
    node: Node
    error_code: ErrorCode


@frozen
class FindCoordinatorResponse:
    """One entry for each key, a key named twice twice."""

    coordinators: tuple[FoundCoordinator, ...]


@define(on_setattr=setters.NO_OP)
class FindCoordinator(Request[FindCoordinatorResponse]):
    """Ask which node coordinates (API key 10). ``key_type`` is a :class:`CoordinatorType` or an unknown number."""

    key_type: int
    keys: tuple[str, ...] = names_field()
    supports_share_keys: bool = True

    def refused(self, error_code: ErrorCode, message: str | None = None) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(tuple([FoundCoordinator(key, NO_NODE, error_code) for key in self.keys]))
