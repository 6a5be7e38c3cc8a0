"""Why a batch isn't taken."""

from __future__ import annotations

from groupcoord.errors import ErrorCode, GroupcoordError


class RefusedBatchError(GroupcoordError):
    """A batch can't be appended; nothing has changed.

    Attributes:
        error_code: what the producer is answered.
        reason: the same in words, which answers of newer versions carry.
        tells_start: whether the answer names the log's start, as Kafka's does for what the log itself found.
    """

    def __init__(self, error_code: ErrorCode, reason: str, *, tells_start: bool = True) -> None:
        super().__init__(reason)
        self.error_code = error_code
        self.reason = reason
        self.tells_start = tells_start
