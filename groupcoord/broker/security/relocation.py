"""Clients of one of several listeners are told the address of the listener that they came by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from groupcoord.core.messages import NO_NODE, FindCoordinatorResponse, Node


class Token(Protocol):
    """Whoever takes an answer."""

    def answer(self, response: Any) -> None:
        """Take it."""


class Relocated:
    """A token for FindCoordinator: passes the answer on with another address, since the coordinator knows one only."""

    __slots__ = ("_nodes", "_token")

    def __init__(self, token: Token, nodes: Mapping[int, Node]) -> None:
        self._token = token
        self._nodes = nodes

    def answer(self, response: FindCoordinatorResponse) -> None:
        """Take the answer."""
        nodes = self._nodes
        found = (
            entry if entry.node == NO_NODE else entry._replace(node=nodes[entry.node.node_id])
            for entry in response.coordinators
        )
        self._token.answer(FindCoordinatorResponse(tuple(found)))


def relocated(token: Token, nodes: Mapping[int, Node] | None) -> Token:
    """Return a token for FindCoordinator that tells a client where the coordinator is for it.

    Args:
        token: who is to be answered.
        nodes: what the clients of its listener are told, by ids; None: the nodes' own addresses.
    """
    return token if nodes is None else Relocated(token, nodes)
