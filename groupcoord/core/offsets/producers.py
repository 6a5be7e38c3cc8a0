"""The producers that wrote to a log partition: what the end of an old transaction is told from (KIP-98)."""

from __future__ import annotations

from typing import NamedTuple

from groupcoord.errors import ErrorCode

NO_COORDINATOR_EPOCH = -1

TRACKED_PRODUCERS_MAX = 10_000
"""So many producers are remembered for a log partition; Kafka forgets them by time (``producer.id.expiration.ms``)."""


class ProducerEpochs(NamedTuple):
    """The epoch that a producer had when it last wrote, and that of the coordinator that wrote its last marker."""

    producer_epoch: int
    coordinator_epoch: int = NO_COORDINATOR_EPOCH


class Producers:
    """The producers of the latest transactional records and markers of a log partition.

    This is no hard state: compaction may take away what it was learnt from, and then nobody is refused for it.
    """

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: dict[int, ProducerEpochs] = {}

    def wrote(self, producer_id: int, producer_epoch: int, coordinator_epoch: int | None = None) -> None:
        """A producer wrote a record, or (with a ``coordinator_epoch``) a coordinator its marker."""
        known = self._epochs.pop(producer_id, None)
        if coordinator_epoch is None:
            coordinator_epoch = NO_COORDINATOR_EPOCH if known is None else known.coordinator_epoch
        self._epochs[producer_id] = ProducerEpochs(producer_epoch, coordinator_epoch)
        if len(self._epochs) > TRACKED_PRODUCERS_MAX:
            del self._epochs[next(iter(self._epochs))]

    def marker_error(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> ErrorCode:
        """Return why a marker may not be written: a later transaction, or a later coordinator, was here already."""
        known = self._epochs.get(producer_id)
        if known is not None and producer_epoch < known.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if known is not None and coordinator_epoch < known.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def highest_id(self) -> int:
        """Return the highest producer id that is remembered; -1 if none is."""
        return max(self._epochs, default=-1)
