"""TxnOffsetCommit of version 6, which kio does not have, as its entities would describe it."""

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetToCommitV6:
    """One partition of version 6, which kio does not have."""

    __flexible__: ClassVar[bool] = True
    partition_index: int = field(metadata={"kafka_type": "int32"})
    committed_offset: int = field(metadata={"kafka_type": "int64"})
    committed_leader_epoch: int = field(default=-1, metadata={"kafka_type": "int32"})
    committed_metadata: str | None = field(metadata={"kafka_type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToCommitV6:
    """One topic of version 6."""

    __flexible__: ClassVar[bool] = True
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[OffsetToCommitV6, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestV6:
    """The request in version 6."""

    __flexible__: ClassVar[bool] = True
    transactional_id: str = field(metadata={"kafka_type": "string"})
    group_id: str = field(metadata={"kafka_type": "string"})
    producer_id: int = field(metadata={"kafka_type": "int64"})
    producer_epoch: int = field(metadata={"kafka_type": "int16"})
    generation_id: int = field(default=-1, metadata={"kafka_type": "int32"})
    member_id: str = field(metadata={"kafka_type": "string"})
    group_instance_id: str | None = field(metadata={"kafka_type": "string"})
    topics: tuple[TopicToCommitV6, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResultV6:
    """Result of one partition, in version 6."""

    __flexible__: ClassVar[bool] = True
    partition_index: int = field(metadata={"kafka_type": "int32"})
    error_code: int = field(metadata={"kafka_type": "error_code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResultV6:
    """Result of one topic, in version 6."""

    __flexible__: ClassVar[bool] = True
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[PartitionResultV6, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponseV6:
    """The answer in version 6."""

    __flexible__: ClassVar[bool] = True
    throttle_time: int = field(metadata={"kafka_type": "timedelta_i32"})
    topics: tuple[TopicResultV6, ...]
