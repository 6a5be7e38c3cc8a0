"""Clients of one of several listeners are told the address of the listener that they came by."""

from __future__ import annotations

from typing import Any, Protocol

from groupcoord.core.messages import NO_NODE, FindCoordinatorResponse, Node


class Token(Protocol):
    """Whoever takes an answer."""

    def answer(self, response: Any) -> None:
        """Take it."""


class Relocated:
    """A token for FindCoordinator: passes the answer on with another address, since the coordinator knows one only."""

    __slots__ = ("_node", "_token")

    def __init__(self, token: Token, node: Node) -> None:
        self._token = token
        self._node = node

    def answer(self, response: FindCoordinatorResponse) -> None:
        """Take the answer."""
        found = (entry if entry.node == NO_NODE else entry._replace(node=self._node) for entry in response.coordinators)
        self._token.answer(FindCoordinatorResponse(tuple(found)))


def relocated(token: Token, node: Node | None) -> Token:
    """Return a token for FindCoordinator that tells a client where the node is for it.

    Args:
        token: who is to be answered.
        node: what the clients of its listener are told; None: the node's own address.
    """
    return token if node is None else Relocated(token, node)
