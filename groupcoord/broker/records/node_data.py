"""The logs of topics as one of several nodes serves them: it reads and writes the partitions that it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupcoord.broker.cluster.leadership import Leadership
from groupcoord.broker.records.topic_data import TopicData, check_leader_epoch
from groupcoord.broker.topics.registry import Topic
from groupcoord.core.log.records import TransactionMarker
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import FailedLogError
from groupcoord.storage.log.settings import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from groupcoord.storage.log.memory_log import PartitionLog


class NotLeaderError(FailedLogError):
    """A node does not lead a partition: NOT_LEADER_OR_FOLLOWER.

    Args:
        leader_epoch: the leader's epoch, if the node is a replica; else None.
    """

    def __init__(self, leader_epoch: int | None = None) -> None:
        super().__init__("this node does not lead the partition")
        self.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.leader_epoch = leader_epoch


def log_error(error: FailedLogError, current_leader_epoch: int) -> ErrorCode:
    """Return the error of a partition whose log can't be used here; a replica checks the client's epoch first."""
    if isinstance(error, NotLeaderError) and error.leader_epoch is not None:
        return check_leader_epoch(max(current_leader_epoch, NO_LEADER_EPOCH), error.leader_epoch) or error.error_code
    return error.error_code


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
            is_replica = self._node_id in self._leadership.replicas(topic, partition_index)
            raise NotLeaderError(leader.epoch if is_replica else None)
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
