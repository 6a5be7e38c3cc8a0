"""What one append of a consumer group will be: records, the state that they make, and the answers that wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from attrs import frozen

from groupcoord.core.consumer.records import ConsumerGroupMetadataRecord, ConsumerGroupRecord
from groupcoord.core.consumer.state import ConsumerState
from groupcoord.core.events import Event, RebalanceStarted, Trigger
from groupcoord.core.messages import JoinProtocol
from groupcoord.core.records import GroupMetadataRecord, GroupTombstone
from groupcoord.core.replies import Reply


@frozen
class Downgrade:
    """How a group goes on that is a classic one from now on.

    Attributes:
        trigger: why it has to rebalance; None if it need not.
        protocols: what each member supports. The record has only what was chosen, and more is known until a restart.
    """

    trigger: Trigger | None
    protocols: Mapping[str, tuple[JoinProtocol, ...]]


class News(NamedTuple):
    """What observers are told when the log has it.

    Attributes:
        event: makes the event of the group's id, the time, and the facts.
        facts: what else the event says.
    """

    event: Callable[..., Event]
    facts: tuple[Any, ...]


class Draft:
    """Builds on durable state, which it leaves as it is: the first write makes a copy.

    Several requests share an append, one after the other: a mark is set before each, and whoever is refused is rolled
    back to it.

    Attributes:
        durable: what the log says.
        base: what the group is to the request that is drafted: as it will be with all that was drafted before.
        state: what will be when all records are.
        records: in the order in which they are written.
        held: the answers that wait for them.
        joined: the ids of members that have joined with the classic protocol.
        news: what observers are told when the records are durable.
        downgrade: the group is a classic one with this; None if it isn't.
    """

    __slots__ = ("_marked", "base", "downgrade", "durable", "held", "joined", "news", "records", "state")

    def __init__(self, durable: ConsumerState) -> None:
        self.durable = self.base = self.state = durable
        self.records: list[ConsumerGroupRecord | GroupTombstone | GroupMetadataRecord] = []
        self.held: list[Reply] = []
        self.joined: list[str] = []
        self.news: list[News] = []
        self.downgrade: Downgrade | None = None
        self._marked = (0, 0, 0)

    def mark(self) -> None:
        """Let the next request build on what was drafted so far."""
        if self.base is not self.durable and self.state is not self.base:
            self.state.succeed(self.base)
        self.base = self.state
        self._marked = (len(self.records), len(self.joined), len(self.news))

    def roll_back(self) -> None:
        """Forget what was drafted since the mark."""
        record_count, joined_count, news_count = self._marked
        del self.records[record_count:], self.joined[joined_count:], self.news[news_count:]
        self.state, self.downgrade = self.base, None

    def write(self, *records: ConsumerGroupRecord | GroupTombstone) -> None:
        """Add records."""
        if self.state is self.base:
            self.state = self.base.copy()
        for record in records:
            self.state.apply(record)
        self.records += records

    def tell(self, event: Callable[..., Event], *facts: Any) -> None:
        """Let observers know of an event as soon as it is a fact."""
        self.news.append(News(event, facts))

    def begin_epoch(self, metadata_hash: int, trigger: Trigger) -> None:
        """Write the group's next epoch.

        Args:
            metadata_hash: stands for the subscribed topics as they are now.
            trigger: why it begins.
        """
        epoch = self.state.epoch
        self.write(ConsumerGroupMetadataRecord(self.state.group_id, epoch + 1, metadata_hash))
        self.tell(RebalanceStarted, epoch, trigger)
