"""OffsetFetch: null group ids, several log partitions, and offsets of another topic of the same name."""

from __future__ import annotations

from uuid import UUID

import pytest

from groupcoord import ErrorCode
from groupcoord.messages import (
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    GroupToFetch,
    OffsetFetch,
    OffsetFetchResponse,
    TopicToFetch,
)
from tests.core.driver import Driver, Group

ZERO, A, B = UUID(int=0), UUID(int=1), UUID(int=2)
NOTHING = FetchedOffset(0, -1, -1, "", ErrorCode.NONE)


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


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
