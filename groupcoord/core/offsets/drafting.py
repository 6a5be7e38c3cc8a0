"""Records and results of a commit."""

from __future__ import annotations

from groupcoord.core.columns import NO_LEADER_EPOCH, AsciiTexts, OffsetColumns
from groupcoord.core.fast_construct import maker
from groupcoord.core.log.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ZERO_UUID,
    CommittedTopic,
    make_commit_kind,
    make_committed_topic,
)
from groupcoord.core.messages import TopicResult, TopicToCommit
from groupcoord.core.messages.commits import PartitionResults
from groupcoord.errors import ErrorCode

_make_result = maker(TopicResult)

Draft = tuple[list[CommittedTopic], tuple[TopicResult, ...]]


def draft_commit(
    group_id: str,
    topics: tuple[TopicToCommit, ...],
    metadata_limit: int,
    commit_timestamp_ms: int,
    expire_timestamp_ms: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> Draft:
    """Return the records and results of a commit, by topic."""
    committed, results = [], []
    for topic in topics:
        name, columns, topic_id = topic.name, topic.columns, topic.topic_id
        # The router has replaced ids by names.
        assert name is not None
        error_codes = None
        if columns.metadata is not None:
            columns, error_codes = accept_metadata(columns, metadata_limit)
        # Results name all partitions, records only the accepted ones.
        results.append(_make_result((name, topic_id, PartitionResults(topic.columns[0], error_codes))))
        if not columns[0]:
            continue
        if expire_timestamp_ms != NO_TIMESTAMP:
            # The version of the record that has an expiry has neither leader epoch nor topic id.
            topic_id = ZERO_UUID
            columns = columns._replace(leader_epochs=(NO_LEADER_EPOCH,) * len(columns.offsets))
        kind = make_commit_kind(
            (
                group_id,
                name,
                topic_id,
                commit_timestamp_ms,
                expire_timestamp_ms,
                producer_id,
                producer_epoch,
                None,
            )
        )
        committed.append(make_committed_topic((kind, columns)))
    return committed, tuple(results)


def accept_metadata(columns: OffsetColumns, limit: int) -> tuple[OffsetColumns, tuple[ErrorCode, ...] | None]:
    """Return the offsets without too long metadata, and the errors of all, or None without errors."""
    metadata = columns.metadata
    if metadata is None:
        return columns, None
    # A text has at most two UTF-16 units for each character.
    # Texts of one length are not decoded for this.
    longest = metadata.length if type(metadata) is AsciiTexts else max(map(len, metadata))
    if 2 * longest <= limit:  # nearly always
        return columns, None
    is_refused = [utf16_length(text) > limit for text in metadata]
    if True not in is_refused:
        return columns, None
    error_codes = [ErrorCode.OFFSET_METADATA_TOO_LARGE if refused else ErrorCode.NONE for refused in is_refused]
    return columns.select([place for place, refused in enumerate(is_refused) if not refused]), tuple(error_codes)


def utf16_length(text: str) -> int:
    # Kafka's limits count UTF-16 code units, lone surrogates included.
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
