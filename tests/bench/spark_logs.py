"""Large logs for measurements: as many records as wanted, in seconds, the same for the same arguments.

    python -m tests.bench.spark_logs FOLDER [--records 20000000] [--partitions 50] [--groups 3000]

Most records are commits of one topic's partitions, a batch each, as consumers write them. Every two-hundredth batch of
a group is a generation with its members, every hundredth commit is transactional, and one group in fifty is hot.
Batches are made once with the codec; for each commit, numbers and the CRC are put in their places.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from random import Random
from struct import Struct
from uuid import UUID

from crc32c import crc32c

from groupcoord.core.log.records import GroupMetadataRecord, MemberRecord, OffsetCommitRecord, TransactionMarker
from groupcoord.records.batches import encode_batch
from groupcoord.records.codec import encode_record

STARTED_MS = 1_700_000_000_000
SEGMENT_BYTES = 104_857_600
TOPIC_PARTITIONS = 12
HOT_ONE_IN, HOT_WEIGHT = 50, 100
GENERATION_EVERY, TRANSACTION_EVERY = 200, 100
TOPIC_IDS = tuple(UUID(int=2**100 + number) for number in range(100))

_int64, _uint32 = Struct(">q"), Struct(">I")
_BASE_TIMESTAMP, _MAX_TIMESTAMP, _CRC, _COVERED = 27, 35, 17, 21
_PLACEHOLDER_OFFSET, _PLACEHOLDER_TIME = 0x5A5B_5C5D_5E5F_0000, 0x6A6B_6C6D_6E6F_0000


class _Commit:
    """The batch of a group's commit, into which offsets and times are put."""

    def __init__(self, group_id: str, topic: str, topic_id: UUID, producer_id: int, partitions: int) -> None:
        records = [
            OffsetCommitRecord(
                group_id,
                topic,
                number,
                _PLACEHOLDER_OFFSET + number,
                commit_timestamp_ms=_PLACEHOLDER_TIME + number,
                topic_id=topic_id,
            )
            for number in range(partitions)
        ]
        encoded = [(*encode_record(record), 0) for record in records]
        is_transactional = producer_id >= 0
        self._bytes = bytearray(
            encode_batch(
                0,
                encoded,
                producer_id=producer_id,
                producer_epoch=0 if is_transactional else -1,
                is_transactional=is_transactional,
            )
        )
        find = self._bytes.index
        self._offsets = [find(_int64.pack(_PLACEHOLDER_OFFSET + number)) for number in range(partitions)]
        self._times = [find(_int64.pack(_PLACEHOLDER_TIME + number)) for number in range(partitions)]

    def at(self, log_offset: int, now_ms: int, committed_offset: int) -> bytearray:
        """Return the batch for a place in the log; it is overwritten by the next call."""
        data, put = self._bytes, _int64.pack_into
        put(data, 0, log_offset)
        put(data, _BASE_TIMESTAMP, now_ms)
        put(data, _MAX_TIMESTAMP, now_ms)
        for number, (place, time_place) in enumerate(zip(self._offsets, self._times, strict=True)):
            put(data, place, committed_offset + number)
            put(data, time_place, now_ms)
        with memoryview(data) as view:
            _uint32.pack_into(data, _CRC, crc32c(view[_COVERED:]))
        return data


class Group:
    """One group that commits, and rebalances now and then."""

    def __init__(self, number: int, random: Random, partitions: int = TOPIC_PARTITIONS) -> None:
        self.group_id = f"service-{number:05d}-consumers"
        self._topic = f"orders.region-{number % 100:02d}.events"
        self._members = random.randrange(1, 6)
        self._committed = random.randrange(1_000_000)
        self._batches = 0
        self._generation = 0
        topic_id = TOPIC_IDS[number % 100]
        self._partitions = partitions
        self._plain = _Commit(self.group_id, self._topic, topic_id, -1, partitions)
        self._transactional = _Commit(self.group_id, self._topic, topic_id, number, partitions)
        self._producer_id = number

    def batches(self, log_offset: int, now_ms: int) -> Iterator[tuple[bytes | bytearray, int]]:
        self._batches += 1
        if self._batches % GENERATION_EVERY == 1:
            self._generation += 1
            key, value = encode_record(self._metadata(now_ms))
            yield encode_batch(log_offset, [(key, value, now_ms)]), 1
            log_offset += 1
        self._committed += 100
        is_transactional = self._batches % TRANSACTION_EVERY == 0
        commit = self._transactional if is_transactional else self._plain
        yield commit.at(log_offset, now_ms, self._committed), self._partitions
        if is_transactional:
            committed = self._batches % (3 * TRANSACTION_EVERY) != 0
            key, value = encode_record(TransactionMarker(self._producer_id, 0, committed))
            marker = encode_batch(
                log_offset + self._partitions,
                [(key, value, now_ms)],
                producer_id=self._producer_id,
                producer_epoch=0,
                is_transactional=True,
                is_control=True,
            )
            yield marker, 1

    def _metadata(self, now_ms: int) -> GroupMetadataRecord:
        members = tuple(
            MemberRecord(
                f"consumer-{number}-{self._generation:08x}", None, f"consumer-{number}", "/10.0.0.1", 300_000, 45_000,
                b"\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff", b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff",
            )
            for number in range(self._members)
        )  # fmt: skip
        return GroupMetadataRecord(
            self.group_id, "consumer", self._generation, "range", members[0].member_id, now_ms, members
        )


def write_log(folder: Path, *, records: int, partitions: int = 50, groups: int = 3_000, seed: int = 1) -> int:
    """Write the folders of log partitions with segments of 100 MiB.

    Args:
        folder: where; log partitions are folders in it.
        records: about how many, all together; the last commit is written whole.
        partitions: how many log partitions.
        groups: how many groups; group *n* is in log partition *n* modulo ``partitions``.
        seed: for who commits when.

    Returns:
        How many records there are.
    """
    written = 0
    for partition in range(partitions):
        random = Random(f"{seed} {partition}")
        numbers = range(partition, groups, partitions)
        of_partition = [Group(number, random) for number in numbers]
        weights = [HOT_WEIGHT if number % HOT_ONE_IN == 0 else 1 for number in numbers]
        wanted = records * (partition + 1) // partitions - records * partition // partitions
        if of_partition:
            written += _write_partition(
                folder / f"__consumer_offsets-{partition}", of_partition, weights, wanted, random
            )
    return written


def _write_partition(folder: Path, groups: list[Group], weights: list[int], wanted: int, random: Random) -> int:
    folder.mkdir(parents=True)
    log_offset, now_ms = 0, STARTED_MS
    while log_offset < wanted:
        with open(folder / f"{log_offset:020d}.log", "wb", buffering=1_048_576) as file:
            size = 0
            while size < SEGMENT_BYTES and log_offset < wanted:
                for group in random.choices(groups, weights, k=1_000):
                    now_ms += 5
                    for data, count in group.batches(log_offset, now_ms):
                        size += file.write(data)
                        log_offset += count
                    if log_offset >= wanted:
                        break
    return log_offset


def main() -> None:
    parser = argparse.ArgumentParser(description="Write large __consumer_offsets logs.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=20_000_000, help="how many (default: 20 million)")
    parser.add_argument("--partitions", type=int, default=50, help="log partitions (default: 50)")
    parser.add_argument("--groups", type=int, default=3_000, help="groups (default: 3,000)")
    arguments = parser.parse_args()
    written = write_log(
        arguments.folder, records=arguments.records, partitions=arguments.partitions, groups=arguments.groups
    )
    print(f"{written:,} records")


if __name__ == "__main__":
    main()
