"""What a commit writes: a record for each partition that is accepted, and what each will be answered."""

from __future__ import annotations

from collections.abc import Sequence

from groupcoord.core.messages import PartitionResult, TopicResult, TopicToCommit
from groupcoord.core.messages.columns import AllAccepted, OffsetColumns
from groupcoord.core.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ZERO_UUID,
    CommittedTopic,
    OffsetCommitRecord,
    PlainCommits,
)
from groupcoord.errors import ErrorCode
from groupcoord.interpreter import maker

NO_LEADER_EPOCH = -1

_make_result, _make_committed = maker(TopicResult), maker(CommittedTopic)

Draft = tuple[Sequence[OffsetCommitRecord], tuple[TopicResult, ...]]
"""The records, and the results by topic."""


def draft_commit(
    group_id: str,
    topics: tuple[TopicToCommit, ...],
    metadata_limit: int,
    commit_timestamp_ms: int,
    expire_timestamp_ms: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> Draft:
    """Make the records of a commit.

    Args:
        group_id: whose offsets they are.
        topics: what the request asks for: at least one topic, each with its name and at least one partition.
        metadata_limit: ``offset.metadata.max.bytes``; longer metadata refuse their partition alone.
        commit_timestamp_ms: now.
        expire_timestamp_ms: when the offsets expire, if the request brought its own retention.
        producer_id: in whose transaction this is; -1 for a plain commit.
        producer_epoch: goes with ``producer_id``.
    """
    committed, results = [], []
    for topic in topics:
        columns = topic.partitions
        if type(columns) is not OffsetColumns or expire_timestamp_ms != NO_TIMESTAMP:
            times = (commit_timestamp_ms, expire_timestamp_ms)
            return _draft_one_by_one(group_id, topics, metadata_limit, times, (producer_id, producer_epoch))
        # None has metadata or an expiry, so all are accepted, and stay columns.
        name, topic_id = topic.name, topic.topic_id
        assert name is not None
        indexes, offsets, leader_epochs = columns.partition_indexes, columns.offsets, columns.leader_epochs
        results.append(_make_result((name, topic_id, AllAccepted(indexes))))
        like = OffsetCommitRecord(
            group_id,
            name,
            indexes[0],
            offsets[0],
            leader_epochs[0],
            "",
            commit_timestamp_ms,
            NO_TIMESTAMP,
            topic_id,
            producer_id,
            producer_epoch,
        )
        committed.append(_make_committed((like, indexes, offsets, leader_epochs)))
    return PlainCommits(committed), tuple(results)


def _draft_one_by_one(
    group_id: str,
    topics: tuple[TopicToCommit, ...],
    metadata_limit: int,
    times: tuple[int, int],
    producer: tuple[int, int],
) -> Draft:
    has_expiry = times[1] != NO_TIMESTAMP
    records: list[OffsetCommitRecord] = []
    results = []
    for topic in topics:
        name, of_topic = topic.name, []
        assert name is not None
        for offset in topic.partitions:
            index, metadata = offset.partition_index, offset.committed_metadata or ""
            if metadata and utf16_length(metadata) > metadata_limit:
                of_topic.append(PartitionResult(index, ErrorCode.OFFSET_METADATA_TOO_LARGE))
                continue
            # The version of the record that has an expiry has neither leader epoch nor topic id.
            records.append(
                OffsetCommitRecord(
                    group_id,
                    name,
                    index,
                    offset.committed_offset,
                    NO_LEADER_EPOCH if has_expiry else offset.committed_leader_epoch,
                    metadata,
                    *times,
                    ZERO_UUID if has_expiry else topic.topic_id,
                    *producer,
                )
            )
            of_topic.append(PartitionResult(index, ErrorCode.NONE))
        results.append(TopicResult(name, topic.topic_id, tuple(of_topic)))
    return records, tuple(results)


def utf16_length(text: str) -> int:
    """Return the number of UTF-16 code units, which is what Kafka's limits on text count."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
