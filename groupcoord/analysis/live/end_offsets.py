"""Log start offsets and end offsets of topics' partitions at one moment (ListOffsets), to compute lag from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from groupcoord.analysis.live.cluster import ClusterMetadata, ListedOffset, LiveCluster, LogEnd
from groupcoord.analysis.live.errors import TRANSIENT
from groupcoord.analysis.live.retries import Patience
from groupcoord.core.consumer_protocol import TopicPartition
from groupcoord.errors import ErrorCode


class PartitionEnds(NamedTuple):
    """Where the log of a partition begins and ends.

    Attributes:
        topic: the topic.
        topic_partition: its partition; None: the cluster tells nothing of the whole topic.
        at_ms: when this was asked.
        log_start_offset: the first offset of the log; None, as the next two, if that isn't told.
        end_offset: the high watermark.
        last_stable_offset: the first offset of an open transaction, or the high watermark.
        leader_epoch: of the log's leader; -1: not told.
        error_code: Kafka's; 0: none.
    """

    topic: str
    topic_partition: int | None
    at_ms: int
    log_start_offset: int | None
    end_offset: int | None
    last_stable_offset: int | None
    leader_epoch: int
    error_code: int


def list_ends(
    cluster: LiveCluster, patience: Patience, topics: Collection[str] | None, now_ms: Callable[[], int]
) -> list[PartitionEnds]:
    """Return the ends of topics' partitions, from three ListOffsets requests to each broker.

    A partition without a leader delays no other: it is a row with an error, as is one whose leader does not answer
    within :data:`groupcoord.analysis.live.retries.SETTLE_MS`.

    Args:
        cluster: the cluster.
        patience: how long to retry while nothing at all answers.
        topics: their names; None: all that the user may describe. One that does not exist, or that the user may not
            describe, is a row with an error.
        now_ms: returns the time, in milliseconds since 1970.

    Raises:
        ClusterError: the cluster can't be reached.
    """

    def ask() -> list[PartitionEnds]:
        metadata = cluster.metadata(None if topics is None else sorted(topics))
        return list(_rows(cluster, metadata, now_ms))

    return patience.collect(ask, lambda rows: not any(map(_may_settle, rows)))


def _may_settle(row: PartitionEnds) -> bool:
    """Tell whether the named leader has failed, so that another one may be elected now."""
    has_leader = row.error_code != ErrorCode.LEADER_NOT_AVAILABLE
    return row.topic_partition is not None and has_leader and row.error_code in TRANSIENT


def _rows(cluster: LiveCluster, metadata: ClusterMetadata, now_ms: Callable[[], int]) -> Iterator[PartitionEnds]:
    wanted = [TopicPartition(name, number) for name, topic in metadata.topics.items() for number in topic.leaders]
    starts = cluster.list_offsets(wanted, LogEnd.EARLIEST)
    stable = cluster.list_offsets(wanted, LogEnd.LATEST, is_stable=True)
    at_ms = now_ms()
    ends = cluster.list_offsets(wanted, LogEnd.LATEST)
    for name, error_code in metadata.errors.items():
        yield PartitionEnds(name, None, at_ms, None, None, None, -1, error_code)
    for one in sorted(wanted):
        listed = (starts[one], ends[one], stable[one])
        error = next((answer.error_code for answer in listed if answer.error_code != ErrorCode.NONE), ErrorCode.NONE)
        start, end, last_stable = (_told(answer) for answer in listed)
        epoch = ends[one].leader_epoch
        yield PartitionEnds(one.topic, one.partition, at_ms, start, end, last_stable, epoch, int(error))


def _told(answer: ListedOffset) -> int | None:
    return None if answer.error_code else answer.offset
