"""How a type of a group's records stands in a log: what the formats of all kinds of groups have in common.

All values have version 0, which is flexible (KIP-482). A tagged field is left out if it has its default value. For
those that are nullable that is the empty value, not null, since Kafka's schemas give null as default without quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, NamedTuple

from groupcoord.core.records import GroupRecord, TopicPartitions
from groupcoord.records.primitives import NO_TAGS, Reader, Writer, int32s, one_tag
from groupcoord.records.schemas import RecordType

MEMBER_ID = "member id"
"""What most keys name that name more than the group."""

NULL, PRESENT = b"\x00", 1
"""A nullable array that is null; the first byte of a nullable structure in a tag that isn't."""

ASSIGNMENT_EPOCHS_TAG = ASSIGNMENT_TIMESTAMP_TAG = 0

_int64 = Struct(">q")


class RecordFormat(NamedTuple):
    """How records of one type are read and written.

    Attributes:
        record_type: the number that their keys start with.
        record_class: what they are as values.
        write: ``write(writer, record)`` writes a value behind its version.
        read: ``read(reader, group_id, name)`` reads it again.
        name_in_key: what the key names besides the group, as an error calls it; None: nothing.
    """

    record_type: RecordType
    record_class: type
    write: Callable[[Writer, Any], None]
    read: Callable[[Reader, str, str], GroupRecord]
    name_in_key: str | None = None


def end_with_int64(writer: Writer, tag: int, value: int) -> None:
    """Write the tagged fields that end a structure: one, if it isn't 0."""
    writer.raw(one_tag(tag, _int64.pack(value)) if value else NO_TAGS)


def int64_at_end(reader: Reader, tag: int) -> int:
    """Read the tagged fields that end a structure, and return one of them; 0 if it isn't there."""
    content = reader.tags().get(tag)
    value: int = 0 if content is None else _int64.unpack(content)[0]
    return value


def partitions_with_epochs(partitions: tuple[int, ...], epochs: tuple[int, ...] | None) -> bytes:
    """Return the end of a structure: partitions, and in a tag the epochs in which a member got them."""
    tags = NO_TAGS
    if epochs != ():
        tags = one_tag(ASSIGNMENT_EPOCHS_TAG, NULL if epochs is None else int32s(epochs))
    return int32s(partitions) + tags


def epochs_at_end(reader: Reader) -> tuple[int, ...] | None:
    """Read the tagged fields that end a structure, and return the epochs among them."""
    tag = reader.tags().get(ASSIGNMENT_EPOCHS_TAG)
    if tag is None:
        return ()
    if tag == NULL:
        return None
    content = Reader(tag, 0, flexible=True)
    epochs = content.int32s()
    content.end()
    return epochs


def target_assignment_format(record_type: RecordType, record_class: type) -> RecordFormat:
    """Return the format of what tells the epoch of a target assignment, and when it was made."""

    def write(writer: Writer, record: Any) -> None:
        writer.int32(record.assignment_epoch)
        end_with_int64(writer, ASSIGNMENT_TIMESTAMP_TAG, record.assignment_timestamp_ms)

    def read(reader: Reader, group_id: str, _: str) -> GroupRecord:
        record: GroupRecord = record_class(group_id, reader.int32(), int64_at_end(reader, ASSIGNMENT_TIMESTAMP_TAG))
        return record

    return RecordFormat(record_type, record_class, write, read)


def write_topic_partitions(writer: Writer, topics: Sequence[TopicPartitions]) -> None:
    """Write partitions by topic."""
    writer.array_length(len(topics))
    for topic_id, partitions in topics:
        writer.raw(b"%b%b%b" % (topic_id.bytes, int32s(partitions), NO_TAGS))


def read_topic_partitions(reader: Reader) -> tuple[TopicPartitions, ...]:
    """Read partitions by topic."""
    return tuple([_read_partitions_of_topic(reader) for _ in range(reader.array_length())])


def _read_partitions_of_topic(reader: Reader) -> TopicPartitions:
    topic = TopicPartitions(reader.uuid(), reader.int32s())
    reader.tags()
    return topic


def target_member_format(record_type: RecordType, record_class: type) -> RecordFormat:
    """Return the format of what tells which partitions a member is to have."""

    def write(writer: Writer, record: Any) -> None:
        write_topic_partitions(writer, record.topic_partitions)
        writer.tags({})

    def read(reader: Reader, group_id: str, member_id: str) -> GroupRecord:
        record: GroupRecord = record_class(group_id, member_id, read_topic_partitions(reader))
        reader.tags()
        return record

    return RecordFormat(record_type, record_class, write, read, MEMBER_ID)
