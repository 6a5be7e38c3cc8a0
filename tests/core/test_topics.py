"""Topics of commits, fetches and deletions of offsets: ids, unknown ones, and a coordinator without a list."""

from __future__ import annotations

from uuid import UUID

import pytest

from groupcoord import ErrorCode
from groupcoord.core.topics import AnyTopic
from groupcoord.messages import (
    DeleteGroups,
    DeleteGroupsResponse,
    FetchedTopic,
    GroupToFetch,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetToCommit,
    TopicToCommit,
    TopicToFetch,
    TxnOffsetCommitResponse,
)
from tests.core.driver import Driver, Group

ZERO, ORDERS, TRADES, GONE = (UUID(int=number) for number in range(4))
NONE = ErrorCode.NONE
NO_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NO_ID = ErrorCode.UNKNOWN_TOPIC_ID


class TwoTopics:
    """``orders`` and ``trades``, with three partitions each."""

    def __init__(self) -> None:
        self.ids = {"orders": ORDERS, "trades": TRADES}

    def partition_count(self, name: str) -> int | None:
        return 3 if name in self.ids else None

    def topic_id(self, name: str) -> UUID | None:
        return self.ids.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, known in self.ids.items() if known == topic_id), None)


@pytest.fixture
def driver() -> Driver:
    return Driver(topics=TwoTopics())


@pytest.fixture
def group(driver: Driver) -> Group:
    return Group(driver)


def topic(name: str | None, *indexes: int, topic_id: UUID = ZERO) -> TopicToCommit:
    """Return a topic of a commit, with offset 5 for each partition."""
    return TopicToCommit(name, tuple(OffsetToCommit(index, 5) for index in indexes), topic_id)


def plain(response: OffsetCommitResponse | TxnOffsetCommitResponse | OffsetDeleteResponse) -> list:
    """Return an answer as [(topic, {partition: error})]; several results of a partition make a list."""
    return [
        (t.topic_id if t.name is None else t.name, [(p.partition_index, p.error_code) for p in t.partitions])
        for t in response.topics
    ]


def fetch(driver: Driver, *topics: TopicToFetch, everything: bool = False) -> tuple[FetchedTopic, ...]:
    """Fetch by topic id."""
    wanted = GroupToFetch("group", None if everything else topics)
    return driver.coordinator.call(OffsetFetch((wanted,), uses_topic_ids=True)).groups[0].topics


def test_without_a_list_of_topics() -> None:
    """A coordinator that knows no topics takes every name and partition, and no ids."""
    driver = Driver()
    group = Group(driver)
    assert group.commit({2**31 - 1: 5}, topic="anything").error is NONE
    request = OffsetCommit("group", (topic(None, 0, topic_id=ORDERS),))
    assert plain(driver.coordinator.call(request)) == [(ORDERS, [(0, NO_ID)])]
    assert fetch(driver, everything=True) == ()
    assert AnyTopic().topic_name(ORDERS) is None


def test_an_answer_of_many_parts_is_given_once() -> None:
    """Deletions over partitions and commits beside refused topics do not disturb each other's answers."""
    driver = Driver(late=True, topics=TwoTopics(), offsets_topic_num_partitions=3)
    groups = [Group(driver, name) for name in "abcd"]
    for group in groups:
        group.commit(1)
    driver.write()
    deletion = driver.submit(DeleteGroups(("a", "b", "c", "d", "absent")))
    commits = [driver.submit(OffsetCommit("e", (topic("orders", 0, 9),))) for _ in range(2)]
    driver.write()
    assert len(deletion.answer(DeleteGroupsResponse).results) == 5
    assert [plain(sent.answer(OffsetCommitResponse)) for sent in commits] == [
        [("orders", [(9, NO_TOPIC), (0, NONE)])]
    ] * 2
