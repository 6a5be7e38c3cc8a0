"""OffsetCommit, TxnOffsetCommit, OffsetDelete and the ends of transactions in one log partition, with continuations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from groupcoord.core.columns import NO_LEADER_EPOCH, NO_OFFSET
from groupcoord.core.events import Cause
from groupcoord.core.fast_construct import define, maker
from groupcoord.core.groups.group import Group
from groupcoord.core.handler_context import HandlerContext
from groupcoord.core.log.log_partition import Continuation
from groupcoord.core.log.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ZERO_UUID,
    CommitRecords,
    CommittedTopic,
    OffsetTombstone,
    Record,
    TransactionMarker,
    make_commit_kind,
    make_committed_topic,
)
from groupcoord.core.messages import (
    CompleteTransaction,
    CompleteTransactionResponse,
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    GroupToFetch,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    PartitionResult,
    Reply,
    Token,
    TopicResult,
    TopicToCommit,
    TopicToFetch,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.core.messages.commits import (
    FetchedOffsets,
    PartitionResults,
    accept_metadata,
    fetched_offsets,
    refused_topics,
)
from groupcoord.core.offsets.cache import fetch_columns
from groupcoord.core.refusals import refused
from groupcoord.errors import NO_ERROR, ErrorCode


@define(eq=False)
class WhenCommitted(Continuation):
    """Counts committed offsets."""

    group_id: str
    offset_count: int

    def on_durable(self, context: HandlerContext, now_ms: int) -> None:
        context.observer.counters.offset_commits += self.offset_count

    def concerns(self, group: Group) -> bool:
        # A group that this commit made stays if an earlier append fails.
        return self.group_id == group.group_id


def count_offsets(records: Iterable[Record]) -> int:
    return sum(type(record) is OffsetTombstone for record in records)


@define(eq=False)
class WhenDeleted(Continuation):
    """Counts deleted offsets, none for a transaction marker; ends deleted groups, or puts them back."""

    groups: tuple[Group, ...]
    cause: Cause
    offset_count: int

    def on_durable(self, context: HandlerContext, now_ms: int) -> None:
        context.observer.offsets_removed(self.offset_count, self.cause)
        for group in self.groups:
            context.end(group, self.cause, now_ms)
        if self.groups:
            context.end_writings(self.groups, now_ms)

    def on_refused(self, context: HandlerContext, error_code: ErrorCode, now_ms: int) -> None:
        for group in self.groups:
            if context.is_seen(group):
                context.groups[group.group_id] = group
            else:  # no reader has seen it, and the log has no record of it
                context.end(group, Cause.CREATION_FAILED, now_ms)
        context.resume(self.groups, now_ms)
        # They may be the only ones.
        context.wake_retention(now_ms)

    def concerns(self, group: Group) -> bool:
        return any(deleted is group for deleted in self.groups)


_make_fetched, _make_topic, _make_group = maker(FetchedOffset), maker(FetchedTopic), maker(FetchedGroup)
_make_reply, _make_result = maker(Reply), maker(TopicResult)


RECORD_BYTES_MIN = 40
"""Minimum size of a commit's record in a batch of the log, without the names of group and topic."""

MANY_RECORDS = 1_000
"""Number of records above which names count for the size as well."""


class Commits:
    """Handles the offset requests of one log partition."""

    __slots__ = ("_config", "_context", "_create_group", "_effects", "_groups", "_offsets", "_timers", "_writer")

    def __init__(self, context: HandlerContext, create_group: Callable[[str, int], object]) -> None:
        self._context = context
        self._create_group = create_group
        self._config = context.config
        self._effects = context.effects
        self._groups: Mapping[str, Group] = context.groups
        self._writer = context.writer
        self._offsets = context.writer.hard.offsets
        self._timers = context.timers

    # ------------------------------------------------------------ OffsetCommit, TxnOffsetCommit

    def commit(self, request: OffsetCommit, token: Token, now_ms: int) -> None:
        """Commit offsets; the response waits for the log."""
        group_id, topics, retention_ms = request.group_id, request.topics, request.retention_time_ms
        assert group_id is not None
        group = self._groups.get(group_id)
        if group is not None:
            # Renews a classic member's session, even if the commit fails below.
            error_code = group.commit_error(request, topics, self._timers, now_ms)
        else:
            error_code = _error_without_group(request)
        if error_code is not NO_ERROR:
            self._effects.reply(token, OffsetCommitResponse(refused_topics(topics, error_code)))
            return
        # With 0 or another negative retention the next sweep removes it, as in Kafka.
        expire_timestamp_ms = NO_TIMESTAMP if retention_ms == -1 else now_ms + retention_ms
        committed, results = draft_commit(
            group_id, topics, self._config.offset_metadata_max_bytes, now_ms, expire_timestamp_ms
        )
        self._write(group_id, token, committed, OffsetCommitResponse(results), now_ms)

    def commit_transactional(self, request: TxnOffsetCommit, token: Token, now_ms: int) -> None:
        """Commit offsets as part of a transaction: durable with the response, but invisible until its marker.

        The steps of such a commit (KIP-98, KIP-447, KIP-890):

        1. The router checks the permissions, and omits unknown topics.
        2. The transaction coordinator verifies that the producer has this transaction open (``VerifyTransaction``).
        3. The group checks the member.
        4. The records with the producer's id are appended; until the log answers, the offsets are pending.
        5. Durable offsets belong to the producer. A fetch that requires stable offsets fails with
           UNSTABLE_OFFSET_COMMIT for these partitions, and they do not expire.
        6. :meth:`complete_transaction` appends the marker. A durable commit marker makes them the group's offsets
           unless there are newer ones; an abort drops them.
        """
        group = self._groups.get(request.group_id)
        # An empty id is allowed in OffsetCommit, but not in a transaction.
        if not request.group_id:
            error_code = ErrorCode.INVALID_GROUP_ID
        elif group is not None:
            error_code = group.transactional_commit_error(request)
        else:
            error_code = _error_without_group(request)
        if error_code is not ErrorCode.NONE:
            self._effects.reply(token, TxnOffsetCommitResponse(refused_topics(request.topics, error_code)))
            return
        # Without an expiry, which transactional offsets never have in Kafka.
        topics, results = draft_commit(
            request.group_id,
            request.topics,
            self._config.offset_metadata_max_bytes,
            now_ms,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        )
        self._write(request.group_id, token, topics, TxnOffsetCommitResponse(results), now_ms)

    def _write(
        self,
        group_id: str,
        token: Token,
        topics: list[CommittedTopic],
        response: OffsetCommitResponse | TxnOffsetCommitResponse,
        now_ms: int,
    ) -> None:
        # The response is complete now, and leaves when the log has the records.
        held = _make_reply((token, response))
        # Without partitions with too long metadata: their pending entries would stay forever (KAFKA-16371).
        records = CommitRecords(topics)
        count = records.record_count
        limit = self._config.message_max_bytes
        if count * RECORD_BYTES_MIN > limit or (count > MANY_RECORDS and _bytes_min(topics) > limit):
            # No log accepts so large a batch, so the commit fails at once.
            self._effects.replies.append(refused(held, ErrorCode.MESSAGE_TOO_LARGE))
            return
        # Even if no partition is accepted: Kafka creates the group before it checks the metadata.
        if group_id not in self._groups:
            self._create_group(group_id, now_ms)
        # Without accepted partitions nothing waits for the log.
        if count:
            # A pending commit shields its partitions from expiry, and deletions cover it.
            self._offsets.pending[self._writer.next_number] = records
            self._writer.begin(records, WhenCommitted(group_id, count), (held,))
        else:
            self._effects.replies.append(held)

    # ------------------------------------------------------------ ends of transactions, OffsetDelete

    def complete_transaction(self, request: CompleteTransaction, token: Token) -> None:
        """Append a producer's marker, which makes its offsets visible or drops them."""
        # An old epoch is a fenced producer's: its transaction has been aborted (KIP-98, KIP-360).
        error_code = self._offsets.producers.marker_error(
            request.producer_id, request.producer_epoch, request.coordinator_epoch
        )
        if error_code is not ErrorCode.NONE:
            self._effects.reply(token, CompleteTransactionResponse(error_code))
            return
        marker = TransactionMarker(
            request.producer_id, request.producer_epoch, request.committed, request.coordinator_epoch
        )
        # Also for a producer without offsets here.
        held = Reply(token, CompleteTransactionResponse(ErrorCode.NONE))
        self._writer.begin([marker], WhenDeleted((), Cause.DELETION, 0), (held,))

    def delete(self, request: OffsetDelete, token: Token, now_ms: int) -> None:
        group = self._groups.get(request.group_id)
        if not request.group_id:
            error_code = ErrorCode.INVALID_GROUP_ID
        else:
            # Kafka's order: the id, the group, its state, then each topic.
            error_code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_deletion_error()
        if group is None or error_code is not ErrorCode.NONE:
            self._effects.reply(token, OffsetDeleteResponse(error_code))
            return
        records: list[Record] = []
        topics = []
        for name, indexes in ((topic.name, topic.partition_indexes) for topic in request.topics):
            # Per topic, so that one topic in use does not protect the others.
            if group.uses_topic(name):
                result = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                result = ErrorCode.NONE
                # Kafka checks existence per partition, and writes no tombstone for others (KAFKA-8954).
                # A repeated partition has one tombstone, but two results.
                known = self._offsets.known_partitions(request.group_id, name, dict.fromkeys(indexes))
                records += [OffsetTombstone(request.group_id, name, index) for index in known]
            # Also partitions without an offset succeed.
            topics.append(TopicResult(name, ZERO_UUID, tuple(PartitionResult(index, result) for index in indexes)))
        response = OffsetDeleteResponse(ErrorCode.NONE, tuple(topics))
        if records:
            self._writer.begin(records, WhenDeleted((), Cause.DELETION, len(records)), (Reply(token, response),))
        else:
            self._effects.reply(token, response)

    # ------------------------------------------------------------ OffsetFetch

    def fetch(self, wanted: GroupToFetch, *, require_stable: bool) -> FetchedGroup:
        """Return a group's committed offsets; none for an unknown group."""
        assert wanted.group_id is not None
        group_id, offsets = wanted.group_id, self._offsets
        # Readers see the group of the log, not a pending one.
        group = self._context.visible(group_id)
        is_known = group is not None
        # Kafka checks member id and epoch before the topics (KIP-848).
        if group is not None and (error_code := group.fetch_error(wanted)) is not ErrorCode.NONE:
            return FetchedGroup(group_id, error_code, ())
        # Kafka answers an unknown group with offsets of -1, without an error.
        committed = offsets.of_group(group_id) if is_known else {}
        # Usually there is no open transaction, and no partition needs to be checked (KIP-447).
        checks_stability = require_stable and is_known and offsets.has_open_transaction(group_id)
        named = wanted.topics
        if named is None:
            # Partitions with only pending offsets are absent, even if stable offsets are required.
            named = tuple(TopicToFetch(name, tuple(partitions)) for name, partitions in committed.items())
        topics = []
        for topic in named:
            # Topics keep the names and ids of the request.
            name, indexes, topic_id = topic.name or "", topic.partition_indexes, topic.topic_id
            fetched = FetchedOffsets(fetch_columns(committed.get(name, {}), indexes, topic_id))
            if checks_stability:
                fetched = self._without_unstable(group_id, name, fetched)
            topics.append(_make_topic((name, topic_id, fetched)))
        return _make_group((group_id, ErrorCode.NONE, tuple(topics)))

    def _without_unstable(self, group_id: str, topic: str, fetched: FetchedOffsets) -> FetchedOffsets:
        indexes = fetched.columns.partition_indexes
        is_unstable = [self._offsets.is_unstable(group_id, topic, index) for index in indexes]
        rows = zip(fetched, is_unstable, strict=True)
        return fetched_offsets(
            [
                _make_fetched((row.partition_index, NO_OFFSET, NO_LEADER_EPOCH, "", ErrorCode.UNSTABLE_OFFSET_COMMIT))
                if unstable
                else row
                for row, unstable in rows
            ]
        )


def draft_commit(
    group_id: str,
    topics: tuple[TopicToCommit, ...],
    metadata_limit: int,
    commit_timestamp_ms: int,
    expire_timestamp_ms: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> tuple[list[CommittedTopic], tuple[TopicResult, ...]]:
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


def _error_without_group(request: OffsetCommit | TxnOffsetCommit) -> ErrorCode:
    if request.generation_id < 0:
        return NO_ERROR  # outside of group management every client may commit, which makes a simple group
    # Only versions with member epochs distinguish an absent group from a wrong generation (KIP-848).
    return ErrorCode.GROUP_ID_NOT_FOUND if request.supports_member_epoch else ErrorCode.ILLEGAL_GENERATION


def _bytes_min(topics: list[CommittedTopic]) -> int:
    return sum(
        len(columns.offsets) * (RECORD_BYTES_MIN + len(kind.group_id) + len(kind.topic)) for kind, columns in topics
    )
