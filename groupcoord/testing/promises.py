"""What producers were told is committed in their transactions: it is to be seen when a transaction is (KAFKA-19163)."""

from __future__ import annotations

from groupcoord.core.messages import (
    CompleteTransaction,
    CompleteTransactionResponse,
    DeleteGroups,
    OffsetDelete,
    Request,
)
from groupcoord.errors import ErrorCode
from groupcoord.laws import OffsetKey, offsets_in_log, require
from groupcoord.log_store import LogStore


class PromisedOffsets:
    """Offsets of open transactions that were answered with NONE.

    Those that somebody has asked to delete are promised to nobody.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], set[OffsetKey]] = {}
        self._groups: set[str] = set()
        self._topics: set[str] = set()

    def copy(self) -> PromisedOffsets:
        """Return the same promises, to go on with apart from these."""
        copy = PromisedOffsets()
        copy._open = {transaction: set(keys) for transaction, keys in self._open.items()}
        copy._groups, copy._topics = set(self._groups), set(self._topics)
        return copy

    def note_request(self, request: Request) -> None:
        """Take note of who asks for a deletion."""
        if isinstance(request, DeleteGroups):
            self._groups.update(filter(None, request.group_ids))
        elif isinstance(request, OffsetDelete):
            self._groups.add(request.group_id)

    def note_deleted_topic(self, topic: str) -> None:
        """A topic is gone, and its offsets with it."""
        self._topics.add(topic)

    def promise(self, partition: int, producer_id: int, key: OffsetKey) -> None:
        """A producer was told that an offset of its transaction is taken, on a log partition."""
        self._open.setdefault((partition, producer_id), set()).add(key)

    def check_marker(
        self, log_store: LogStore, marker: CompleteTransaction, response: CompleteTransactionResponse | None
    ) -> None:
        """The offsets of a transaction that was committed are seen, or newer ones.

        Args:
            log_store: the log.
            marker: what ends the transaction.
            response: its answer; None: there is none.

        Raises:
            LawBrokenError: an offset is gone that nobody has asked to delete.
        """
        promised = self._open.pop((marker.partition, marker.producer_id), set())
        if promised and marker.committed and response is not None and response.error_code is ErrorCode.NONE:
            seen = offsets_in_log(log_store, marker.partition)
            for key in promised - seen.keys():
                group_id, topic, _ = key
                is_deleted = group_id in self._groups or topic in self._topics
                require(
                    is_deleted, f"a transaction of {marker.producer_id} is committed, and its offset of {key} is gone"
                )

    def forget(self) -> None:
        """Nobody knows any more which transactions go on: answers to markers were lost."""
        self._open.clear()
