"""Ownership logic of one replica: take-overs, releases and loads that follow from heartbeats. No I/O.

A log partition is served in this order: it is taken over, the take-over is announced, and it is loaded once the
announcement was acknowledged and no other replica should own it. Of two replicas that take it over at the same time, at
least one hears the other and both compute the same owner. So only that one serves it, and no answer from memory
contradicts another.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from groupcoord.cluster.membership import Membership, Owner
from groupcoord.cluster.slot_log import Beat
from groupcoord.cluster.slot_store import Gone, SlotStore
from groupcoord.coordinator import GroupCoordinator
from groupcoord.log_store import LogStoreError


class ToLoad(NamedTuple):
    """A log partition that is owned and announced: load it with this leader epoch."""

    partition: int
    epoch: int


class Sharing:
    """Keeps a coordinator, its slot store and the announcements of other replicas consistent.

    Args:
        coordinator: the coordinator, whose log store is ``store``.
        store: the owned log partitions.
        membership: which replica should own which log partition.
        address: where clients reach this replica.
    """

    def __init__(
        self, coordinator: GroupCoordinator, store: SlotStore, membership: Membership, address: str = ""
    ) -> None:
        self._coordinator = coordinator
        self._store = store
        self._membership = membership
        self._address = address
        self._said: dict[int, int] = {}
        self._is_look = False
        self._loaded: dict[int, int] = {}

    # ------------------------------------------------------------ beats

    def announcement(self, *, leaves: bool = False) -> bytes:
        """Return the announcement of the heartbeat that begins now."""
        self._said = self._store.owned
        self._is_look = self._store.take_look() or self._is_look
        return self._membership.announcement(self._address, self._said, leaves=leaves).encoded()

    def heard(self, beats: Collection[Beat], began_ms: int) -> list[ToLoad]:
        """Apply the result of a heartbeat: release what others own or should own, take over what no replica owns.

        Args:
            beats: the announcements.
            began_ms: when the heartbeat began, in milliseconds by the clock of the coordinator.

        Returns:
            The log partitions to load now.

        Raises:
            ValueError: an announcement is malformed.
        """
        self._membership.heard(beats, began_ms)
        for partition in self._membership.superseded(self._store.owned):
            self._give_up(partition, "another replica has taken it over")
        for partition in self._membership.to_release(self._store.owned):
            self._give_up(partition, f"{self._membership.chosen(partition)} is to have it")
        self._end_look(None)
        owned = self._store.owned
        for partition in self._membership.to_take(owned, self._coordinator.clock.now_ms()):
            self._store.take_over(partition)
        found = [
            ToLoad(partition, epoch)
            for partition, epoch in owned.items()
            if self._said.get(partition) == epoch != self._loaded.get(partition)
        ]
        self._loaded.update(found)
        return found

    def not_heard(self, error: LogStoreError) -> None:
        """Handle a failed heartbeat: the owners are unknown."""
        self._end_look(error)

    def _end_look(self, error: LogStoreError | None) -> None:
        if self._is_look:
            self._is_look = False
            self._coordinator.ownership_checked(error)

    # ------------------------------------------------------------ the store

    def settle(self) -> bool:
        """Pass answers of appends and losses of log partitions to the coordinator.

        Returns:
            True if a log partition was taken over, which should be announced soon.
        """
        changes = self._store.take_changes()
        for change in changes:
            if isinstance(change, Gone):
                # Unload before the appends are answered: a failed append may lead to a next one, for a log that is not
                # owned.
                self._unload(change.partition)
        for ticket, answer in self._store.take_answers():
            if isinstance(answer, LogStoreError):
                self._coordinator.append_failed(ticket, answer)
            else:
                self._coordinator.appended(ticket, answer)
        return any(not isinstance(change, Gone) for change in changes)

    def snapshot(self, partition: int) -> None:
        """Write a snapshot of a log partition if one is due."""
        core = self._coordinator.partition(partition)
        if core is not None and self._store.is_snapshot_due(partition):
            self._store.snapshot(partition, core.snapshot(), self._coordinator.clock.now_ms())

    def give_all_up(self) -> None:
        """Release all log partitions."""
        for partition in range(self._coordinator.config.offsets_topic_num_partitions):
            self._give_up(partition, "this replica ends")

    def _give_up(self, partition: int, reason: str) -> None:
        self._unload(partition)
        self._store.give_up(partition, reason)
        self.settle()

    def _unload(self, partition: int) -> None:
        self._loaded.pop(partition, None)
        self._coordinator.unload(partition)

    # ------------------------------------------------------------ owners

    @property
    def live(self) -> tuple[str, ...]:
        """The replicas that were heard lately, in order."""
        return self._membership.live

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses of the live replicas."""
        return self._membership.addresses

    def coordinator_of(self, group_id: str) -> Owner | None:
        """Return the replica that has a group, or None if no live replica has announced it."""
        return self.owner_of(self._coordinator.partition_of(group_id))

    def owner_of(self, partition: int) -> Owner | None:
        """Return the replica that has a log partition, or None if no live replica has announced it."""
        owner = self._membership.owner(partition)
        if owner is not None and owner.node_id == self._membership.node_id and partition not in self._store.owned:
            return None
        return owner
