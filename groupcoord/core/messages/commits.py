"""OffsetCommit, TxnOffsetCommit, OffsetDelete, OffsetFetch and the ends of transactions, with their responses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from types import NoneType
from typing import NamedTuple
from uuid import UUID

from attrs import field, setters
from attrs.validators import instance_of

from groupcoord.core.columns import AsciiTexts, OffsetColumns, Rows, make_columns, offset_columns
from groupcoord.core.fast_construct import define, frozen
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages.membership import UNKNOWN_GENERATION_ID, UNKNOWN_MEMBER_ID
from groupcoord.core.messages.request import GroupRequest, Request, Response
from groupcoord.errors import ErrorCode


@define(on_setattr=setters.NO_OP)
class OffsetToCommit:
    """One partition of an :class:`OffsetCommit`."""

    # Requests of an embedding program are checked here; those from the wire are columns and need no check.
    partition_index: int = field(validator=instance_of(int))
    committed_offset: int = field(validator=instance_of(int))
    committed_leader_epoch: int = field(default=-1, validator=instance_of(int))
    committed_metadata: str | None = field(default="", validator=instance_of((str, NoneType)))


_fields_of = attrgetter("partition_index", "committed_offset", "committed_leader_epoch", "committed_metadata")


@define(repr=False, init=False)
class TopicToCommit:
    """One topic of a commit: by name, or (``name`` None, request version 10) by topic id.

    It keeps a sequence of :class:`OffsetToCommit` as columns. Metadata of None equals "".
    """

    name: str | None
    columns: OffsetColumns = field(alias="partitions")
    topic_id: UUID

    def __init__(
        self, name: str | None, partitions: Sequence[OffsetToCommit] | OffsetColumns, topic_id: UUID = ZERO_UUID
    ) -> None:
        self.name = name
        # Not by a converter, which costs a call: two of these are made for each topic of a commit.
        if isinstance(partitions, OffsetColumns):
            self.columns = partitions
        else:
            columns = zip(*map(_fields_of, partitions), strict=True) if partitions else ((),) * 4
            indexes, offsets, leader_epochs, metadata = columns
            # As offset_columns does, without its call.
            texts = tuple([text or "" for text in metadata]) if any(metadata) else None
            self.columns = make_columns((indexes, offsets, leader_epochs, texts))
        self.topic_id = topic_id

    @property
    def partitions(self) -> tuple[OffsetToCommit, ...]:
        """The offsets, one by one."""
        indexes, offsets, leader_epochs, _ = self.columns
        return tuple(map(OffsetToCommit, indexes, offsets, leader_epochs, self.columns.texts()))

    def __repr__(self) -> str:
        return f"TopicToCommit(name={self.name!r}, partitions={self.partitions!r}, topic_id={self.topic_id!r})"


class PartitionResult(NamedTuple):
    """Result of one partition of a commit or a deletion."""

    partition_index: int
    error_code: ErrorCode


class PartitionResults(Rows[PartitionResult]):
    """Results of the partitions of one topic, as columns.

    Attributes:
        partition_indexes: the partitions, in the request's order.
        error_codes: one for each partition; None if all were accepted.
    """

    __slots__ = ("error_codes", "partition_indexes")

    def __init__(self, partition_indexes: tuple[int, ...], error_codes: tuple[ErrorCode, ...] | None = None) -> None:
        self.partition_indexes = partition_indexes
        self.error_codes = error_codes

    def __len__(self) -> int:
        return len(self.partition_indexes)

    def __iter__(self) -> Iterator[PartitionResult]:
        return map(PartitionResult, self.partition_indexes, self.error_codes or repeat(ErrorCode.NONE))


def partition_results(partitions: Sequence[PartitionResult]) -> PartitionResults:
    if isinstance(partitions, PartitionResults):
        return partitions
    error_codes = tuple([error_code for _, error_code in partitions])
    # None instead of errors that are all NONE, as in responses of the core.
    return PartitionResults(tuple([index for index, _ in partitions]), error_codes if any(error_codes) else None)


def refused_partitions(partition_indexes: tuple[int, ...], error_code: ErrorCode) -> PartitionResults:
    """Return the same result for all of these partitions."""
    return PartitionResults(partition_indexes, (error_code,) * len(partition_indexes))


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


class TopicResult(NamedTuple):
    """Result of one topic of a commit or a deletion, named as in the request."""

    name: str | None
    topic_id: UUID
    partitions: Sequence[PartitionResult]


def refused_topics(topics: Sequence[TopicToCommit], error_code: ErrorCode) -> tuple[TopicResult, ...]:
    """Return a commit's results with the same error on every partition."""
    return tuple(
        [
            TopicResult(topic.name, topic.topic_id, refused_partitions(topic.columns.partition_indexes, error_code))
            for topic in topics
        ]
    )


@define(unsafe_hash=True)
class OffsetCommitResponse(Response):
    """There is no top-level error: a refused request has its error on every partition."""

    topics: tuple[TopicResult, ...]


@define
class OffsetCommit(GroupRequest[OffsetCommitResponse]):
    """Commit offsets (API key 8).

    ``generation_id`` is a generation or a member epoch; negative outside group management, where a commit succeeds
    while the group has no members. ``retention_time_ms`` -1 is the broker's retention (request versions 2 to 4 may set
    it). ``supports_member_epoch`` (from version 9) is required for members of the consumer protocol.
    """

    group_id: str | None
    topics: tuple[TopicToCommit, ...]
    generation_id: int = UNKNOWN_GENERATION_ID
    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    supports_member_epoch: bool = True

    def refused(self, error_code: ErrorCode, message: str | None = None) -> OffsetCommitResponse:
        return OffsetCommitResponse(refused_topics(self.topics, error_code))


@frozen
class TxnOffsetCommitResponse(Response):
    """There is no top-level error: a refused request has its error on every partition."""

    topics: tuple[TopicResult, ...]


@define
class TxnOffsetCommit(GroupRequest[TxnOffsetCommitResponse]):
    """Commit offsets as part of a producer's transaction (API key 28, KIP-98; member fields: KIP-447).

    ``verify_transaction`` of the coordinator decides whether the producer may commit. The offsets are invisible until
    :class:`CompleteTransaction` commits them. With ``adds_group`` the group need not be in the transaction yet
    (KIP-890, request versions from 5). ``supports_member_epoch`` selects the errors of epochs (from 6; KIP-1319).
    """

    group_id: str
    topics: tuple[TopicToCommit, ...]
    producer_id: int
    producer_epoch: int
    transactional_id: str = ""
    generation_id: int = UNKNOWN_GENERATION_ID
    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None
    adds_group: bool = True
    supports_member_epoch: bool = True

    def refused(self, error_code: ErrorCode, message: str | None = None) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(refused_topics(self.topics, error_code))


@frozen
class CompleteTransactionResponse(Response):
    """On NOT_LEADER_OR_FOLLOWER the transaction coordinator looks the partition's leader up again."""

    error_code: ErrorCode


@define
class CompleteTransaction(Request[CompleteTransactionResponse]):
    """End a producer's transaction on one log partition: its offsets appear there, or vanish (KIP-98)."""

    partition: int
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int = 0


@define
class TopicToDelete:
    """One topic of an :class:`OffsetDelete`."""

    name: str
    partition_indexes: tuple[int, ...]


@frozen
class OffsetDeleteResponse(Response):
    """With a top-level error there are no topics."""

    error_code: ErrorCode
    topics: tuple[TopicResult, ...] = ()


@define
class OffsetDelete(GroupRequest[OffsetDeleteResponse]):
    """Delete committed offsets of topics that the group does not subscribe to (API key 47, KIP-496)."""

    group_id: str
    topics: tuple[TopicToDelete, ...]


@define
class TopicToFetch:
    """One topic of a fetch: by name, or (``name`` None, request version 10) by topic id."""

    name: str | None
    partition_indexes: tuple[int, ...]
    topic_id: UUID = ZERO_UUID


@define
class GroupToFetch:
    """A group of an :class:`OffsetFetch`; ``topics`` None: all offsets."""

    group_id: str | None
    topics: tuple[TopicToFetch, ...] | None = None
    member_id: str | None = None
    member_epoch: int = -1


class FetchedOffset(NamedTuple):
    """Committed offset of one partition; -1 and NONE if there is none."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str
    error_code: ErrorCode


class FetchedOffsets(Rows[FetchedOffset]):
    """Committed offsets of one topic, as columns.

    Attributes:
        columns: the partitions in the order of the request, with their offsets.
        error_codes: one for each partition; None without errors.
    """

    __slots__ = ("columns", "error_codes")

    def __init__(self, columns: OffsetColumns, error_codes: tuple[ErrorCode, ...] | None = None) -> None:
        self.columns = columns
        self.error_codes = error_codes

    def __len__(self) -> int:
        return len(self.columns.offsets)

    def __iter__(self) -> Iterator[FetchedOffset]:
        indexes, offsets, leader_epochs, _ = self.columns
        error_codes = self.error_codes or repeat(ErrorCode.NONE)
        return map(FetchedOffset, indexes, offsets, leader_epochs, self.columns.texts(), error_codes)


def fetched_offsets(partitions: Sequence[FetchedOffset]) -> FetchedOffsets:
    if isinstance(partitions, FetchedOffsets):
        return partitions
    indexes, offsets, leader_epochs, metadata, error_codes = list(zip(*partitions, strict=True)) or [()] * 5
    columns = offset_columns(indexes, offsets, leader_epochs, metadata)
    return FetchedOffsets(columns, error_codes if any(error_codes) else None)


def without_offsets(partition_indexes: tuple[int, ...], error_code: ErrorCode) -> FetchedOffsets:
    nothing = (-1,) * len(partition_indexes)
    return FetchedOffsets(OffsetColumns(partition_indexes, nothing, nothing), (error_code,) * len(partition_indexes))


class FetchedTopic(NamedTuple):
    """The committed offsets of one topic."""

    name: str | None
    topic_id: UUID
    partitions: Sequence[FetchedOffset]


class FetchedGroup(NamedTuple):
    """Committed offsets of one group; with a group-level error there are no topics."""

    group_id: str
    error_code: ErrorCode
    topics: tuple[FetchedTopic, ...] = ()


@define(unsafe_hash=True)
class OffsetFetchResponse(Response):
    """Results of the requested groups, one for each occurrence."""

    groups: tuple[FetchedGroup, ...]


@define
class OffsetFetch(Request[OffsetFetchResponse]):
    """Fetch committed offsets (API key 9).

    With ``require_stable`` (KIP-447), offsets of an open transaction fail with UNSTABLE_OFFSET_COMMIT. With
    ``uses_topic_ids`` the response has topic ids.
    """

    groups: tuple[GroupToFetch, ...]
    require_stable: bool = False
    uses_topic_ids: bool = False

    def refused(self, error_code: ErrorCode, message: str | None = None) -> OffsetFetchResponse:
        return OffsetFetchResponse(tuple([_refused_group(group, error_code) for group in self.groups]))


def _refused_group(group: GroupToFetch, error_code: ErrorCode) -> FetchedGroup:
    # UNSTABLE_OFFSET_COMMIT is an error of partitions (KIP-447), which clients don't expect at the group.
    if error_code is not ErrorCode.UNSTABLE_OFFSET_COMMIT or group.topics is None:
        return FetchedGroup(group.group_id or "", error_code)
    topics = [FetchedTopic(t.name, t.topic_id, without_offsets(t.partition_indexes, error_code)) for t in group.topics]
    return FetchedGroup(group.group_id or "", ErrorCode.NONE, tuple(topics))
