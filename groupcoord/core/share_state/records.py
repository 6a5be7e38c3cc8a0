"""Records of share-partition states as values: snapshots, and updates of the last one."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from attrs import frozen

from groupcoord.core.fast_construct import plain_members

NO_START_OFFSET = -1
"""The start offset is not decided yet."""

UNKNOWN_COUNT = -1
"""The number of finished records is unknown."""

_UUID_TEXT_LENGTH = 22


@plain_members
class DeliveryState(IntEnum):
    """Delivery state of a record, by Kafka's numbers (``RecordState``).

    Acquisitions are never logged: only the partition's leader knows them.
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """Records that follow each other and have the same state.

    Attributes:
        first_offset, last_offset: offsets of the first and last record.
        delivery_state: a :class:`DeliveryState`, or an unknown number.
        delivery_count: how often they were delivered.
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class SharePartitionKey(NamedTuple):
    """A partition of a topic as one share group sees it."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def text(self) -> str:
        """Kafka's text of the key for FindCoordinator: group, topic id in base 64, number."""
        encoded = urlsafe_b64encode(self.topic_id.bytes).decode().rstrip("=")
        return f"{self.group_id}:{encoded}:{self.partition}"


def parse_share_partition(text: str) -> SharePartitionKey:
    """Return the key of a :attr:`SharePartitionKey.text`.

    Raises:
        ValueError: invalid text.
    """
    # From the right, because group ids may hold colons.
    group_id, topic_id, partition = text.rsplit(":", 2)
    if not group_id or len(topic_id) != _UUID_TEXT_LENGTH:
        raise ValueError(f"{text!r} names no share-partition")
    return SharePartitionKey(group_id, UUID(bytes=urlsafe_b64decode(topic_id + "==")), int(partition))


@frozen
class ShareSnapshot:
    """State of a share-partition.

    Attributes:
        snapshot_epoch: number of the snapshot.
        state_epoch: epoch of the share group when it was initialized.
        leader_epoch: epoch of the last leader that read it.
        start_offset: first unfinished offset; -1: not decided.
        create_time_ms, write_time_ms: time of the snapshot; a rewrite keeps the first.
        delivery_complete_count: number of finished records from there on; -1: unknown.
        state_batches: batches from there on that are not in their initial state.
    """

    key: SharePartitionKey
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    create_time_ms: int
    write_time_ms: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]


@frozen
class ShareUpdate:
    """Changes of a share-partition since the snapshot with ``snapshot_epoch``; leader epoch or start offset -1:
    unchanged.
    """

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]


@frozen
class ShareTombstone:
    """Tombstone of a share-partition's state."""

    key: SharePartitionKey


ShareStateRecord = ShareSnapshot | ShareUpdate | ShareTombstone
