"""The coordinator's own classes of records, and the values of records as their fields.

A class has the fields of Kafka's schema in its order: first those of the key, then those of the value. The fields alone
may not tell what a value's bytes were: it has tagged fields of a version to come, or is written as no broker writes it.
Then the record keeps them as ``raw_value``.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from attrs import fields as attributes_of

from groupcoord.core.log.records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupPartitionMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    GroupMetadataRecord,
    OffsetCommitRecord,
    ShareGroupCurrentMemberAssignmentRecord,
    ShareGroupMemberMetadataRecord,
    ShareGroupMetadataRecord,
    ShareGroupStatePartitionMetadataRecord,
    ShareGroupTargetAssignmentMemberRecord,
    ShareGroupTargetAssignmentMetadataRecord,
    StreamsGroupCurrentMemberAssignmentRecord,
    StreamsGroupMemberMetadataRecord,
    StreamsGroupMetadataRecord,
    StreamsGroupTargetAssignmentMemberRecord,
    StreamsGroupTargetAssignmentMetadataRecord,
    StreamsGroupTopologyRecord,
)
from groupcoord.records.primitives import MalformedError
from groupcoord.records.schemas import SCHEMAS, RecordType
from groupcoord.records.structures import LENIENT, MADE, Reader, Writer, reader_of, writer_of

RECORD_CLASSES: dict[RecordType, type] = {
    RecordType.OFFSET_COMMIT: OffsetCommitRecord,
    RecordType.GROUP_METADATA: GroupMetadataRecord,
    RecordType.CONSUMER_GROUP_METADATA: ConsumerGroupMetadataRecord,
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: ConsumerGroupPartitionMetadataRecord,
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: ConsumerGroupMemberMetadataRecord,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: ConsumerGroupTargetAssignmentMetadataRecord,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: ConsumerGroupTargetAssignmentMemberRecord,
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: ConsumerGroupCurrentMemberAssignmentRecord,
    RecordType.SHARE_GROUP_MEMBER_METADATA: ShareGroupMemberMetadataRecord,
    RecordType.SHARE_GROUP_METADATA: ShareGroupMetadataRecord,
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA: ShareGroupTargetAssignmentMetadataRecord,
    RecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER: ShareGroupTargetAssignmentMemberRecord,
    RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: ShareGroupCurrentMemberAssignmentRecord,
    RecordType.SHARE_GROUP_STATE_PARTITION_METADATA: ShareGroupStatePartitionMetadataRecord,
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: ConsumerGroupRegularExpressionRecord,
    RecordType.STREAMS_GROUP_METADATA: StreamsGroupMetadataRecord,
    RecordType.STREAMS_GROUP_MEMBER_METADATA: StreamsGroupMemberMetadataRecord,
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA: StreamsGroupTargetAssignmentMetadataRecord,
    RecordType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER: StreamsGroupTargetAssignmentMemberRecord,
    RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: StreamsGroupCurrentMemberAssignmentRecord,
    RecordType.STREAMS_GROUP_TOPOLOGY: StreamsGroupTopologyRecord,
}


class ReadValue(NamedTuple):
    """A value's version and fields; ``raw_value``: its bytes, if the fields alone would give others."""

    version: int
    fields: tuple[Any, ...]
    raw_value: bytes | None


def read_value(record_type: RecordType, value: bytes) -> ReadValue:
    """Return what is in a value; what its version lacks has its default.

    Raises:
        MalformedError, IndexError, struct.error, UnicodeDecodeError: no broker would read it.
    """
    version = int.from_bytes(value[:2], "big", signed=True) if len(value) >= 2 else -1
    read_strictly, read_leniently = _value_readers(record_type, version)
    raw_value = None
    try:
        fields, end = read_strictly(value, 2)
    except MalformedError:
        fields, end = read_leniently(value, 2)
        raw_value = value
    if end != len(value):
        raise MalformedError(f"{len(value) - end} bytes are left over")
    return ReadValue(version, fields, raw_value)


@cache
def value_writer(record_type: RecordType, version: int) -> Writer:
    """Return what writes the value of a record of this type in a version.

    It raises ``MalformedError``, ``struct.error`` or ``UnicodeEncodeError`` if a field does not fit.

    Raises:
        MalformedError: there is no such version.
    """
    is_flexible = _is_flexible(record_type, version)
    key, value = SCHEMAS[record_type][:2]
    attributes = [attribute.name for attribute in attributes_of(RECORD_CLASSES[record_type])]
    names = attributes[len(key.fields) :][: len(value.fields)]
    write, start = writer_of(value, version, is_flexible, MADE), version.to_bytes(2, "big")
    take = attrgetter(*names)
    if len(names) == 1:  # which is given as it is
        return lambda record: start + write((take(record),))
    return lambda record: start + write(take(record))


@cache
def _value_readers(record_type: RecordType, version: int) -> tuple[Reader, Reader]:
    is_flexible, value = _is_flexible(record_type, version), SCHEMAS[record_type].value
    return reader_of(value, version, is_flexible, MADE), reader_of(value, version, is_flexible, LENIENT)


def _is_flexible(record_type: RecordType, version: int) -> bool:
    schema = SCHEMAS[record_type]
    if not 0 <= version <= schema.newest_version:
        raise MalformedError(f"value version {version} is unknown")
    return version >= schema.first_flexible
