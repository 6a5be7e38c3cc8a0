"""Offsets of a streams group: epochs that may commit them, and their expiry."""

from __future__ import annotations

import pytest

from groupcoord import ErrorCode
from groupcoord.messages import (
    GroupToFetch,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Subtopology,
    TopicInfo,
    TopicToCommit,
    TopicToDelete,
    Topology,
)
from groupcoord.testing.topics import Topics
from tests.core.driver import Driver
from tests.core.streams.members import SETTINGS, Threads
from tests.tables import as_one_test

TWO_PARTS = Topology(
    0,
    (
        Subtopology("0", ("lines",), repartition_sink_topics=("words",)),
        Subtopology("1", repartition_source_topics=(TopicInfo("words"),)),
    ),
)
MINUTE_MS = 60_000


def halfway() -> Threads:
    """Return a group where ``a`` has epoch 3, its tasks of partition 0 since epoch 2, and is to give back partition 2.

    It had epoch 2 before; ``b``, which will have what ``a`` gives back, has come; others read what nobody processes.
    """
    topics = Topics(lines=4, words=4, others=1)
    threads = Threads(Driver(topics=topics, **SETTINGS, offsets_retention_minutes=1), TWO_PARTS)
    threads.join("a")
    threads.join("b")
    threads.beat("a", 2)
    return threads


def error_of(threads: Threads, topic: str, epoch: int, *partitions: int, member_id: str = "a", version: int = 9) -> int:
    """Return what a commit is answered for its first partition."""
    topics = (TopicToCommit(topic, tuple(OffsetToCommit(partition, 7) for partition in partitions)),)
    commit = OffsetCommit("group", topics, epoch, member_id, supports_member_epoch=version >= 9)
    return threads.driver.submit(commit).answer(OffsetCommitResponse).topics[0].partitions[0].error_code


@as_one_test
@pytest.mark.parametrize(
    ("topic", "partitions", "error_code"),
    [
        ("lines", (0,), ErrorCode.NONE),
        ("words", (0,), ErrorCode.NONE),
        ("lines", (2,), ErrorCode.STALE_MEMBER_EPOCH),
        ("lines", (0, 2), ErrorCode.STALE_MEMBER_EPOCH),
        ("others", (0,), ErrorCode.STALE_MEMBER_EPOCH),
    ],
)
def test_an_epoch_that_is_over_is_good_for_active_tasks(
    topic: str, partitions: tuple[int, ...], error_code: ErrorCode
) -> None:
    """Those that the member has had since then, by the topics that they read; one that isn't refuses the whole."""
    threads = halfway()
    threads.beat("a", 2, {"0": (0, 1), "1": (0, 1)})
    assert threads.described.members[0].member_epoch == 3
    assert error_of(threads, topic, 2, *partitions) is error_code


def test_offsets_of_what_members_read_last() -> None:
    """They don't expire and can't be deleted as long as there are members; others can, and do."""
    threads = halfway()
    for topic in ("lines", "words", "others"):
        assert error_of(threads, topic, 2, 0) is ErrorCode.NONE
    wanted = tuple(TopicToDelete(topic, (0,)) for topic in ("lines", "words"))
    deleted = threads.driver.coordinator.call(OffsetDelete("group", wanted))
    assert {topic.partitions[0].error_code for topic in deleted.topics} == {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}

    def committed() -> set[str | None]:
        (fetched,) = threads.driver.coordinator.call(OffsetFetch((GroupToFetch("group", None),))).groups
        return {topic.name for topic in fetched.topics}

    for _ in range(24):
        threads.driver.advance(30_000)
        threads.beat("a", 2, {"0": (0, 1), "1": (0, 1)})
        threads.beat("a", 3)
        threads.beat("b", 3)
    assert committed() == {"lines", "words"}
    for member_id in ("a", "b"):
        threads.beat(member_id, -1)
    threads.driver.advance(11 * MINUTE_MS)
    assert threads.described.error_code is ErrorCode.GROUP_ID_NOT_FOUND
