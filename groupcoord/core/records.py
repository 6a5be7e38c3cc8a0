"""What is durable: the records of ``__consumer_offsets`` as values, without their bytes.

Hard state is a fold over these and nothing else (see :mod:`groupcoord.core.partition`). Treat them as immutable;
they are not frozen because a commit makes one for each partition. Sources: Kafka's ``OffsetCommitKey/Value`` and
``GroupMetadataKey/Value`` schemas, KIP-98 for the transaction markers.
"""

from __future__ import annotations

from uuid import UUID

from attrs import define

ZERO_UUID = UUID(int=0)
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1


@define
class OffsetCommitRecord:
    """A committed offset of one partition (record type 1).

    With a ``producer_id`` it is part of a transaction (KIP-98): invisible until that producer's marker commits it.
    ``value_version`` is the version of the value as it stands in a log; None: the one that Kafka 4.4 would write.
    ``key_version`` is 0 for the keys of brokers before 0.9. ``raw_value`` is the value's bytes if the fields alone
    would give others: it has tagged fields that this library does not know.
    """

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: UUID = ZERO_UUID
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    value_version: int | None = None
    key_version: int = 1
    raw_value: bytes | None = None


class PlainCommits(list[OffsetCommitRecord]):
    """The records of a commit, none of which has metadata, an expiry or a version of its own."""

    __slots__ = ()


@define
class OffsetTombstone:
    """A committed offset is gone: deleted, expired, or its group or topic deleted."""

    group_id: str
    topic: str
    partition: int
    key_version: int = 1


@define
class MemberRecord:
    """One member inside a :class:`GroupMetadataRecord`: what survives of it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@define
class GroupMetadataRecord:
    """A generation of a classic group with its members and their assignments (record type 2).

    ``value_version`` and ``raw_value`` are those of :class:`OffsetCommitRecord`.
    """

    group_id: str
    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int = NO_TIMESTAMP
    members: tuple[MemberRecord, ...] = ()
    value_version: int | None = None
    raw_value: bytes | None = None


@define
class GroupTombstone:
    """A classic group is gone (record type 2 without a value)."""

    group_id: str


@define
class TransactionMarker:
    """The end of a producer's transaction: a control record (KIP-98)."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int = 0


@define
class OpaqueRecord:
    """A record of a type or version that the coordinator does not know: kept as it is, never interpreted.

    Producer and ``is_control`` are those of its batch.
    """

    key: bytes
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    is_control: bool = False


Record = OffsetCommitRecord | OffsetTombstone | GroupMetadataRecord | GroupTombstone | TransactionMarker | OpaqueRecord
