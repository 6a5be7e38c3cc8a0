"""Logs of ``__consumer_offsets`` that somebody, or a bad disk, has changed.

A log is some segments of batches in all formats and codecs. What is changed is chosen by what it means: a header's
field, with the checksum put right or left wrong; the inside of a record; a whole batch; a whole file.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from crc32c import crc32c

from groupcoord import Config, GroupCoordinator, ManualClock, MemoryLogStore
from groupcoord.messages import (
    CompleteTransaction,
    JoinGroup,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetDelete,
    OffsetToCommit,
    SyncAssignment,
    SyncGroup,
    TopicToCommit,
    TopicToDelete,
    TxnOffsetCommit,
)
from groupcoord.records.batches import BATCH_HEADER_BYTES, BatchRecord
from groupcoord.records.compression import Compression
from groupcoord.schema.primitives import write_varint
from groupcoord.storage.files import SEGMENT_SUFFIX
from groupcoord.testing.logs import encode_any_batch, encode_messages

TIME_MS = 1_700_000_000_000
GROUP_COUNT = 6
CRC_POSITION, CRC_START = 17, 21
MAGIC_V2 = 2
BOMB_BYTES = 150_000_000

KeyValue = tuple[bytes, bytes | None]

FIELDS = {
    "base offset": (0, ">q"),
    "length": (8, ">i"),
    "leader epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last offset delta": (23, ">i"),
    "base timestamp": (27, ">q"),
    "max timestamp": (35, ">q"),
    "producer id": (43, ">q"),
    "producer epoch": (51, ">h"),
    "base sequence": (53, ">i"),
    "record count": (57, ">i"),
}
"""Where each field of a batch's header is (message format v2), and how it is written."""


def plausible_records() -> list[KeyValue]:
    """Return keys and values that a coordinator has written: groups, commits of every kind and tombstones."""
    store = MemoryLogStore()
    config = Config(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0)
    coordinator = GroupCoordinator(config=config, clock=ManualClock(TIME_MS), log_store=store)
    coordinator.load_all()
    for number in range(GROUP_COUNT):
        group_id = f"group-{number}"
        join = JoinGroup(group_id, protocols=(JoinProtocol("range", b"\x00\x01"),), requires_known_member_id=False)
        coordinator.submit(join, token="join")
        coordinator.tick()
        ((_, joined),) = coordinator.take_replies()
        assert isinstance(joined, JoinGroupResponse)
        assignments = (SyncAssignment(joined.member_id, b"everything"),)
        coordinator.call(SyncGroup(group_id, joined.generation_id, joined.member_id, assignments=assignments))
        for metadata in ("", "some metadata"):
            offsets = tuple(
                OffsetToCommit(index, 100 * number + index, committed_metadata=metadata) for index in range(4)
            )
            topics = (TopicToCommit("orders", offsets), TopicToCommit("bills", offsets[:1]))
            coordinator.call(OffsetCommit(group_id, topics, joined.generation_id, joined.member_id))
        coordinator.call(TxnOffsetCommit(group_id, topics, 40 + number, 0))
        coordinator.call(CompleteTransaction(0, 40 + number, 0, committed=number % 2 == 0))
        coordinator.call(LeaveGroup(group_id, (LeavingMember(joined.member_id),)))
        if number % 3 == 0:
            coordinator.call(OffsetDelete(group_id, (TopicToDelete("bills", (0,)),)))
    return [record.encoded() for record in store.read(0) if not record.is_control]


@dataclass
class PieceOfLog:
    """A batch, or messages of an old format that were written together."""

    data: bytes
    base_offset: int
    next_offset: int

    @property
    def is_new(self) -> bool:
        """Whether it has message format v2."""
        return len(self.data) >= BATCH_HEADER_BYTES and self.data[16] == MAGIC_V2


@dataclass
class MutableLog:
    """The segments of a log partition: base offset → batches; and what was done to them."""

    segments: dict[int, list[PieceOfLog]] = field(default_factory=dict)
    others: dict[str, bytes] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)

    def files(self) -> dict[str, bytes]:
        found = {f"{base:020d}{SEGMENT_SUFFIX}": b"".join(p.data for p in s) for base, s in self.segments.items()}
        return {**found, **self.others}


class LogMutator:
    """Makes logs and changes them.

    Args:
        chance: decides.
        pool: keys and values of records.
    """

    def __init__(self, chance: random.Random, pool: list[KeyValue]) -> None:
        self._random = chance
        self._pool = pool

    def log(self) -> MutableLog:
        chance = self._random
        made = MutableLog()
        offset = chance.choice((0, 0, 7, 2**33))
        for _ in range(chance.randint(1, 4)):
            batches: list[PieceOfLog] = []
            made.segments[offset] = batches
            for _ in range(chance.randint(1, 6)):
                batches.append(self._batch(offset))
                offset = batches[-1].next_offset
        if chance.random() < 0.2:
            made.segments[offset] = []
        return made

    def mutated(self) -> MutableLog:
        made = self.log()
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            change = self._random.choice(_CHANGES)
            made.changes.append(change(self, made))
        return made

    def _batch(self, offset: int) -> PieceOfLog:
        chance = self._random
        records: list[BatchRecord] = []
        base_offset, time_ms = offset, TIME_MS + offset % 1_000_000
        for key, value in chance.choices(self._pool, k=chance.randint(1, 10)):
            offset += chance.choice((0, 0, 0, 1))
            records.append((offset, time_ms, key, value))
            offset += 1
        codec = chance.choice((Compression.NONE, Compression.NONE, *Compression))
        kind = chance.random()
        if kind < 0.1:
            magic = chance.choice((0, 1))
            old_codec = Compression.NONE if codec is Compression.ZSTD else codec
            data = encode_messages(magic, records, codec=old_codec)
            return PieceOfLog(data, base_offset, offset)
        if kind < 0.2:
            marker = (base_offset, time_ms, b"\x00\x00\x00" + bytes((chance.randrange(2),)), bytes(6))
            data = encode_any_batch(
                [marker],
                base_offset=base_offset,
                last_offset=base_offset,
                producer_id=41,
                producer_epoch=0,
                is_transactional=True,
                is_control=True,
            )
            return PieceOfLog(data, base_offset, base_offset + 1)
        producer_id = chance.choice((-1, -1, -1, 41))
        data = encode_any_batch(
            records,
            base_offset=base_offset,
            last_offset=offset - 1,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            is_transactional=producer_id >= 0,
        )
        return PieceOfLog(data, base_offset, offset)

    # ------------------------------------------------------------ what is changed

    def _any_batch(self, log: MutableLog) -> tuple[int, int]:
        places = [(base, place) for base, batches in log.segments.items() for place in range(len(batches))]
        return self._random.choice(places) if places else (-1, -1)

    def _any_number(self, width: int) -> int:
        chance, limit = self._random, 2 ** (8 * width - 1)
        small = chance.choice((-2, -1, 0, 1, 2, 3, 8, 60, 61, 100, 10_000))
        number = chance.choice((small, small, limit - 1, -limit, chance.randrange(-limit, limit)))
        return int(number % (2 * limit))

    def flip_bits(self, log: MutableLog) -> str:
        base, place = self._any_batch(log)
        if base < 0:
            return "nothing is left to flip"
        data = bytearray(log.segments[base][place].data)
        bits = [self._random.randrange(8 * len(data)) for _ in range(self._random.choice((1, 1, 2, 8)))]
        for bit in bits:
            data[bit // 8] ^= 1 << bit % 8
        log.segments[base][place].data = bytes(data)
        return f"bits {bits} of batch {place} in segment {base} are flipped"

    def change_header(self, log: MutableLog) -> str:
        """A field of a batch's header has another value; the checksum fits or doesn't."""
        base, place = self._any_batch(log)
        if base < 0 or not log.segments[base][place].is_new:
            return self.flip_bits(log)
        piece = log.segments[base][place]
        name = self._random.choice(list(FIELDS))
        position, form = FIELDS[name]
        width = struct.calcsize(form)
        number = self._any_number(width)
        if self._random.random() < 0.4:
            old = int.from_bytes(piece.data[position : position + width], "big")
            number = (old + self._random.choice((-1, 1, 2, -3))) % 2 ** (8 * width)
        data = piece.data[:position] + number.to_bytes(width, "big") + piece.data[position + width :]
        is_sealed = name != "crc" and self._random.random() < 0.7
        piece.data = sealed(data) if is_sealed else data
        return f"{name} of batch {place} in segment {base} is {number}{', with its checksum' if is_sealed else ''}"

    def change_records(self, log: MutableLog) -> str:
        """Bytes behind the header change, and the checksum with them: lengths, deltas, keys, values, what is packed."""
        base, place = self._any_batch(log)
        if base < 0 or not log.segments[base][place].is_new:
            return self.flip_bits(log)
        chance, piece = self._random, log.segments[base][place]
        data = piece.data
        for _ in range(chance.choice((1, 1, 3))):
            position = chance.randrange(BATCH_HEADER_BYTES, len(data) + 1)
            content = chance.choice(
                (
                    chance.randbytes(1),
                    write_varint(self._any_number(4)),
                    write_varint(-1),
                    b"\xff" * 10,
                    b"\x00",
                    chance.randbytes(9),
                )
            )
            end = position + chance.choice((0, len(content), 1))
            data = data[:position] + content + data[end:]
        data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
        piece.data = sealed(data)
        return f"records of batch {place} in segment {base} are changed, and sealed"

    def change_content(self, log: MutableLog) -> str:
        base, place = self._any_batch(log)
        if base < 0:
            return "nothing is left to change"
        chance, piece = self._random, log.segments[base][place]
        records: list[BatchRecord] = []
        for offset in range(piece.base_offset, piece.next_offset):
            key, value = chance.choice(self._pool)
            for _ in range(chance.choice((0, 1, 2))):
                position = chance.randrange(len(key))
                key = key[:position] + chance.randbytes(chance.choice((0, 1, 3))) + key[position + 1 :]
                if value:
                    position = chance.randrange(len(value))
                    value = value[:position] + chance.randbytes(chance.choice((0, 1, 3))) + value[position + 1 :]
            records.append((offset, TIME_MS, key, value if chance.random() < 0.95 else b""))
        piece.data = encode_any_batch(records, base_offset=piece.base_offset, last_offset=piece.next_offset - 1)
        return f"keys and values in batch {place} of segment {base} are changed"

    def move_batches(self, log: MutableLog) -> str:
        base, place = self._any_batch(log)
        if base < 0:
            return "nothing is left to move"
        kind = self._random.choice(("lost", "doubled", "first", "in another segment"))
        piece = log.segments[base].pop(place)
        if kind == "doubled":
            log.segments[base][place:place] = [piece, PieceOfLog(piece.data, piece.base_offset, piece.next_offset)]
        elif kind == "first":
            log.segments[base].insert(0, piece)
        elif kind == "in another segment":
            log.segments[self._random.choice(list(log.segments))].append(piece)
        return f"batch {place} of segment {base} is {kind}"

    def change_bytes(self, log: MutableLog) -> str:
        """A file is cut, has a hole, zeros or noise in it, or more behind it."""
        chance = self._random
        base = chance.choice(list(log.segments))
        data = b"".join(piece.data for piece in log.segments[base])
        position = chance.randrange(len(data) + 1)
        size = chance.choice((1, 7, 61, 512, 4_096))
        kind = chance.choice(("cut", "cut", "zeros", "noise", "inserted", "hole", "zeros behind", "noise behind"))
        if kind == "cut":
            data = data[:position]
        elif kind in ("zeros", "noise"):
            content = bytes(size) if kind == "zeros" else chance.randbytes(size)
            data = data[:position] + content + data[position + size :]
        elif kind == "inserted":
            data = data[:position] + chance.randbytes(size) + data[position:]
        elif kind == "hole":
            data = data[:position] + data[position + size :]
        else:
            data += bytes(size) if kind == "zeros behind" else chance.randbytes(size)
        log.segments[base] = [PieceOfLog(data, base, base)] if data else []
        return f"segment {base}: {kind}, {size} bytes at {position}"

    def change_files(self, log: MutableLog) -> str:
        chance = self._random
        bases = list(log.segments)
        base, other = chance.choice(bases), chance.choice(bases)
        kind = chance.choice(("lost", "emptied", "renamed", "doubled", "swapped", "foreign", "strange neighbours"))
        if kind == "lost":
            del log.segments[base]
            if not log.segments:
                log.segments[0] = []
        elif kind == "emptied":
            log.segments[base] = []
        elif kind in ("renamed", "doubled"):
            name = max(base + chance.choice((-1, 1, 5, 1_000)), 0)
            log.segments[name] = log.segments[base] if kind == "doubled" else log.segments.pop(base)
            log.segments = dict(sorted(log.segments.items()))
        elif kind == "swapped":
            log.segments[base], log.segments[other] = log.segments[other], log.segments[base]
        elif kind == "foreign":
            content = chance.choice((b"Dear diary,\n" * 40, b"\x7fELF" + chance.randbytes(3_000), bytes(5_000)))
            log.segments[base] = [PieceOfLog(content, base, base)]
        else:
            log.others = {"x.log": b"x", "00000000000000000000.index": b"\xff" * 8, ".DS_Store": b"\x00\x00\x00\x01"}
        return f"segment {base} is {kind}"

    def explode(self, log: MutableLog) -> str:
        base, place = self._any_batch(log)
        if base < 0 or self._random.random() < 0.9:
            return self.change_header(log)
        piece = log.segments[base][place]
        record = (piece.base_offset, TIME_MS, b"\x00\x01", bytes(BOMB_BYTES))
        codec = self._random.choice((Compression.GZIP, Compression.ZSTD))
        piece.data = encode_any_batch(
            [record], base_offset=piece.base_offset, last_offset=piece.next_offset - 1, codec=codec
        )
        return f"batch {place} of segment {base} is {len(piece.data)} bytes of {codec.name}, {BOMB_BYTES} unpacked"


_CHANGES: list[Callable[[LogMutator, MutableLog], str]] = [
    *([LogMutator.flip_bits] * 4),
    *([LogMutator.change_header] * 5),
    *([LogMutator.change_records] * 3),
    *([LogMutator.change_content] * 2),
    *([LogMutator.move_batches] * 3),
    *([LogMutator.change_bytes] * 4),
    *([LogMutator.change_files] * 3),
    LogMutator.explode,
]


def sealed(batch: bytes) -> bytes:
    """Return a batch of format v2 with the checksum that it must have."""
    return batch[:CRC_POSITION] + struct.pack(">I", crc32c(batch[CRC_START:])) + batch[CRC_START:]
