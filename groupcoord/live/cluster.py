"""What is asked of a cluster, whoever asks: where logs are, where they begin and end, and batches as they lie there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol
from uuid import UUID

from attrs import frozen

OFFSETS_TOPIC = "__consumer_offsets"


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class LogEnd(IntEnum):
    """Which offset of a log is asked for, by the numbers of ListOffsets."""

    LATEST = -1
    EARLIEST = -2


@frozen
class TopicMetadata:
    """A topic, as the cluster tells of it.

    Attributes:
        name: of the topic.
        topic_id: its id; zero from brokers before Kafka 2.8.
        leaders: by partition, the id of the broker that leads it; -1: nobody does now.
    """

    name: str
    topic_id: UUID
    leaders: Mapping[int, int]


@frozen
class ClusterMetadata:
    """The cluster, and the topics that were asked for.

    Attributes:
        cluster_id: its id.
        topics: by name.
        errors: of those that aren't told of, Kafka's error codes by name.
    """

    cluster_id: str
    topics: Mapping[str, TopicMetadata]
    errors: Mapping[str, int]


class ListedOffset(NamedTuple):
    """An end of a log.

    Attributes:
        error_code: Kafka's; 0: none, and the rest holds.
        offset: of the log.
        leader_epoch: in which it was written; -1: not told.
    """

    error_code: int
    offset: int
    leader_epoch: int


class FetchedBytes(NamedTuple):
    """What one fetch brought.

    Attributes:
        batches: back to back; the first may begin before the offset asked for, the last may be cut short.
        high_watermark: up to where the log is replicated, and can be read.
        log_start_offset: where the log begins.
    """

    batches: bytes
    high_watermark: int
    log_start_offset: int


class Cluster(Protocol):
    """A cluster that answers. Every call raises the errors of :mod:`groupcoord.live.errors`."""

    def metadata(self, topics: Sequence[str]) -> ClusterMetadata:
        """Ask for topics, from any broker, and remember who leads their partitions."""

    def list_offsets(
        self, partitions: Collection[TopicPartition], end: LogEnd, *, is_stable: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """Ask for an end of logs, with one request to each broker that leads some.

        Args:
            partitions: whose.
            end: which one.
            is_stable: up to the first open transaction instead of the high watermark.
        """

    def fetch_raw(self, partition: TopicPartition, offset: int, max_bytes: int) -> FetchedBytes:
        """Fetch batches as they lie in the log, of open and aborted transactions too, from an offset on.

        Args:
            partition: whose log.
            offset: the first one wanted.
            max_bytes: about how much; one batch at least.

        Raises:
            OffsetOutOfRangeError: the log begins behind it, or ends before.
        """

    def close(self) -> None:
        """Close all connections."""


class OffsetOutOfRangeError(Exception):
    """A fetch asked for an offset that the log does not hold."""
