"""Two nodes that are processes of their own, and share groups that read what both lead."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from groupcoord import ErrorCode
from groupcoord.core.java.hashing import partition_for
from groupcoord.core.messages import (
    DescribedShareOffset,
    DescribeShareGroupOffsets,
    ShareGroupHeartbeat,
    ShareGroupToDescribe,
)
from groupcoord.core.share_state.records import SharePartitionKey
from groupcoord.wire.broker_messages import (
    Produce,
    ProducePartition,
    ProduceTopic,
)
from groupcoord.wire.config_messages import ConfigResourceType, ConfigToAlter, IncrementalAlterConfigs, ResourceToAlter
from groupcoord.wire.share_messages import (
    AcknowledgementBatch,
    ShareAcknowledge,
    ShareFetch,
    ShareFetchPartition,
    ShareFetchTopic,
)
from tests.broker.data_world import batch
from tests.broker.processes import PARTITIONS, STATE_PARTITIONS, Cluster

ACCEPT, RELEASE = 1, 2
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
        name = next(
            name
            for name in (f"group{number}" for number in range(999))
            if partition_for(name, PARTITIONS) % 2 == worker
            and all(self.state_worker(name, index) == state_workers[index] for index in state_workers)
        )
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
