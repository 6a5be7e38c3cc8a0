"""OffsetCommit, OffsetFetch and expiry of offsets (KIP-211), where scripts can't reach."""

from __future__ import annotations

from uuid import UUID

import pytest

from groupcoord import ErrorCode, GroupCoordinator, ManualClock
from groupcoord.messages import (
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    GroupToFetch,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    TopicToCommit,
    TopicToFetch,
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


# ---------------------------------------------------------------- OffsetFetch


ZERO, A, B = UUID(int=0), UUID(int=1), UUID(int=2)
NOTHING = FetchedOffset(0, -1, -1, "", ErrorCode.NONE)


def fetch(driver: Driver, *wanted: GroupToFetch, **how: bool) -> tuple[FetchedGroup, ...]:
    answer = driver.coordinator.call(OffsetFetch(wanted, **how))
    assert isinstance(answer, OffsetFetchResponse)
    return answer.groups


@pytest.mark.parametrize(
    ("stored", "asked", "is_found"),
    [(ZERO, ZERO, True), (A, A, True), (A, ZERO, True), (ZERO, A, True), (A, B, False)],
)
def test_topic_ids(driver: Driver, group: Group, stored: UUID, asked: UUID, is_found: bool) -> None:
    """An offset that was stored for another topic of the same name is none; without an id, the name counts."""
    group.commit(5, topic_id=stored)
    topics = (TopicToFetch("orders", (0,), asked),)
    (topic,) = fetch(driver, GroupToFetch("group", topics))[0].topics
    assert topic == FetchedTopic("orders", asked, (NOTHING._replace(committed_offset=5) if is_found else NOTHING,))


# ---------------------------------------------------------------- expiry


INTERVAL_MS = 600_000
RETENTION_MS = 10 * 60_000


def test_no_sweep_without_groups() -> None:
    """No deadline is named before there is a group; then sweeps come at the moments at which they always come."""
    driver = Driver()
    group = Group(driver)
    assert driver.coordinator.next_deadline_ms() is None
    driver.sleep(INTERVAL_MS * 5 // 2)
    group.commit(1)
    assert driver.coordinator.next_deadline_ms() == driver.clock.now_ms() + INTERVAL_MS // 2
    driver.sleep(INTERVAL_MS // 2)
    assert driver.coordinator.next_deadline_ms() == driver.clock.now_ms() + INTERVAL_MS


def test_no_sweep_after_the_last_group() -> None:
    driver = Driver(offsets_retention_minutes=1)
    Group(driver).commit(1)
    driver.sleep(INTERVAL_MS)
    assert Group(driver).state is None
    assert driver.coordinator.next_deadline_ms() is None


def test_a_managed_group_with_unknown_timestamp() -> None:
    """Without the moment of emptying, each offset counts from its commit."""
    driver = Driver(offsets_retention_minutes=10, offsets_retention_check_interval_ms=1_000)
    group = Group(driver)
    (a,) = group.stable("a", session_ms=1_800_000)
    group.leave(a)
    group.inside.state_timestamp_ms = None
    driver.sleep_until(10_000)
    group.commit(1)
    driver.sleep_until(RETENTION_MS + 9_000)
    assert group.committed() == {"orders": {0: 1}}
    driver.sleep_until(RETENTION_MS + 10_000)
    assert group.state is None
