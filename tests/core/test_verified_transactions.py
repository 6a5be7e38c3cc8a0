"""``verify_transaction``: the last thing before the group is looked at."""

from __future__ import annotations

from uuid import UUID

import pytest

from groupcoord import ErrorCode, GroupCoordinator, ManualClock
from groupcoord.messages import (
    OffsetToCommit,
    TopicToCommit,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from tests.core.driver import Driver


class Cluster:
    """Topic ``t`` with two partitions, and the requests to the transaction coordinator, which answers ``error``."""

    def __init__(self) -> None:
        self.asked: list[TxnOffsetCommit] = []
        self.error = ErrorCode.NONE

    def partition_count(self, name: str) -> int | None:
        return 2 if name == "t" else None

    def topic_id(self, name: str) -> UUID | None:
        return UUID(int=7) if name == "t" else None

    def topic_name(self, topic_id: UUID) -> str | None:
        return "t" if topic_id == UUID(int=7) else None

    def verify(self, request: TxnOffsetCommit) -> ErrorCode:
        self.asked.append(request)
        return self.error


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def coordinator(cluster: Cluster) -> GroupCoordinator:
    coordinator = GroupCoordinator(clock=ManualClock(), topics=cluster, verify_transaction=cluster.verify)
    coordinator.load_all()
    return coordinator


def commit(coordinator: GroupCoordinator, *topics: TopicToCommit, group_id: str = "g") -> list[tuple[object, ...]]:
    response = coordinator.call(TxnOffsetCommit(group_id, topics, 5, 0, "x"))
    assert isinstance(response, TxnOffsetCommitResponse)
    return [(topic.name, index, error.name) for topic in response.topics for index, error in topic.partitions]


def topic(name: str, *indexes: int) -> TopicToCommit:
    return TopicToCommit(name, tuple(OffsetToCommit(index, 1) for index in indexes))


def test_nobody_is_asked_for_nothing(coordinator: GroupCoordinator, cluster: Cluster) -> None:
    """Neither where no partition is left, nor without a group id, nor while the coordinator is closed."""
    cluster.error = ErrorCode.INVALID_PRODUCER_EPOCH
    assert commit(coordinator, topic("nope", 0), topic("t", 9)) == [
        ("nope", 0, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("t", 9, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert commit(coordinator, topic("t", 0), group_id="") == [("t", 0, "INVALID_GROUP_ID")]
    coordinator.close()
    assert commit(coordinator, topic("t", 0)) == [("t", 0, "COORDINATOR_NOT_AVAILABLE")]
    assert cluster.asked == []


def test_before_anything_is_loaded(cluster: Cluster) -> None:
    """It is verified before the log partition is looked up, as recorded from a broker that leads none."""
    coordinator = GroupCoordinator(clock=ManualClock(), topics=cluster, verify_transaction=cluster.verify)
    assert commit(coordinator, topic("t", 0)) == [("t", 0, "NOT_COORDINATOR")]
    cluster.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert commit(coordinator, topic("t", 0)) == [("t", 0, "COORDINATOR_NOT_AVAILABLE")]
    assert commit(coordinator, topic("t", 0), group_id="") == [("t", 0, "INVALID_GROUP_ID")]


def test_without_a_hook() -> None:
    """Every producer may."""
    coordinator = Driver().coordinator
    assert commit(coordinator, topic("t", 0)) == [("t", 0, "NONE")]
