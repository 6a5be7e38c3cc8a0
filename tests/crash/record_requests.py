"""The requests about records that the kill harness sends, in versions that are quick to write by hand."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from groupcoord.records.batches import Batch, encode_batch, iter_batches
from tests.crash.requests import Answer, frame, sized, string

PRODUCE, FETCH, ADD_PARTITIONS_TO_TXN = 0, 1, 24
FETCH_BYTES = 50_000_000
TOPIC = "written"

_int8, _int16, _int32 = Struct(">b"), Struct(">h"), Struct(">i")
_fetch, _partition, _producer = Struct(">iiiib"), Struct(">iqi"), Struct(">qh")

NOT_TRANSACTIONAL = b"\xff\xff"


class Sender(NamedTuple):
    """Who writes a batch: producer id, epoch and the sequence of its first record; nobody by default."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional_id: str | None = None


def produce(correlation_id: int, partition: int, values: list[bytes], at_ms: int, acks: int, sender: Sender) -> bytes:
    """Produce version 3, of one batch."""
    is_transactional = sender.transactional_id is not None
    batch = encode_batch(
        0,
        [(None, value, at_ms) for value in values],
        leader_epoch=-1,
        producer_id=sender.producer_id,
        producer_epoch=sender.epoch,
        base_sequence=sender.sequence,
        is_transactional=is_transactional,
    )
    parts = [string(sender.transactional_id) if sender.transactional_id is not None else NOT_TRANSACTIONAL]
    parts += [_int16.pack(acks), _int32.pack(30_000), _int32.pack(1), string(TOPIC)]
    parts += [_int32.pack(1), _int32.pack(partition), sized(batch)]
    return frame(PRODUCE, 3, correlation_id, b"".join(parts))


def produced(answer: Answer) -> tuple[int, int]:
    """Read a Produce answer: the error code and the base offset."""
    assert answer.int32() == 1
    answer.string()
    assert answer.int32() == 1
    answer.int32()
    return answer.int16(), answer.int64()


def add_partitions(
    correlation_id: int, transactional_id: str, producer: tuple[int, int], partitions: list[int]
) -> bytes:
    """AddPartitionsToTxn version 0."""
    parts = [string(transactional_id), _producer.pack(*producer), _int32.pack(1), string(TOPIC)]
    parts += [_int32.pack(len(partitions)), *(_int32.pack(index) for index in partitions)]
    return frame(ADD_PARTITIONS_TO_TXN, 0, correlation_id, b"".join(parts))


def added(answer: Answer) -> int:
    """Read an AddPartitionsToTxn answer: the largest error code."""
    answer.int32()
    codes = [0]
    for _ in range(answer.int32()):
        answer.string()
        for _ in range(answer.int32()):
            answer.int32()
            codes.append(answer.int16())
    return max(codes)


def fetch(correlation_id: int, partition: int, offset: int, isolation_level: int) -> bytes:
    """Fetch version 4, of one partition."""
    parts = [_fetch.pack(-1, 0, 0, FETCH_BYTES, isolation_level), _int32.pack(1), string(TOPIC)]
    parts += [_int32.pack(1), _partition.pack(partition, offset, FETCH_BYTES)]
    return frame(FETCH, 4, correlation_id, b"".join(parts))


class Fetched(NamedTuple):
    """What a partition holds from an offset on.

    Attributes:
        batches: as they came.
        aborted: producer id and first offset of transactions to leave out.
    """

    error_code: int
    high_watermark: int
    stable_offset: int
    batches: list[Batch]
    aborted: list[tuple[int, int]]

    def values(self) -> dict[int, bytes]:
        """Return the records by offset; those of aborted transactions are left out."""
        found: dict[int, bytes] = {}
        waiting = sorted(self.aborted, key=lambda transaction: transaction[1], reverse=True)
        skipped: set[int] = set()
        for batch in self.batches:
            while waiting and waiting[-1][1] < batch.next_offset:
                skipped.add(waiting.pop()[0])
            if batch.is_control:
                skipped.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in skipped):
                found.update({offset: value or b"" for offset, _, _, value in batch.records()})
        return found


def fetched(answer: Answer) -> Fetched:
    """Read a Fetch answer of one partition."""
    answer.int32()
    assert answer.int32() == 1
    answer.string()
    assert answer.int32() == 1
    answer.int32()
    error_code, high_watermark, stable_offset = answer.int16(), answer.int64(), answer.int64()
    aborted = [(answer.int64(), answer.int64()) for _ in range(max(answer.int32(), 0))]
    return Fetched(error_code, high_watermark, stable_offset, list(iter_batches(answer.sized())), aborted)
