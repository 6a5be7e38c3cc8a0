"""OffsetCommit: limits on metadata and records, and answers to a failed append."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode, GroupCoordinator, ManualClock
from groupcoord.messages import (
    ListGroups,
    OffsetCommit,
    OffsetToCommit,
    TopicToCommit,
)
from tests.core.driver import START_MS, Driver, Group

NONE = ErrorCode.NONE


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ("m" * 4_096, NONE),
        ("m" * 4_097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("\N{EURO SIGN}" * 4_096, NONE),
        ("\N{GRINNING FACE}" * 2_048, NONE),
        ("\N{GRINNING FACE}" * 2_048 + "m", ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("\ud800" * 4_096, NONE),
        (None, NONE),
        ("", NONE),
    ],
    ids=["4096", "4097", "4096 of three bytes", "2048 pairs", "2048 pairs and one", "lone surrogates", "null", "empty"],
)
def test_the_limit_on_metadata(group: Group, metadata: str | None, error: ErrorCode) -> None:
    """It counts UTF-16 code units; missing metadata is stored as empty."""
    assert group.commit(1, metadata=metadata).error is error
    if error is NONE:
        assert group.fetch().metadata == (metadata or "")


def test_a_commit_that_no_log_takes() -> None:
    """More records than a batch takes (``message.max.bytes``) are refused before they are made, and no group is."""
    coordinator = GroupCoordinator(clock=ManualClock(START_MS))
    coordinator.load_all()
    partitions = [OffsetToCommit(index, 5, -1, "x" * 5_000 * (index == 0)) for index in range(30_000)]
    (topic,) = coordinator.call(OffsetCommit("group", (TopicToCommit("orders", partitions),))).topics
    assert {result.error_code for result in topic.partitions} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert coordinator.call(ListGroups()).groups == ()
