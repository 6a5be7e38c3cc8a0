"""Membership of the nodes that share a log: owners of log partitions, and leases.

Each node announces what it owns and receives the announcements of all others
(:meth:`~groupcoord.cluster.slot_log.SlotLog.beat`). Safety does not depend on this module: a node with a wrong view
writes unnecessary fences, but no record is lost. Partitions are spread by rendezvous hashing, so only the partitions of
a dead node move, to all others.

Answers from memory need a lease, since a node that was paused does not learn of a fence before its next append. So it
answers only for ``lease_ms`` after it began its last acknowledged heartbeat, and a node counts as dead only after a
longer silence.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import NamedTuple

from groupcoord.cluster.slot_log import Beat

# A lease spans four heartbeats, so one that fails does not end it.
LEASE_MS, DEAD_MS, BEAT_MS = 1_000, 1_500, 250


class Announcement(NamedTuple):
    """State that a node announces with each heartbeat.

    Attributes:
        address: where clients reach the node, in a form that the program understands.
        owned: the log partitions that it owns, with their epochs.
        known: the highest epoch that it has seen of each log partition.
        leaves: True in its last announcement: it owns and takes over nothing any more.
    """

    address: str
    owned: Mapping[int, int]
    known: Mapping[int, int]
    leaves: bool = False

    def encoded(self) -> bytes:
        owned, known = sorted(self.owned.items()), sorted(self.known.items())
        said = {"address": self.address, "owned": owned, "known": known, "leaves": self.leaves}
        return json.dumps(said).encode()

    @classmethod
    def decoded(cls, content: bytes) -> Announcement:
        try:
            said = json.loads(content)
            owned, known = ({int(index): int(epoch) for index, epoch in said[name]} for name in ("owned", "known"))
            return cls(str(said["address"]), owned, known, bool(said["leaves"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no announcement: {error!r}") from None


class Owner(NamedTuple):
    """A live node that announces that it owns a log partition."""

    node_id: str
    address: str
    epoch: int


class Membership:
    """View of one node of all announcements.

    Args:
        node_id: the id of this node.
        partition_count: the number of log partitions.
        dead_ms: the silence after which a node counts as dead, in milliseconds.
    """

    def __init__(self, node_id: str, partition_count: int, dead_ms: int = DEAD_MS) -> None:
        self.node_id = node_id
        self._partition_count = partition_count
        self._dead_ms = dead_ms
        self._known: dict[int, int] = {}
        self._live: dict[str, Announcement] = {}

    def heard(self, beats: Collection[Beat]) -> None:
        """Apply the announcements that a heartbeat returned. A malformed one raises ValueError."""
        said = {beat.node_id: Announcement.decoded(beat.content) for beat in beats}
        # Also epochs of dead nodes: a partition that was taken over and lost again is not this node's.
        for one in said.values():
            self._learn(one.known)
        # Its own age does not count.
        silent = {beat.node_id for beat in beats if beat.age_ms >= self._dead_ms} - {self.node_id}
        self._live = {node_id: one for node_id, one in said.items() if node_id not in silent and not one.leaves}

    def _learn(self, epochs: Mapping[int, int]) -> None:
        for partition, epoch in epochs.items():
            self._known[partition] = max(epoch, self._known.get(partition, epoch))

    def announcement(self, address: str, owned: Mapping[int, int], *, leaves: bool = False) -> Announcement:
        self._learn(owned)
        return Announcement(address, dict(owned), dict(self._known), leaves)

    @property
    def live(self) -> tuple[str, ...]:
        return tuple(sorted(self._live))

    @property
    def addresses(self) -> dict[str, str]:
        return {node_id: said.address for node_id, said in sorted(self._live.items())}

    def owner(self, partition: int) -> Owner | None:
        found = (
            Owner(node_id, said.address, said.owned[partition])
            for node_id, said in self._live.items()
            if partition in said.owned
        )
        # During a take-over two nodes may announce it: the later fence wins.
        return max(found, key=lambda owner: owner.epoch, default=None)

    def chosen(self, partition: int) -> str:
        """Return the live node that should own a log partition, or this node if none is known to live."""
        return max(self._live, key=lambda node_id: (_score(partition, node_id), node_id), default=self.node_id)

    # ------------------------------------------------------------ what is to be done

    def to_take(self, owned: Mapping[int, int]) -> list[int]:
        """Return the log partitions to take over: this node should own them and no live node does."""
        missing = (partition for partition in range(self._partition_count) if partition not in owned)
        return [
            partition for partition in missing if self.chosen(partition) == self.node_id and self._is_free(partition)
        ]

    def _is_free(self, partition: int) -> bool:
        owner = self.owner(partition)
        # This node may have lost it since the announcement.
        return owner is None or owner.node_id == self.node_id

    def to_release(self, owned: Mapping[int, int]) -> list[int]:
        return [partition for partition in sorted(owned) if self.chosen(partition) != self.node_id]

    def superseded(self, owned: Mapping[int, int]) -> list[int]:
        """Return the owned log partitions that another node has taken over since."""
        # The other node may be dead by now. What it acknowledged is only in the log.
        return [partition for partition, epoch in sorted(owned.items()) if self._known.get(partition, epoch) > epoch]


def _score(partition: int, node_id: str) -> bytes:
    # Python's hash differs between processes.
    return blake2b(f"{partition}/{node_id}".encode(), digest_size=8).digest()
