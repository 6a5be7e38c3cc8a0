"""TxnOffsetCommit: key 28, versions 0-6, flexible from 3.

2: leader epochs. 3: who the member is and its generation (KIP-447). 4: TRANSACTION_ABORTABLE in answers, which is
INVALID_TXN_STATE before (KIP-890). 5: the group is added to the transaction if it is not in it yet (KIP-890). 6:
topics by id, and GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH in answers, which are ILLEGAL_GENERATION before (KIP-1319).

0 and 1: COORDINATOR_LOAD_IN_PROGRESS is COORDINATOR_NOT_AVAILABLE, since their clients don't try again after the
former (KAFKA-7296).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID

from groupcoord.core.messages import (
    UNKNOWN_GENERATION_ID,
    UNKNOWN_MEMBER_ID,
    OffsetToCommit,
    TopicResult,
    TopicToCommit,
    TxnOffsetCommit,
    TxnOffsetCommitResponse,
)
from groupcoord.core.records import ZERO_UUID
from groupcoord.errors import ErrorCode
from groupcoord.wire import schema
from groupcoord.wire.api import Api, Decoder, Encoder, VersionRange
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.pacing import paced

_KEY = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetToCommitV6:
    """One partition of version 6, which kio does not have."""

    __flexible__: ClassVar[bool] = True
    partition_index: int = field(metadata={"kafka_type": "int32"})
    committed_offset: int = field(metadata={"kafka_type": "int64"})
    committed_leader_epoch: int = field(metadata={"kafka_type": "int32"})
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
    generation_id: int = field(metadata={"kafka_type": "int32"})
    member_id: str = field(metadata={"kafka_type": "string"})
    group_instance_id: str | None = field(metadata={"kafka_type": "string"})
    topics: tuple[TopicToCommitV6, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResultV6:
    """What became of one partition, in version 6."""

    __flexible__: ClassVar[bool] = True
    partition_index: int = field(metadata={"kafka_type": "int32"})
    error_code: int = field(metadata={"kafka_type": "error_code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResultV6:
    """What became of one topic, in version 6."""

    __flexible__: ClassVar[bool] = True
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partitions: tuple[PartitionResultV6, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponseV6:
    """The answer in version 6."""

    __flexible__: ClassVar[bool] = True
    throttle_time: int = field(metadata={"kafka_type": "timedelta_i32"})
    topics: tuple[TopicResultV6, ...]


def _request(values: Mapping[str, Any], header: RequestHeader, client_host: str) -> TxnOffsetCommit:
    return TxnOffsetCommit(
        group_id=values["group_id"],
        topics=tuple(_topic_to_commit(topic) for topic in paced(values["topics"])),
        producer_id=values["producer_id"],
        producer_epoch=values["producer_epoch"],
        transactional_id=values["transactional_id"],
        generation_id=values.get("generation_id", UNKNOWN_GENERATION_ID),
        member_id=values.get("member_id", UNKNOWN_MEMBER_ID),
        group_instance_id=values.get("group_instance_id"),
        adds_group=header.api_version >= 5,
    )


def _topic_to_commit(values: Mapping[str, Any]) -> TopicToCommit:
    offsets = tuple(
        OffsetToCommit(
            offset["partition_index"],
            offset["committed_offset"],
            offset.get("committed_leader_epoch", -1),
            offset["committed_metadata"],
        )
        for offset in paced(values["partitions"])
    )
    return TopicToCommit(values.get("name"), offsets, values.get("topic_id") or ZERO_UUID)


def _errors_of(version: int) -> Mapping[ErrorCode, ErrorCode]:
    """Return what stands for the error codes that a version does not know."""
    errors = {}
    if version <= 5:
        errors[ErrorCode.GROUP_ID_NOT_FOUND] = ErrorCode.ILLEGAL_GENERATION
        errors[ErrorCode.STALE_MEMBER_EPOCH] = ErrorCode.ILLEGAL_GENERATION
    if version <= 3:
        errors[ErrorCode.TRANSACTION_ABORTABLE] = ErrorCode.INVALID_TXN_STATE
    if version <= 1:
        errors[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return errors


def _decoder(version: int) -> Decoder:
    if version == 6:
        return schema.decoder_of(TxnOffsetCommitRequestV6, _request)
    return schema.request_decoder(_KEY, version, _request)


def _encoder(version: int) -> Encoder:
    errors = _errors_of(version)

    def values(response: TxnOffsetCommitResponse, header: RequestHeader) -> schema.Values:
        return {"throttle_time_ms": 0, "topics": [topic_values(topic) for topic in paced(response.topics)]}

    def topic_values(topic: TopicResult) -> schema.Values:
        partitions = [
            {"partition_index": index, "error_code": errors.get(error, error)}
            for index, error in paced(topic.partitions)
        ]
        return {"name": topic.name or "", "topic_id": topic.topic_id, "partitions": partitions}

    if version == 6:
        return schema.encoder_of(TxnOffsetCommitResponseV6, values)
    return schema.response_encoder(_KEY, version, values)


API = Api(_KEY, "TxnOffsetCommit", VersionRange(0, 6), 3, _decoder, _encoder)
