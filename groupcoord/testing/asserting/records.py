"""Topics and records as tests read and write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from attrs import evolve, field, frozen

from groupcoord.analysis.report.text import counted
from groupcoord.broker.broker import Broker
from groupcoord.broker.records.produce import NO_DATA, answer_produce
from groupcoord.broker.topics.registry import Topic, check_topic_name
from groupcoord.broker.work import do_whole
from groupcoord.config import Config
from groupcoord.errors import ErrorCode, GroupcoordError, UnknownNameError, did_you_mean
from groupcoord.records.batches import (
    LOG_APPEND_TIME,
    Batch,
    frame_records,
    iter_batches,
    read_sized,
    record_heads,
    sized,
)
from groupcoord.schema.primitives import read_varint, write_varint
from groupcoord.storage.log.batches import DECOMPRESSED_BYTES_MAX, UNREADABLE
from groupcoord.storage.log.index import AbortedTransaction
from groupcoord.storage.log.memory_log import PartitionLog
from groupcoord.wire.broker_messages import Produce, ProducePartition, TopicNameOrIdEntry

__tracebackhide__ = True

Topics = Mapping[str, int] | Iterable[str]


@frozen
class TopicDescription:
    """Topic with its offsets and settings.

    Attributes:
        start_offsets: first offset of each partition.
        end_offsets: next offset of each partition.
        settings: its own settings by Kafka's keys.
    """

    name: str
    partition_count: int
    start_offsets: tuple[int, ...]
    end_offsets: tuple[int, ...]
    settings: Mapping[str, str] = MappingProxyType({})

    @property
    def record_count(self) -> int:
        """Number of offsets in all partitions, including transaction markers."""
        return sum(self.end_offsets) - sum(self.start_offsets)


def checked_topics(topics: Topics | None, config: Config) -> dict[str, int]:
    """Return partition counts by name; names alone get ``num.partitions``."""
    if topics is None:
        return {}
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise TypeError(f"topics must be names, or numbers of partitions by name: [{topics!r}], or {{{topics!r}: 3}}")
    counts = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, config.num_partitions)
    for name, count in counts.items():
        if not isinstance(name, str):
            raise TypeError(f"a topic's name must be text, not {name!r}")
        if not isinstance(count, int) or isinstance(count, bool):
            raise TypeError(f"the number of partitions of topic {name!r} must be an integer, not {count!r}")
        if count < 1:
            raise ValueError(f"topic {name!r} must have at least one partition, not {count}")
        check_topic_name(name)
    return counts


def find_topic(broker: Broker, name: str) -> Topic:
    topic = broker.topics.get(name)
    if topic is not None and not topic.is_internal:
        return topic
    if topic is not None:
        raise UnknownNameError(f"{name!r} is an internal topic; use committed() or groups")
    names = sorted(topic.name for topic in broker.topics if not topic.is_internal)
    raise UnknownNameError(
        f"there is no topic {name!r}{did_you_mean(name, names)} (topics: {', '.join(names) or 'none'})"
    )


def describe_topics(broker: Broker) -> dict[str, TopicDescription]:
    return {topic.name: _describe(broker, topic) for topic in broker.topics if not topic.is_internal}


def _describe(broker: Broker, topic: Topic) -> TopicDescription:
    logs = [broker.data.whole.log(topic, index) for index in range(topic.partition_count)]
    return TopicDescription(
        topic.name,
        topic.partition_count,
        tuple(0 if log is None else log.start_offset for log in logs),
        tuple(0 if log is None else log.end_offset for log in logs),
        MappingProxyType(dict(topic.configs)),
    )


Header = tuple[str, bytes | None]


class RecordFields(NamedTuple):
    """Timestamp and contents of a record."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def encode_records(records: Sequence[RecordFields]) -> bytes:
    """Return an uncompressed batch of a producer that is not idempotent."""
    base_ms = records[0].timestamp_ms
    parts = []
    for number, (timestamp_ms, key, value, headers) in enumerate(records):
        body = b"".join(
            (
                b"\x00",
                write_varint(timestamp_ms - base_ms),
                write_varint(number),
                sized(key),
                sized(value),
                write_varint(len(headers)),
                *(sized(name.encode()) + sized(content) for name, content in headers),
            )
        )
        parts.append(write_varint(len(body)) + body)
    return frame_records(
        0,
        parts,
        len(records),
        base_ms,
        leader_epoch=-1,
        producer_id=-1,
        producer_epoch=-1,
        max_timestamp_ms=max(record.timestamp_ms for record in records),
        base_sequence=-1,
    )


def decode_records(batch: Batch) -> Iterator[tuple[int, RecordFields]]:
    payload = batch.payload(DECOMPRESSED_BYTES_MAX)
    append_time_ms = batch.max_timestamp_ms if batch.attributes & LOG_APPEND_TIME else None
    for head in record_heads(payload, batch.record_count):
        key, position = read_sized(payload, head.key_position)
        value, position = read_sized(payload, position)
        count, position = read_varint(payload, position)
        headers: list[Header] = []
        for _ in range(count):
            name, position = read_sized(payload, position)
            content, position = read_sized(payload, position)
            headers.append(((name or b"").decode("utf-8", "replace"), content))
        own_ms = batch.base_timestamp_ms + head.timestamp_delta_ms
        timestamp_ms = own_ms if append_time_ms is None else append_time_ms
        yield batch.base_offset + head.offset_delta, RecordFields(timestamp_ms, key, value, tuple(headers))


IsolationLevel = Literal["read_uncommitted", "read_committed"]
ISOLATION_LEVELS: tuple[IsolationLevel, ...] = ("read_uncommitted", "read_committed")


class RecordsRefusedError(GroupcoordError):
    """A topic refused records; the message has the reason that a producer gets.

    Attributes:
        error_code: error code of the response.
    """

    def __init__(self, message: str, error_code: ErrorCode) -> None:
        super().__init__(message)
        self.error_code = error_code


def _to_bytes(content: str | bytes | None) -> bytes | None:
    if isinstance(content, str):
        return content.encode()
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"keys, values and headers are text, bytes or None, not {content!r}")


HeadersToSend = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]


def _to_headers(headers: HeadersToSend) -> tuple[Header, ...]:
    if isinstance(headers, str | bytes):
        raise TypeError(f"headers are contents by name, or pairs, not {headers!r}")
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple([(name, _to_bytes(content)) for name, content in pairs])


@frozen
class ProducerRecord:
    """Record to produce; text is encoded in UTF-8.

    Attributes:
        value: None for a tombstone.
        key: selects the partition, unless one is given.
        headers: contents by name, or pairs for repeated names.
        partition: None: by key as the Java producer does, in turn without a key.
        timestamp_ms: None for the server's present time.
    """

    value: bytes | None = field(converter=_to_bytes)
    key: bytes | None = field(default=None, converter=_to_bytes)
    headers: tuple[Header, ...] = field(default=(), converter=_to_headers)
    partition: int | None = None
    timestamp_ms: int | None = None


@frozen
class ConsumerRecord:
    """Record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def to_records(
    values: Iterable[ProducerRecord | str | bytes | None], partition: int | None = None
) -> list[ProducerRecord]:
    if isinstance(values, str | bytes):
        raise TypeError(f"records come as a list: produce(topic, [{values!r}])")
    records = [value if isinstance(value, ProducerRecord) else ProducerRecord(value) for value in values]
    return [evolve(record, partition=partition) if record.partition is None else record for record in records]


class Appender:
    """Appends records; those without key and partition go to each partition in turn."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}

    def append(self, broker: Broker, topic_name: str, records: Sequence[ProducerRecord]) -> tuple[ConsumerRecord, ...]:
        topic = find_topic(broker, topic_name)
        now_ms = broker.clock.now_ms()
        partitions = [self._partition_for(record, topic) for record in records]
        first_offsets = {}
        for index in dict.fromkeys(partitions):
            fields = [
                RecordFields(
                    now_ms if record.timestamp_ms is None else record.timestamp_ms,
                    record.key,
                    record.value,
                    record.headers,
                )
                for record, partition in zip(records, partitions, strict=True)
                if partition == index
            ]
            first_offsets[index] = _append(broker, topic, index, encode_records(fields))
        found = {
            index: iter(read_records(broker, topic_name, index, first_offset=offset))
            for index, offset in first_offsets.items()
        }
        return tuple(next(found[index]) for index in partitions)

    def _partition_for(self, record: ProducerRecord, topic: Topic) -> int:
        if record.partition is not None:
            return _checked_partition(topic, record.partition)
        if record.key is not None:
            return (murmur2(record.key) & POSITIVE) % topic.partition_count
        turn = self._turns.get(topic.name, 0)
        self._turns[topic.name] = turn + 1
        return turn % topic.partition_count


def _checked_partition(topic: Topic, index: int) -> int:
    if not topic.has_partition(index):
        partitions = counted(topic.partition_count, "partition")
        raise UnknownNameError(f"there is no partition {index} of topic {topic.name!r}, which has {partitions}")
    return index


def _append(broker: Broker, topic: Topic, index: int, data: bytes) -> int:
    request = Produce((TopicNameOrIdEntry(topic.name, topic.topic_id, (ProducePartition(index, data),)),))
    response = do_whole(answer_produce(request, broker.data.whole, lambda writer: ErrorCode.INVALID_TXN_STATE))
    answer = response.topics[0].partitions[0]
    if answer.error_code is not ErrorCode.NONE:
        reason = answer.error_message or "no reason given"
        place = f"{topic.name}-{index}"
        raise RecordsRefusedError(f"{place} does not take it: {answer.error_code.name}, {reason}", answer.error_code)
    return answer.base_offset


def read_records(
    broker: Broker,
    topic_name: str,
    partition: int | None = None,
    *,
    isolation_level: IsolationLevel = "read_uncommitted",
    first_offset: int = 0,
) -> list[ConsumerRecord]:
    """Return the records of a topic, partition by partition, without transaction markers."""
    topic = find_topic(broker, topic_name)
    if isolation_level not in ISOLATION_LEVELS:
        raise ValueError(f"isolation_level is one of {', '.join(ISOLATION_LEVELS)}, not {isolation_level!r}")
    indexes = range(topic.partition_count) if partition is None else (_checked_partition(topic, partition),)
    records: list[ConsumerRecord] = []
    for index in indexes:
        log = broker.data.whole.log(topic, index)
        if log is None:
            raise LookupError(f"{NO_DATA} (records.enable=false)")
        only_committed = isolation_level == "read_committed"
        records += _read_log(log, topic.name, index, max(first_offset, log.start_offset), only_committed)
    return records


def _read_log(
    log: PartitionLog, topic_name: str, index: int, offset: int, only_committed: bool
) -> Iterator[ConsumerRecord]:
    end_offset = log.last_stable_offset if only_committed else log.end_offset
    size_bytes = log.readable_bytes(offset, end_offset)
    read = log.read(offset, end_offset, size_bytes, takes_first=True, lists_aborted=only_committed)
    for batch in iter_batches(b"".join(read.parts)):
        if batch.is_control or (batch.is_transactional and _is_aborted(batch, read.aborted)):
            continue
        try:
            found = list(decode_records(batch))
        except UNREADABLE as error:
            place = f"{topic_name}-{index} at offset {batch.base_offset}"
            raise LookupError(f"{place} has an unreadable batch: {error}") from None
        for record_offset, fields in found:
            if record_offset >= offset:
                yield ConsumerRecord(topic_name, index, record_offset, *fields)


def _is_aborted(batch: Batch, aborted: Iterable[AbortedTransaction]) -> bool:
    return any(
        transaction.producer_id == batch.producer_id
        and transaction.first_offset <= batch.base_offset <= transaction.last_offset
        for transaction in aborted
    )


# ---------------------------------------------------------------- which partition a record with a key goes to

# ``BuiltInPartitioner.partitionForKey`` of Apache Kafka 4.4: 32-bit MurmurHash2 with Kafka's seed.
SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
ROTATION = 24
MASK = 0xFFFF_FFFF
POSITIVE = 0x7FFF_FFFF


def murmur2(data: bytes) -> int:
    whole = len(data) & ~3
    value = SEED ^ len(data)
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> ROTATION) * MULTIPLIER & MASK
        value = (value * MULTIPLIER & MASK) ^ word
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    value = (value ^ value >> 13) * MULTIPLIER & MASK
    return value ^ value >> 15
