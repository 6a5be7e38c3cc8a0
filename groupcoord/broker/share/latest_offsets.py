"""Where partitions end, whichever process has their logs: for the lag of share groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from groupcoord.broker.cluster.elsewhere import LedElsewhere
from groupcoord.broker.records.list_offsets import LATEST
from groupcoord.broker.records.topic_data import READ_UNCOMMITTED, TopicData
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.core.share.host import known_ends
from groupcoord.errors import ErrorCode
from groupcoord.storage.errors import FailedLogError
from groupcoord.wire.broker_messages import (
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResponse,
    ListOffsetsTopic,
)


class LatestOffsets:
    """Finds out where partitions end: here at once, elsewhere by a request to each process that leads some of them.

    Args:
        data: what topics hold, of all nodes of this process.
        elsewhere: the other processes; None: there are none.
    """

    def __init__(self, data: TopicData, elsewhere: LedElsewhere | None) -> None:
        self._data = data
        self._elsewhere = elsewhere

    def find(self, partitions: list[TopicPartition], take: Callable[[Mapping[TopicPartition, int]], None]) -> None:
        """Find out where partitions end.

        Args:
            partitions: which.
            take: takes the offsets that are known, now or when the last process has answered.
        """
        elsewhere = self._elsewhere
        leaders = {} if elsewhere is None else elsewhere.leaders(partitions)
        found = known_ends([each for each in partitions if each not in leaders], self._end)
        missing = len(set(leaders.values()))
        if elsewhere is None or not missing:
            take(found)
            return

        def note(_: list[TopicPartition], response: ListOffsetsResponse | None) -> None:
            nonlocal missing
            found.update(_listed(response))
            missing -= 1
            if not missing:
                take(found)

        elsewhere.ask(leaders, _listing, note)

    def _end(self, name: str, index: int) -> int | None:
        """Return where a partition ends; None: there is none, or its files can't be used."""
        topic = self._data.topics.get(name)
        if topic is None or not topic.has_partition(index):
            return None
        try:
            log = self._data.log(topic, index)
        except FailedLogError:
            return None
        return None if log is None else log.end_offset


def _listing(topics: Mapping[str, list[int]]) -> ListOffsets:
    """Return the request for the latest offsets."""
    return ListOffsets(
        tuple(
            ListOffsetsTopic(name, tuple(ListOffsetsPartition(index, LATEST) for index in indexes))
            for name, indexes in topics.items()
        ),
        isolation_level=READ_UNCOMMITTED,
    )


def _listed(response: ListOffsetsResponse | None) -> dict[TopicPartition, int]:
    """Return what another process knows; one that is gone knows nothing."""
    return {
        TopicPartition(topic.name, partition.partition_index): partition.offset
        for topic in (() if response is None else response.topics)
        for partition in topic.partitions
        if partition.error_code is ErrorCode.NONE
    }
