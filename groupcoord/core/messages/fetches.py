"""Reading committed offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple
from uuid import UUID

from attrs import define

from groupcoord.core.columns import OffsetColumns, Rows, offset_columns
from groupcoord.core.log.records import ZERO_UUID
from groupcoord.core.messages.request import Request
from groupcoord.errors import ErrorCode


@define
class TopicToFetch:
    """One topic whose offsets are wanted: by name, or (``name`` None, request version 10) by topic id."""

    name: str | None
    partition_indexes: tuple[int, ...]
    topic_id: UUID = ZERO_UUID


@define
class GroupToFetch:
    """One group whose offsets are wanted; ``topics`` None: all it has. The member fields are KIP-848's."""

    group_id: str | None
    topics: tuple[TopicToFetch, ...] | None = None
    member_id: str | None = None
    member_epoch: int = -1


class FetchedOffset(NamedTuple):
    """The committed offset of one partition; offset -1: there is none."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str
    error_code: ErrorCode


class FetchedOffsets(Rows[FetchedOffset]):
    """The committed offsets of one topic, as columns.

    Attributes:
        columns: the partitions in the order in which they were asked for, and what is committed for each.
        error_codes: of each; None if there is no error.
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
    """Return offsets as columns, if they aren't yet."""
    if isinstance(partitions, FetchedOffsets):
        return partitions
    indexes, offsets, leader_epochs, metadata, error_codes = list(zip(*partitions, strict=True)) or [()] * 5
    columns = offset_columns(indexes, offsets, leader_epochs, metadata)
    return FetchedOffsets(columns, error_codes if any(error_codes) else None)


def without_offsets(partition_indexes: tuple[int, ...], error_code: ErrorCode) -> FetchedOffsets:
    """Return the answer for partitions whose offsets are not told."""
    nothing = (-1,) * len(partition_indexes)
    return FetchedOffsets(OffsetColumns(partition_indexes, nothing, nothing), (error_code,) * len(partition_indexes))


class FetchedTopic(NamedTuple):
    """The committed offsets of one topic."""

    name: str | None
    topic_id: UUID
    partitions: Sequence[FetchedOffset]


class FetchedGroup(NamedTuple):
    """The committed offsets of one group; a group-level error comes without topics."""

    group_id: str
    error_code: ErrorCode
    topics: tuple[FetchedTopic, ...]


@define(unsafe_hash=True)
class OffsetFetchResponse:
    """One entry for each group asked for, a group named twice twice."""

    groups: tuple[FetchedGroup, ...]


@define
class OffsetFetch(Request[OffsetFetchResponse]):
    """Read committed offsets (API key 9).

    ``require_stable`` (KIP-447): answer UNSTABLE_OFFSET_COMMIT where a transaction is open. ``uses_topic_ids``:
    answer with ids.
    """

    groups: tuple[GroupToFetch, ...]
    require_stable: bool = False
    uses_topic_ids: bool = False

    def refused(self, error_code: ErrorCode, message: str | None = None) -> OffsetFetchResponse:
        return OffsetFetchResponse(tuple([_refused_group(group, error_code) for group in self.groups]))


def _refused_group(group: GroupToFetch, error_code: ErrorCode) -> FetchedGroup:
    # UNSTABLE_OFFSET_COMMIT is an error of partitions (KIP-447): clients don't expect it at the group.
    if error_code is not ErrorCode.UNSTABLE_OFFSET_COMMIT or group.topics is None:
        return FetchedGroup(group.group_id or "", error_code, ())
    topics = [FetchedTopic(t.name, t.topic_id, without_offsets(t.partition_indexes, error_code)) for t in group.topics]
    return FetchedGroup(group.group_id or "", ErrorCode.NONE, tuple(topics))
