"""OffsetCommit and OffsetFetch inside one shard."""

from __future__ import annotations

from uuid import UUID

from groupcoord.core.continuations import WhenCommitted
from groupcoord.core.effects import Token
from groupcoord.core.group import GroupMetadata
from groupcoord.core.messages import (
    CommittedPartition,
    CommittedTopic,
    FetchedGroup,
    FetchedOffset,
    FetchedTopic,
    GroupToFetch,
    OffsetCommit,
    OffsetCommitResponse,
    TopicToCommit,
)
from groupcoord.core.records import NO_TIMESTAMP, ZERO_UUID, OffsetCommitRecord
from groupcoord.core.shard import Shard
from groupcoord.core.states import GroupState
from groupcoord.errors import ErrorCode

NO_OFFSET = -1
NO_LEADER_EPOCH = -1


class Commits:
    """Handles the offset requests of one shard."""

    __slots__ = ("_config", "_effects", "_groups", "_journal", "_offsets", "_shard", "_timers")

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._config = shard.config
        self._effects = shard.effects
        self._groups = shard.groups
        self._journal = shard.journal
        self._offsets = shard.journal.hard.offsets
        self._timers = shard.timers

    # ------------------------------------------------------------ OffsetCommit

    def commit(self, request: OffsetCommit, token: Token, now_ms: int) -> None:
        """Commit offsets: the answer waits for the log. Partitions with too long metadata are refused on their own."""
        assert request.group_id is not None
        group = self._groups.get(request.group_id)
        error_code = self._validate(group, request, now_ms)
        if error_code is not ErrorCode.NONE:
            self._effects.reply(token, refused_commit(request.topics, error_code))
            return
        records: list[OffsetCommitRecord] = []
        expire_timestamp_ms = NO_TIMESTAMP if request.retention_time_ms == -1 else now_ms + request.retention_time_ms
        topics = tuple(
            CommittedTopic(
                topic.name, topic.topic_id, self._accept(request.group_id, topic, now_ms, expire_timestamp_ms, records)
            )
            for topic in request.topics
        )
        response = OffsetCommitResponse(topics)
        if records:
            self._journal.begin_commit(records, WhenCommitted(request.group_id, token, response))
        else:
            self._effects.reply(token, response)

    def _accept(
        self,
        group_id: str,
        topic: TopicToCommit,
        now_ms: int,
        expire_timestamp_ms: int,
        records: list[OffsetCommitRecord],
    ) -> tuple[CommittedPartition, ...]:
        """Add a record for each partition that is accepted; return what each will be answered."""
        name, topic_id = topic.name, topic.topic_id
        assert name is not None
        limit = self._config.offset_metadata_max_bytes
        results = []
        for offset in topic.partitions:
            metadata = offset.committed_metadata or ""
            index = offset.partition_index
            if metadata and utf16_length(metadata) > limit:
                results.append(CommittedPartition(index, ErrorCode.OFFSET_METADATA_TOO_LARGE))
                continue
            records.append(
                OffsetCommitRecord(
                    group_id,
                    name,
                    index,
                    offset.committed_offset,
                    offset.committed_leader_epoch,
                    metadata,
                    now_ms,
                    expire_timestamp_ms,
                    topic_id,
                )
            )
            results.append(CommittedPartition(index, ErrorCode.NONE))
        return tuple(results)

    def _validate(self, group: GroupMetadata | None, request: OffsetCommit, now_ms: int) -> ErrorCode:
        """Return NONE if the request may commit; a member that may is alive."""
        if group is None:
            # Outside of group management anybody may commit; a group that only has offsets comes of it.
            return ErrorCode.NONE if request.generation_id < 0 else ErrorCode.GROUP_ID_NOT_FOUND
        if request.generation_id < 0 and group.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if request.generation_id < 0 and not request.member_id and request.group_instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member = group.identify(request.member_id, request.group_instance_id)
        if isinstance(member, ErrorCode):
            return member
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._timers.arm(member.session_timer, now_ms + member.session_timeout_ms)
        return ErrorCode.NONE

    def on_durable(self, written: WhenCommitted) -> None:
        """The offsets are in the log: a group that nobody knew exists from now on."""
        group_id = written.group_id
        group = self._groups.get(group_id)
        if group is not None:
            group.is_durable = True
        elif group_id not in self._shard.burials:
            group = self._groups[group_id] = GroupMetadata(group_id, self._shard.partition, None)
            group.is_durable = True
        self._effects.reply(written.token, written.response)

    def on_failure(self, written: WhenCommitted, error_code: ErrorCode) -> None:
        """Nothing was written: every partition that was accepted gets the error."""
        topics = tuple(
            topic._replace(
                partitions=tuple(
                    p._replace(error_code=error_code) if p.error_code is ErrorCode.NONE else p for p in topic.partitions
                )
            )
            for topic in written.response.topics
        )
        self._effects.reply(written.token, OffsetCommitResponse(topics))

    # ------------------------------------------------------------ OffsetFetch

    def fetch(self, wanted: GroupToFetch, *, require_stable: bool) -> FetchedGroup:
        """Return a group's committed offsets; of a group that nobody knows, there are none.

        Topics are named, and carry the id that they were asked for with.
        """
        assert wanted.group_id is not None
        committed = self._offsets.of_group(wanted.group_id)
        if wanted.topics is None:
            topics = tuple(
                self._fetch_topic(wanted.group_id, name, ZERO_UUID, tuple(partitions), require_stable)
                for name, partitions in committed.items()
            )
        else:
            topics = tuple(
                self._fetch_topic(wanted.group_id, t.name or "", t.topic_id, t.partition_indexes, require_stable)
                for t in wanted.topics
            )
        return FetchedGroup(wanted.group_id, ErrorCode.NONE, topics)

    def _fetch_topic(
        self, group_id: str, name: str, topic_id: UUID, indexes: tuple[int, ...], require_stable: bool
    ) -> FetchedTopic:
        offsets = self._offsets
        partitions = offsets.of_group(group_id).get(name, {})
        checks_stability = require_stable and offsets.has_open_transaction(group_id)
        fetched = []
        for index in indexes:
            found = partitions.get(index)
            if checks_stability and offsets.is_unstable(group_id, name, index):
                fetched.append(no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif found is None or _is_another_topic(found[1], topic_id):
                fetched.append(no_offset(index))
            else:
                record = found[1]
                fetched.append(
                    FetchedOffset(index, record.offset, record.leader_epoch, record.metadata, ErrorCode.NONE)
                )
        return FetchedTopic(name, topic_id, tuple(fetched))


def _is_another_topic(record: OffsetCommitRecord, topic_id: UUID) -> bool:
    """Tell whether an offset was committed for a topic of the same name that is gone by now (KIP-848's topic ids)."""
    return topic_id != ZERO_UUID and record.topic_id != ZERO_UUID and record.topic_id != topic_id


def no_offset(partition_index: int, error_code: ErrorCode = ErrorCode.NONE) -> FetchedOffset:
    """Return the answer for a partition without a (visible) committed offset."""
    return FetchedOffset(partition_index, NO_OFFSET, NO_LEADER_EPOCH, "", error_code)


def refused_commit(topics: tuple[TopicToCommit, ...], error_code: ErrorCode) -> OffsetCommitResponse:
    """Return a commit's answer with the same error on every partition."""
    return OffsetCommitResponse(
        tuple(
            CommittedTopic(
                topic.name,
                topic.topic_id,
                tuple(CommittedPartition(offset.partition_index, error_code) for offset in topic.partitions),
            )
            for topic in topics
        )
    )


def utf16_length(text: str) -> int:
    """Return the number of UTF-16 code units, which is what Kafka's limits on text count."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
