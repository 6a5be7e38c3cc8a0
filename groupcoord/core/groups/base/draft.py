"""What one append of a group will be: records, the state that they make, and the answers that wait."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from groupcoord.core.events import Event, RebalanceStarted, Trigger
from groupcoord.core.groups.base.state import ModernGroupState
from groupcoord.core.log.records import Record
from groupcoord.core.replies import Reply

StateT = TypeVar("StateT", bound=ModernGroupState[Any, Any])


class DraftedEvent(NamedTuple):
    """An event that happens when the log has what was drafted.

    Attributes:
        event: makes the event of the group's id, the time, and the facts.
        facts: what else the event says.
    """

    event: Callable[..., Event]
    facts: tuple[Any, ...]


class Draft(ABC, Generic[StateT]):
    """Builds on durable state, which it leaves as it is: the first write makes a copy.

    Several requests share an append, one after the other: a mark is set before each, and whoever is refused is rolled
    back to it.

    Attributes:
        durable: what the log says.
        base: what the group is to the request that is drafted: as it will be with all that was drafted before.
        state: what will be when all records are.
        records: in the order in which they are written.
        held: the answers that wait for them.
        events: what observers are told when the records are durable.
    """

    __slots__ = ("_marked", "base", "durable", "events", "held", "records", "state")

    def __init__(self, durable: StateT) -> None:
        self.durable = self.base = self.state = durable
        self.records: list[Record] = []
        self.held: list[Reply] = []
        self.events: list[DraftedEvent] = []
        self._marked = (0, 0)

    def mark(self) -> None:
        """Let the next request build on what was drafted so far."""
        if self.base is not self.durable and self.state is not self.base:
            self.state.succeed(self.base)
        self.base = self.state
        self._marked = (len(self.records), len(self.events))

    def roll_back(self) -> None:
        """Forget what was drafted since the mark."""
        record_count, event_count = self._marked
        del self.records[record_count:], self.events[event_count:]
        self.state = self.base

    def write(self, *records: Record) -> None:
        """Add records of this kind of group, or tombstones of them."""
        if self.state is self.base:
            self.state = self.base.copy()
        for record in records:
            self.state.apply(record)
        self.records += records

    def tell(self, event: Callable[..., Event], *facts: Any) -> None:
        """Let observers know of an event as soon as it is a fact."""
        self.events.append(DraftedEvent(event, facts))

    def begin_epoch(self, metadata_hash: int, trigger: Trigger) -> None:
        """Write the group's next epoch.

        Args:
            metadata_hash: stands for the subscribed topics as they are now.
            trigger: why it begins.
        """
        epoch = self.state.epoch
        self.write(self.epoch_record(epoch + 1, metadata_hash))
        self.tell(RebalanceStarted, epoch, trigger)

    @abstractmethod
    def epoch_record(self, epoch: int, metadata_hash: int) -> Record:
        """Return the record of an epoch of the group; each kind has its own."""
