"""Who should own which log partition, and whether this node may still speak for those that it owns.

Nodes say now and then what they own, and hear all others (:meth:`~groupcoord.cluster.slot_log.SlotLog.beat`). What
follows is for liveness and routing only: whoever is wrong about who lives costs extra fences, and no record. Partitions
are spread by rendezvous hashing: one that dies leaves its own to all others, and nothing else moves.

Answers from memory are another matter. A node that was stopped for a while knows nothing of a fence until its next
append. So it answers only for a lease from when it began its last beat that was heard; and a node counts as dead when
it was not heard for longer than that.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import NamedTuple

from groupcoord.cluster.slot_log import Beat

LEASE_MS, DEAD_MS, BEAT_MS = 1_000, 1_500, 250


class Announcement(NamedTuple):
    """What a node says of itself.

    Attributes:
        address: where it can be reached, in words that the program understands.
        owned: the log partitions that it owns, with their epochs.
        known: of each log partition the highest epoch that it has ever heard of, whoever had it, and has it no more.
        leaves: this is its last word: it owns nothing, and takes nothing over any more.
    """

    address: str
    owned: Mapping[int, int]
    known: Mapping[int, int]
    leaves: bool = False

    def encoded(self) -> bytes:
        """Return it as bytes."""
        owned, known = sorted(self.owned.items()), sorted(self.known.items())
        said = {"address": self.address, "owned": owned, "known": known, "leaves": self.leaves}
        return json.dumps(said).encode()

    @classmethod
    def decoded(cls, content: bytes) -> Announcement:
        """Return what was said.

        Raises:
            ValueError: it is no announcement.
        """
        try:
            said = json.loads(content)
            owned, known = ({int(index): int(epoch) for index, epoch in said[name]} for name in ("owned", "known"))
            return cls(str(said["address"]), owned, known, bool(said["leaves"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no announcement: {error!r}") from None


class Owner(NamedTuple):
    """A live node that says that it owns a log partition."""

    node_id: str
    address: str
    epoch: int


class Membership:
    """What one node makes of what all say.

    Args:
        node_id: of this node.
        partition_count: how many log partitions there are.
        lease_ms: how long it may answer after a beat began, in milliseconds.
        dead_ms: after how long in silence a node counts as dead.

    Raises:
        ValueError: the lease is not shorter than that.
    """

    def __init__(self, node_id: str, partition_count: int, lease_ms: int = LEASE_MS, dead_ms: int = DEAD_MS) -> None:
        if not 0 < lease_ms < dead_ms:
            raise ValueError(f"a lease of {lease_ms} ms must be shorter than dead_ms={dead_ms}")
        self.node_id = node_id
        self._partition_count = partition_count
        self._lease_ms = lease_ms
        self._dead_ms = dead_ms
        self._lease_end_ms: int | None = None
        self._known: dict[int, int] = {}
        self._live: dict[str, Announcement] = {}

    def heard(self, beats: Collection[Beat], began_ms: int) -> None:
        """A beat was answered.

        Args:
            beats: the answer.
            began_ms: when the beat began, by this node's clock, in milliseconds.
        """
        said = {beat.node_id: Announcement.decoded(beat.content) for beat in beats}
        for one in said.values():
            self._learn(one.known)
        silent = {beat.node_id for beat in beats if beat.age_ms >= self._dead_ms} - {self.node_id}
        self._live = {node_id: one for node_id, one in said.items() if node_id not in silent and not one.leaves}
        self._lease_end_ms = max(self._lease_end_ms or began_ms, began_ms + self._lease_ms)

    def _learn(self, epochs: Mapping[int, int]) -> None:
        for partition, epoch in epochs.items():
            self._known[partition] = max(epoch, self._known.get(partition, epoch))

    def announcement(self, address: str, owned: Mapping[int, int], *, leaves: bool = False) -> Announcement:
        """Return what this node is to say.

        Args:
            address: where it can be reached.
            owned: the log partitions that it owns, with their epochs.
            leaves: it says nothing more after that.
        """
        self._learn(owned)
        return Announcement(address, dict(owned), dict(self._known), leaves)

    def may_answer(self, now_ms: int) -> bool:
        """Tell whether what this node owns, as far as it knows, may be answered for."""
        return self._lease_end_ms is not None and now_ms < self._lease_end_ms

    @property
    def live(self) -> tuple[str, ...]:
        """The nodes that were heard lately, in order."""
        return tuple(sorted(self._live))

    @property
    def addresses(self) -> dict[str, str]:
        """Where the nodes that were heard lately can be reached, in order of their names."""
        return {node_id: said.address for node_id, said in sorted(self._live.items())}

    def owner(self, partition: int) -> Owner | None:
        """Return who says that it owns a log partition, with the highest epoch; None: nobody who lives."""
        found = (
            Owner(node_id, said.address, said.owned[partition])
            for node_id, said in self._live.items()
            if partition in said.owned
        )
        return max(found, key=lambda owner: owner.epoch, default=None)

    def chosen(self, partition: int) -> str:
        """Return the live node that should own a log partition."""
        return max(self._live, key=lambda node_id: (_score(partition, node_id), node_id), default=self.node_id)

    # ------------------------------------------------------------ what is to be done

    def to_take(self, owned: Mapping[int, int], now_ms: int) -> list[int]:
        """Return the log partitions to be taken over: chosen for this node, and nobody who lives owns them."""
        if not self.may_answer(now_ms):
            return []
        missing = (partition for partition in range(self._partition_count) if partition not in owned)
        return [
            partition for partition in missing if self.chosen(partition) == self.node_id and self._is_free(partition)
        ]

    def _is_free(self, partition: int) -> bool:
        owner = self.owner(partition)
        return owner is None or owner.node_id == self.node_id

    def to_release(self, owned: Mapping[int, int]) -> list[int]:
        """Return the log partitions that others are chosen for: to be given up in order."""
        return [partition for partition in sorted(owned) if self.chosen(partition) != self.node_id]

    def superseded(self, owned: Mapping[int, int]) -> list[int]:
        """Return the log partitions that somebody has taken over since: nothing more is to be said of them.

        It counts also if that one is dead by now, or has given them up: what it has acknowledged is only in the log.
        """
        return [partition for partition, epoch in sorted(owned.items()) if self._known.get(partition, epoch) > epoch]


def _score(partition: int, node_id: str) -> bytes:
    return blake2b(f"{partition}/{node_id}".encode(), digest_size=8).digest()
