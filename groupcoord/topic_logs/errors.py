"""Why a batch isn't taken, or a log can't be used."""

from __future__ import annotations

from groupcoord.errors import ErrorCode, GroupcoordError


class TopicLogError(GroupcoordError):
    """A log can't do what it is asked.

    Attributes:
        error_code: what the client is answered.
        reason: the same in words, which answers of newer versions carry.
        records: the numbers of the records in the batch that it is refused for; none: it is for the whole of it.
        tells_start: whether the answer names the log's start, as Kafka's does for what the log itself found.
    """

    def __init__(
        self, error_code: ErrorCode, reason: str, *, tells_start: bool = True, records: tuple[int, ...] = ()
    ) -> None:
        super().__init__(reason)
        self.error_code = error_code
        self.reason = reason
        self.tells_start = tells_start
        self.records = records


class RefusedBatchError(TopicLogError):
    """A batch can't be appended; nothing has changed."""


class FailedLogError(TopicLogError):
    """The files of a log can't be used at the moment: KAFKA_STORAGE_ERROR, as from a broker whose disk has failed."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, reason, tells_start=False)
