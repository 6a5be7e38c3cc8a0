"""What one replica does about the log partitions that it shares with others. No I/O: somebody beats, and says so.

A log partition is served in this order: it is taken over, that is announced, and only when the announcement was heard,
and still nobody else is to have it, it is loaded. Of two that take one over at a time, at least one hears the other,
and both know which of them is chosen. So only that one serves it, and no answer from memory contradicts another's.
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
    """A log partition that is owned and announced: load it, with this leader's epoch."""

    partition: int
    epoch: int


class Sharing:
    """Keeps a coordinator, its slot store and what others say in step.

    Args:
        coordinator: whose log store is that store.
        store: the log partitions that are owned.
        membership: who should own what.
        address: where this replica can be reached.
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
        """Return what this replica is to say; a beat begins with it."""
        self._said = self._store.owned
        self._is_look = self._store.take_look() or self._is_look
        return self._membership.announcement(self._address, self._said, leaves=leaves).encoded()

    def heard(self, beats: Collection[Beat], began_ms: int) -> list[ToLoad]:
        """The beat was answered: give up what others have or are to have, take over what nobody has.

        Args:
            beats: the answer.
            began_ms: when the beat began, in milliseconds by the coordinator's clock.

        Returns:
            What is to be loaded now.

        Raises:
            ValueError: somebody has said what is no announcement.
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
        """The beat came to nothing: nobody knows who has what."""
        self._end_look(error)

    def _end_look(self, error: LogStoreError | None) -> None:
        if self._is_look:
            self._is_look = False
            self._coordinator.ownership_checked(error)

    # ------------------------------------------------------------ the store

    def settle(self) -> bool:
        """Tell the coordinator what has come of operations.

        Returns:
            True if something was taken over: it is to be announced, soon.
        """
        changes = self._store.take_changes()
        for change in changes:
            if isinstance(change, Gone):
                # Before its appends are answered: one that fails may lead to the next, for a log that is another's.
                self._unload(change.partition)
        for ticket, answer in self._store.take_answers():
            if isinstance(answer, LogStoreError):
                self._coordinator.append_failed(ticket, answer)
            else:
                self._coordinator.appended(ticket, answer)
        return any(not isinstance(change, Gone) for change in changes)

    def snapshot(self, partition: int) -> None:
        """Let a snapshot of a log partition be written, if one is due."""
        core = self._coordinator.partition(partition)
        if core is not None and self._store.is_snapshot_due(partition):
            self._store.snapshot(partition, core.snapshot(), self._coordinator.clock.now_ms())

    def give_all_up(self) -> None:
        """Own nothing any more, and want nothing."""
        for partition in range(self._coordinator.config.offsets_topic_num_partitions):
            self._give_up(partition, "this replica ends")

    def _give_up(self, partition: int, reason: str) -> None:
        self._unload(partition)
        self._store.give_up(partition, reason)
        self.settle()

    def _unload(self, partition: int) -> None:
        self._loaded.pop(partition, None)
        self._coordinator.unload(partition)

    # ------------------------------------------------------------ what others are told

    @property
    def live(self) -> tuple[str, ...]:
        """The replicas that were heard lately, this one included if it was, in order."""
        return self._membership.live

    @property
    def addresses(self) -> dict[str, str]:
        """Where each of them can be reached."""
        return self._membership.addresses

    def coordinator_of(self, group_id: str) -> Owner | None:
        """Return which replica has a group; None: nobody who lives, as far as this one has heard."""
        return self.owner_of(self._coordinator.partition_of(group_id))

    def owner_of(self, partition: int) -> Owner | None:
        """Return which replica has a log partition; None: nobody who lives, as far as this one has heard."""
        owner = self._membership.owner(partition)
        if owner is not None and owner.node_id == self._membership.node_id and partition not in self._store.owned:
            return None
        return owner
