"""Share groups where each node is a process: a group, a partition and its state may be with different ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from groupcoord import ErrorCode
from groupcoord.core.java.hashing import partition_for
from groupcoord.core.messages import (
    AlterShareGroupOffsets,
    CoordinatorType,
    DeleteShareGroupOffsets,
    DescribedShareOffset,
    DescribeShareGroupOffsets,
    FindCoordinator,
    ShareGroupHeartbeat,
    ShareGroupToDescribe,
    ShareOffsetToAlter,
    ShareTopicToAlter,
    ShareTopicToForget,
)
from groupcoord.core.messages.share_state import (
    InitializeShareGroupState,
    ReadShareGroupStateSummary,
    StateToInitialize,
    StateTopicToInitialize,
    StateTopicToRead,
    StateToRead,
)
from groupcoord.core.share_state.records import SharePartitionKey
from groupcoord.core.topic_names import SHARE_STATE_TOPIC
from groupcoord.wire.broker_messages import (
    CreatePartitions,
    CreatePartitionsTopic,
    DeleteTopics,
    Produce,
    ProducePartition,
    ProduceTopic,
    TopicReference,
)
from groupcoord.wire.config_messages import ConfigResourceType, ConfigToAlter, IncrementalAlterConfigs, ResourceToAlter
from groupcoord.wire.feature_messages import ApiVersions
from groupcoord.wire.share_messages import (
    AcknowledgementBatch,
    ShareAcknowledge,
    ShareFetch,
    ShareFetchPartition,
    ShareFetchTopic,
)
from tests.broker.data_world import batch
from tests.broker.test_neighbours import ACLS, PARTITIONS, STATE_PARTITIONS, Cluster

ACCEPT = 1
ASSIGNMENT_INTERVAL_MS = 1_000


class Sharing(Cluster):
    """Two nodes with the topic ``jobs``, whose partition p is led by worker p modulo 2."""

    def __init__(self, path: Path, properties: dict[str, str | int] | None = None) -> None:
        super().__init__(path, properties)
        assert self.create(0, "jobs") == "NONE"
        topic_id = self.brokers[1].topics.topic_id("jobs")
        assert topic_id is not None
        self.topic_id: UUID = topic_id

    def key(self, group_id: str, index: int) -> SharePartitionKey:
        return SharePartitionKey(group_id, self.topic_id, index)

    def state_worker(self, group_id: str, index: int) -> int:
        """Return the worker that keeps the state of a partition of the topic."""
        return partition_for(self.key(group_id, index).text, STATE_PARTITIONS) % 2

    def group(self, worker: int, state_workers: dict[int, int]) -> str:
        """Return a group that a worker coordinates, and whose states of some partitions certain workers keep.

        It begins at the beginning.
        """
        for name in (f"group{number}" for number in range(999)):
            states = {index: self.state_worker(name, index) for index in state_workers}
            if partition_for(name, PARTITIONS) % 2 == worker and states == state_workers:
                break
        config = ConfigToAlter("share.auto.offset.reset", "earliest")
        resource = ResourceToAlter(ConfigResourceType.GROUP, name, (config,))
        self.ask(0, IncrementalAlterConfigs((resource,)))
        return name

    def join(self, worker: int, group_id: str) -> list[int]:
        """Let ann join at the group's coordinator; return the partitions of the topic that she gets, once stable."""
        epoch = 0
        for _ in range(2):
            response = self.ask(worker, ShareGroupHeartbeat(group_id, "ann", epoch, None, ("jobs",)))
            assert response.error_code is ErrorCode.NONE
            epoch = response.member_epoch
            self.pass_time(ASSIGNMENT_INTERVAL_MS)
        return sorted(index for topic in response.assignment for index in topic.partitions)

    def fill(self, index: int, record_count: int) -> None:
        """Append records, a batch each."""
        for _ in range(record_count):
            topics = (ProduceTopic("jobs", UUID(int=0), (ProducePartition(index, batch(b"v")),)),)
            self.ask(index % 2, Produce(topics))

    def fetch(self, group_id: str, index: int, member_id: str = "ann", max_wait_ms: int = 0) -> Any:
        """Open a session at the leader of a partition; return what it gives, or the list that it will come into."""
        topics = (ShareFetchTopic(self.topic_id, (ShareFetchPartition(index),)),)
        response = self.ask(index % 2, ShareFetch(group_id, member_id, 0, max_wait_ms, 1, 2**20, 500, 500, topics))
        return response if isinstance(response, list) else acquired(response)

    def accept(self, group_id: str, index: int, last: int, epoch: int = 1) -> Any:
        """Have done with the records up to an offset; return what came of it, or the list that it will come into."""
        batches = (AcknowledgementBatch(0, last, (ACCEPT,)),)
        topics = (ShareFetchTopic(self.topic_id, (ShareFetchPartition(index, batches),)),)
        response = self.ask(index % 2, ShareAcknowledge(group_id, "ann", epoch, topics))
        return response if isinstance(response, list) else response.responses[0].partitions[0].error_code

    def offsets(self, worker: int, group_id: str) -> tuple[DescribedShareOffset, ...]:
        """Return where the group stands, as its coordinator tells."""
        response = self.ask(worker, DescribeShareGroupOffsets((ShareGroupToDescribe(group_id, None),)))
        return tuple(offset for topic in response.groups[0].topics for offset in topic.partitions)

    def lag(self, worker: int, group_id: str, index: int) -> int:
        """Return how many records of a partition the group has not done with, as its coordinator tells."""
        return self.offsets(worker, group_id)[index].lag

    def pass_time(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        for broker in self.brokers.values():
            broker.tick()
        self.settle()


def acquired(response: Any) -> list[tuple[int, int, int]]:
    """Return what a fetch has given out: first offset, last offset, how often."""
    assert response.error_code is ErrorCode.NONE
    return [tuple(one) for topic in response.responses for part in topic.partitions for one in part.acquired_records]


@pytest.fixture
def sharing(tmp_path: Path) -> Iterator[Sharing]:
    cluster = Sharing(tmp_path)
    yield cluster
    for storage in cluster.storages:
        storage.close()


def test_share_groups_are_announced(sharing: Sharing) -> None:
    """Clients learn that there are some, and from any node who keeps the state of which share-partition."""
    for worker in (0, 1):
        answer = sharing.ask(worker, ApiVersions())
        assert "share.version" in {feature.name for feature in answer.supported_features}
        assert {76, 78, 84} <= {api.api_key for api in answer.api_keys}
        for index in range(4):
            key = sharing.key("group", index).text
            (found,) = sharing.ask(worker, FindCoordinator(CoordinatorType.SHARE, (key,))).coordinators
            assert found.node.node_id == sharing.state_worker("group", index) + 1


@pytest.mark.parametrize("state", [0, 1])
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("group", [0, 1])
def test_records_are_shared_wherever_things_are(sharing: Sharing, group: int, index: int, state: int) -> None:
    """Whoever coordinates the group, leads the partition and keeps its state: what is accepted never comes again."""
    group_id = sharing.group(group, {index: state})
    sharing.fill(index, 3)
    assert sharing.join(group, group_id) == [0, 1, 2, 3]
    assert sharing.fetch(group_id, index) == [(0, 2, 1)]
    assert sharing.accept(group_id, index, 1) is ErrorCode.NONE
    assert sharing.lag(group, group_id, index) == 1
    sharing.kill(index)
    sharing.start(index)
    assert sharing.fetch(group_id, index, "ben") == [(2, 2, 1)]


@pytest.mark.parametrize("group", [0, 1])
def test_one_request_goes_to_all_that_have_some_of_it(sharing: Sharing, group: int) -> None:
    """What administrators change or forget of a group is changed or forgotten at all processes that keep its states."""
    group_id = sharing.group(group, {0: 0, 1: 1, 2: 0, 3: 1})
    sharing.join(group, group_id)
    sharing.ask(group, ShareGroupHeartbeat(group_id, "ann", -1))
    wanted = tuple(ShareOffsetToAlter(index, 10 + index) for index in range(4))
    altered = sharing.ask(group, AlterShareGroupOffsets(group_id, (ShareTopicToAlter("jobs", wanted),)))
    assert [result.error_code for result in altered.responses[0].partitions] == [ErrorCode.NONE] * 4
    assert [offset.start_offset for offset in sharing.offsets(group, group_id)] == [10, 11, 12, 13]
    forgotten = sharing.ask(group, DeleteShareGroupOffsets(group_id, (ShareTopicToForget("jobs"),)))
    assert [topic.error_code for topic in forgotten.responses] == [ErrorCode.NONE]
    assert sharing.offsets(group, group_id) == ()
    for worker in (0, 1):
        topics = (StateTopicToRead(sharing.topic_id, tuple(StateToRead(index, 0) for index in (worker, worker + 2))),)
        (found,) = sharing.ask(worker, ReadShareGroupStateSummary(group_id, topics)).results
        assert [(summary.error_code, summary.start_offset) for summary in found.partitions] == [
            (ErrorCode.NONE, -1),
            (ErrorCode.NONE, -1),
        ]


def test_a_worker_that_is_killed_is_asked_again(sharing: Sharing) -> None:
    """Who accepts records while the one is gone that keeps their state hears of it when that is back, and it holds."""
    group_id = sharing.group(0, {0: 1})
    sharing.fill(0, 2)
    sharing.join(0, group_id)
    assert sharing.fetch(group_id, 0) == [(0, 1, 1)]
    sharing.kill(1)
    answers = sharing.accept(group_id, 0, 0)
    assert answers == []
    sharing.pass_time(1_000)
    assert answers == []
    sharing.start(1)
    sharing.pass_time(2_000)
    assert answers[0].responses[0].partitions[0].error_code is ErrorCode.NONE
    assert sharing.lag(0, group_id, 0) == 1


def test_a_worker_that_stays_away(sharing: Sharing) -> None:
    """After five tries in 15 s who waits is told COORDINATOR_NOT_AVAILABLE, and others may have the records."""
    group_id = sharing.group(0, {0: 1})
    sharing.fill(0, 1)
    sharing.join(0, group_id)
    assert sharing.fetch(group_id, 0) == [(0, 0, 1)]
    sharing.kill(1)
    answers = sharing.accept(group_id, 0, 0)
    for pause_ms in (1_000, 2_000, 4_000, 8_000):
        assert answers == []
        sharing.pass_time(pause_ms)
    assert answers[0].responses[0].partitions[0].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    sharing.start(1)
    sharing.pass_time(60_000)
    assert sharing.fetch(group_id, 0, "ben") == [(0, 0, 2)]


def test_a_member_hears_when_states_are_begun(sharing: Sharing) -> None:
    """A group whose states are begun by another worker gives partitions out as soon as that has answered."""
    group_id = sharing.group(0, {0: 1, 2: 1})
    sharing.holds = True
    response = sharing.ask(0, ShareGroupHeartbeat(group_id, "ann", 0, None, ("jobs",)))
    assert (response.error_code, response.assignment) == (ErrorCode.NONE, ())
    sharing.let_go_on()
    assert sharing.join(0, group_id) == [0, 1, 2, 3]


def test_a_fetch_waits_for_a_state_that_comes_late(sharing: Sharing) -> None:
    """A fetch is answered as soon as another worker has told the state of the partition."""
    group_id = sharing.group(0, {0: 1})
    sharing.fill(0, 1)
    sharing.join(0, group_id)
    sharing.holds = True
    answers = sharing.fetch(group_id, 0, max_wait_ms=500)
    assert answers == []
    sharing.let_go_on()
    assert acquired(answers[0]) == [(0, 0, 1)]


def test_states_of_a_deleted_topic_are_forgotten_everywhere(sharing: Sharing) -> None:
    """When a topic is deleted all workers forget the states of its partitions."""
    group_id = sharing.group(0, {0: 0, 1: 1})
    sharing.join(0, group_id)
    sharing.ask(1, DeleteTopics((TopicReference("jobs"),), 1_000))
    for worker in (0, 1):
        topics = (StateTopicToRead(sharing.topic_id, (StateToRead(worker, 0),)),)
        (found,) = sharing.ask(worker, ReadShareGroupStateSummary(group_id, topics)).results
        assert found.partitions[0].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_asks_the_worker_that_keeps_a_state(sharing: Sharing) -> None:
    """A worker says NOT_COORDINATOR of states that another one keeps, and does what is asked of its own."""
    group_id = sharing.group(0, {0: 0, 1: 1})
    for index in (0, 1):
        topics = (StateTopicToInitialize(sharing.topic_id, (StateToInitialize(index, 1, 7),)),)
        codes = [
            sharing.ask(worker, InitializeShareGroupState(group_id, topics)).results[0].partitions[0].error_code
            for worker in (0, 1)
        ]
        assert codes[index] is ErrorCode.NONE
        assert codes[1 - index] is ErrorCode.NOT_COORDINATOR


def test_workers_may_ask_each_other(tmp_path: Path) -> None:
    """What only brokers may ask, as ACLs have it, workers ask each other; clients are refused."""
    sharing = Sharing(tmp_path, {**ACLS, "super.users": "User:a"})
    group_id = sharing.group(0, {0: 1, 1: 0})
    sharing.fill(0, 2)
    assert sharing.join(0, group_id) == [0, 1, 2, 3]
    assert sharing.fetch(group_id, 0) == [(0, 1, 1)]
    topics = (StateTopicToRead(sharing.topic_id, (StateToRead(0, 0),)),)
    (found,) = sharing.ask(1, ReadShareGroupStateSummary(group_id, topics), "User:b").results
    assert found.partitions[0].error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_the_topic_of_states_stays_as_it_is(sharing: Sharing) -> None:
    """It is there from the start, and is neither deleted nor extended: its number of partitions says who keeps what."""
    (deleted,) = sharing.ask(1, DeleteTopics((TopicReference(SHARE_STATE_TOPIC),), 1_000)).responses
    assert deleted.error_code is ErrorCode.INVALID_REQUEST
    (grown,) = sharing.ask(1, CreatePartitions((CreatePartitionsTopic(SHARE_STATE_TOPIC, 60),), 1_000)).results
    assert grown.error_code is ErrorCode.INVALID_REQUEST
