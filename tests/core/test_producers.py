"""The producers of a log partition: which markers come too late."""

from __future__ import annotations

from groupcoord import ErrorCode
from groupcoord.core.offsets.cache import Producers

OLD, FENCED, NONE = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ErrorCode.NONE,
)


def test_after_records() -> None:
    """Records change only the producer's epoch, not the coordinator's."""
    known = Producers()
    known.wrote(7, 5)
    assert known.marker_error(7, 4, 0) is OLD
    assert known.marker_error(7, 5, -1) is NONE
    known.wrote(7, 5, 3)
    known.wrote(7, 6)
    assert [known.marker_error(7, *epochs) for epochs in ((5, 3), (6, 2), (6, 3))] == [OLD, FENCED, NONE]
