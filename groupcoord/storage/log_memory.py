"""How much memory the logs of all topics may take together."""

from __future__ import annotations

from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import RefusedBatchError

BATCH_OVERHEAD_BYTES = 160
"""What a batch takes besides its bytes."""

PRODUCER_BYTES = 1_024
"""What is known of one producer in one log takes no more than this."""

LOG_BYTES = 2_048
"""A log that nothing was written to yet takes no more than this."""

MARKERS_RESERVE = 1 / 16
"""Markers may go so far beyond the limit, since a transaction that can't end holds up its readers."""


class LogMemory:
    """Counts what batches and producers take, and refuses what would be too much.

    >>> memory = LogMemory(2_000)
    >>> memory.take(1_500)
    >>> memory.take(1_500)
    Traceback (most recent call last):
    groupcoord.storage.errors.RefusedBatchError: topics hold 1500 bytes of at most 2000 (records.memory.max.bytes)

    Args:
        bytes_max: what all logs may take together.

    Attributes:
        used_bytes: what they take.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0

    def take(self, size_bytes: int, *, is_marker: bool = False) -> None:
        """Take so much for a log.

        Raises:
            RefusedBatchError: POLICY_VIOLATION, there is not so much left. Clients give up at once on that; on
                KAFKA_STORAGE_ERROR they would try again until their delivery time-out.
        """
        limit = self.bytes_max * (1 + MARKERS_RESERVE) if is_marker else self.bytes_max
        if self.used_bytes + size_bytes > limit:
            reason = f"topics hold {self.used_bytes} bytes of at most {self.bytes_max} (records.memory.max.bytes)"
            raise RefusedBatchError(ErrorCode.POLICY_VIOLATION, reason)
        self.used_bytes += size_bytes

    def take_if_left(self, size_bytes: int) -> bool:
        """Take so much, if there is so much left; tell whether there was."""
        if self.used_bytes + size_bytes > self.bytes_max:
            return False
        self.used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Give back what a log no longer needs."""
        self.used_bytes -= size_bytes
