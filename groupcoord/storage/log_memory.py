"""Bound on the memory that the logs of all topics use together."""

from __future__ import annotations

from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import RefusedBatchError

BATCH_OVERHEAD_BYTES = 160
"""Memory of a batch in addition to its bytes."""

PRODUCER_BYTES = 1_024
"""Upper bound of the memory for the state of one producer in one log."""

LOG_BYTES = 2_048
"""Upper bound of the memory for an empty log."""

MARKERS_RESERVE = 1 / 16
"""Part of the limit that markers may exceed it by, because a transaction that can't end blocks its consumers."""


class LogMemory:
    """Account of the memory that batches and producers use; refuses to exceed its limit.

    >>> memory = LogMemory(2_000)
    >>> memory.take(1_500)
    >>> memory.take(1_500)
    Traceback (most recent call last): groupcoord.storage.errors.RefusedBatchError: topics hold 1500 bytes of at most
    2000 (records.memory.max.bytes)

    Args:
        bytes_max: the limit for all logs together.

    Attributes:
        used_bytes: the memory in use.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0

    def take(self, size_bytes: int, *, is_marker: bool = False) -> None:
        """Reserve memory for a log.

        Raises:
            RefusedBatchError: POLICY_VIOLATION, the limit is reached. Clients give up at once on this error; after
                KAFKA_STORAGE_ERROR they would retry until their delivery timeout.
        """
        limit = self.bytes_max * (1 + MARKERS_RESERVE) if is_marker else self.bytes_max
        if self.used_bytes + size_bytes > limit:
            reason = f"topics hold {self.used_bytes} bytes of at most {self.bytes_max} (records.memory.max.bytes)"
            raise RefusedBatchError(ErrorCode.POLICY_VIOLATION, reason)
        self.used_bytes += size_bytes

    def take_if_left(self, size_bytes: int) -> bool:
        """Reserve memory if the limit allows it; return whether it did."""
        if self.used_bytes + size_bytes > self.bytes_max:
            return False
        self.used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Release memory."""
        self.used_bytes -= size_bytes
