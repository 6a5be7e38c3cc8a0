"""What one append of a consumer group will be, which may also be its last as one."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from groupcoord.core.events import Trigger
from groupcoord.core.groups.base.draft import Draft
from groupcoord.core.groups.consumer.records import ConsumerGroupMetadataRecord
from groupcoord.core.groups.consumer.state import ConsumerState
from groupcoord.core.messages import JoinProtocol


@frozen
class Downgrade:
    """How a group goes on that is a classic one from now on.

    Attributes:
        trigger: why it has to rebalance; None if it need not.
        protocols: what each member supports. The record has only what was chosen, and more is known until a restart.
    """

    trigger: Trigger | None
    protocols: Mapping[str, tuple[JoinProtocol, ...]]


class ConsumerDraft(Draft[ConsumerState]):
    """A draft of a consumer group.

    Attributes:
        joined: the ids of members that have joined with the classic protocol: they are to sync.
        downgrade: the group is a classic one with this; None if it isn't.
    """

    __slots__ = ("downgrade", "joined")

    def __init__(self, durable: ConsumerState) -> None:
        super().__init__(durable)
        self.joined: list[str] = []
        self.downgrade: Downgrade | None = None

    def roll_back(self) -> None:
        """Forget what was drafted since the mark."""
        super().roll_back()
        self.downgrade = None

    def epoch_record(self, epoch: int, metadata_hash: int) -> ConsumerGroupMetadataRecord:
        """Return the record of an epoch of the group."""
        return ConsumerGroupMetadataRecord(self.state.group_id, epoch, metadata_hash)
