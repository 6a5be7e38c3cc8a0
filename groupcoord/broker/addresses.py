"""Addresses: those to listen on, those of clients, and what nodes that share a log tell each other of theirs."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from typing import NamedTuple

from groupcoord.core.messages import Node

ANY_ADDRESS = ("", "0.0.0.0", "::")
"""Who listens on one of these listens on every address of the machine, and clients must be told another one."""


def kafka_host(address: str) -> str:
    """Return an IP address in the form in which Kafka reports a client's host: ``/127.0.0.1``, ``/0:0:0:0:0:0:0:1``."""
    plain, percent, scope = address.partition("%")
    try:
        parsed = ipaddress.ip_address(plain)
    except ValueError:
        return f"/{address}"
    if parsed.version == 4:
        return f"/{plain}"
    if parsed.ipv4_mapped is not None:
        return f"/{parsed.ipv4_mapped}"
    return "/" + ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":")) + percent + scope


class NodeAddress(NamedTuple):
    """What a node tells the others of itself.

    Attributes:
        node_id: by which clients know it.
        listeners: the name of each listener, or ``""`` where there is but one: host and port for clients.
    """

    node_id: int
    listeners: Mapping[str, tuple[str, int]]

    def encoded(self) -> str:
        """Return it as the address of an announcement."""
        return json.dumps({"node_id": self.node_id, "listeners": self.listeners})

    @classmethod
    def decoded(cls, address: str) -> NodeAddress | None:
        """Return what a node told; None: that is no node for Kafka clients."""
        try:
            said = json.loads(address)
            listeners = {str(name): (str(host), int(port)) for name, (host, port) in said["listeners"].items()}
            return cls(int(said["node_id"]), listeners) if listeners else None
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def node(self, listener: str) -> Node:
        """Return the node as clients of a listener are told of it; of one that it doesn't have, its first."""
        return Node(self.node_id, *self.listeners.get(listener, next(iter(self.listeners.values()))))
