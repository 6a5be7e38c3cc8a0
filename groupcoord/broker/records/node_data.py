"""The logs of topics as one of several nodes serves them: it reads and writes the partitions that it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import Topic
from groupcoord.core.records import TransactionMarker
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import FailedLogError

if TYPE_CHECKING:
    from groupcoord.storage.partition_log import PartitionLog


class NotLeaderError(FailedLogError):
    """A node does not lead a partition: NOT_LEADER_OR_FOLLOWER."""

    def __init__(self) -> None:
        super().__init__("this node does not lead the partition")
        self.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class NodeData(TopicData):
    """What topics hold, for the clients of a node: only what it leads.

    Args:
        whole: what topics hold, of all nodes.
        leadership: who leads what.
        node_id: the node.
    """

    def __init__(self, whole: TopicData, leadership: Leadership, node_id: int) -> None:
        super().__init__(whole.config, whole.clock, whole.topics, all_logs=whole.all_logs)
        self._whole = whole
        self._leadership = leadership
        self._node_id = node_id

    @property
    def whole(self) -> TopicData:
        """See :class:`~groupcoord.broker.records.topic_data.TopicData`."""
        return self._whole

    def log(self, topic: Topic, partition_index: int) -> PartitionLog | None:
        """See :class:`~groupcoord.broker.records.topic_data.TopicData`.

        Raises:
            FailedLogError: its files can't be used; NotLeaderError, which is one: another node leads it.
        """
        leader = self._leadership.leader(topic, partition_index)
        if leader.node_id != self._node_id:
            raise NotLeaderError
        log = super().log(topic, partition_index)
        if log is not None and log.leader_epoch != leader.epoch:  # its files could not be used for a while
            log.begin_epoch(leader.epoch)
            self._leadership.raise_epoch(topic, partition_index, log.leader_epoch)
        return log

    def leader_epoch(self, topic: Topic, partition_index: int) -> int:
        """See :class:`~groupcoord.broker.records.topic_data.TopicData`."""
        return self._leadership.leader(topic, partition_index).epoch

    def append_marker(self, name: str, partition_index: int, marker: TransactionMarker) -> ErrorCode:
        """See :class:`~groupcoord.broker.records.topic_data.TopicData`."""
        topic = self.topics.get(name)
        if topic is not None and not self._leadership.leads(self._node_id, topic, partition_index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return super().append_marker(name, partition_index, marker)
