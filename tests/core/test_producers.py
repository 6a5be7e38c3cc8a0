"""The producers of a log partition: which markers come too late."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode
from groupcoord.core.offsets.cache import Producers
from tests.tables import as_one_test

OLD, FENCED, NONE = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ErrorCode.NONE,
)


@as_one_test
@pytest.mark.parametrize(
    ("epoch", "coordinator_epoch", "error"),
    [(4, 9, OLD), (4, 2, OLD), (5, 3, NONE), (5, 4, NONE), (6, 3, NONE), (5, 2, FENCED), (6, -1, FENCED)],
)
def test_after_a_marker(epoch: int, coordinator_epoch: int, error: ErrorCode) -> None:
    """Neither epoch may be older than the last marker's; the producer's is looked at first."""
    known = Producers()
    known.wrote(7, 5, 3)
    assert known.marker_error(7, epoch, coordinator_epoch) is error
    assert known.marker_error(8, epoch, coordinator_epoch) is NONE


def test_after_records() -> None:
    """Records tell of the producer's epoch alone, and leave the coordinator's as it was."""
    known = Producers()
    known.wrote(7, 5)
    assert known.marker_error(7, 4, 0) is OLD
    assert known.marker_error(7, 5, -1) is NONE
    known.wrote(7, 5, 3)
    known.wrote(7, 6)
    assert [known.marker_error(7, *epochs) for epochs in ((5, 3), (6, 2), (6, 3))] == [OLD, FENCED, NONE]
