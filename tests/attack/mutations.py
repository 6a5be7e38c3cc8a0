"""Mutated requests: fields, lengths, tags, elements and headers that no client would write, spliced into samples.

Most mutations leave a request that can be read, so that it gets as far as the coordinator; the others are what a
decoder must refuse. The same seed gives the same frames.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

from tests.attack.layouts import CORRELATION_ID_POSITION, NUMBERS, Layout, Piece, counted, framed, unsigned_varint

GROUP_IDS = ["group", "other", "", *(f"group-{number}" for number in range(8))]
TOPICS = ["orders", "bills", "wide", "__consumer_offsets", "new-topic", "..", "no such topic/"]
OTHERS = ["member", "instance", "writer", "writer-2", "consumer", "range", "sticky", "producer", "classic", "Stable"]
STRANGE = ["\x00", "ß€😀", "\ud83d", "x" * 249, "x" * 250, "-1", "%s{}", "\r\n"]
TEXTS = [text.encode("utf-8", "surrogatepass") for text in (*GROUP_IDS * 3, *TOPICS * 4, *OTHERS * 2, *STRANGE)]
TEXTS += [b"\xff\xfe", b"\xc0\x80", b"y" * 32_767]
BLOBS = [b"", b"\x00", b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff", b"\xff" * 70, bytes(5_000)]

WAITING = (1, 11, 14)
"""Fetch, JoinGroup and SyncGroup: their answers may be long in coming."""
WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "float64": 64}
SMALL_NUMBERS = (-2, -1, 0, 1, 2, 3, 5, 6, 7, 100)
REPETITIONS = (2, 2, 3, 3, 10, 10, 100, 1_000)
LENGTHS = (-2, -1, 0, 1, 127, 128, 1_000, 32_767, 65_535, 2**24, 2**31 - 1)
COMPACT_LENGTHS = (
    *(b"\x00", b"\x01", b"\x7f", b"\x80\x01", b"\xff\xff\x03", b"\xff\xff\xff\xff\x07"),
    b"\xff" * 5 + b"\x01",
)
"""The last are too long for any number of 32 bits."""
UNKNOWN_TAGS = (
    b"\x01\x63\x03abc",
    b"\x02\x05\x00\x06\x01x",
    b"\x02\x07\x00\x07\x00",
    b"\x02\x09\x00\x04\x00",
    b"\x01\x00\x01\x00",
    b"\x01\xff\xff\xff\xff\x0f\x00",
    b"\x01\x05\xff\xff\x03x",
    b"\xff\xff\xff\xff\x0f",
    b"\x40" + b"".join(bytes((tag, 0)) for tag in range(100, 164 - 36)) + bytes(72),
)
"""Unknown, repeated, in the wrong order, known ones with a wrong length, absurd numbers of them."""
SIZES = (-1, -(2**31), 0, 1, 2**31 - 1, 104_857_600, 104_857_601)

Edit = tuple[int, int, bytes]


class Mutator:
    """Generator of mutated frames. Args: layouts: the requests to start from. chance: the source of randomness. names:
    additional texts, such as ids that the server returned; may grow.
    """

    def __init__(self, layouts: Sequence[Layout], chance: random.Random, names: Sequence[bytes] = ()) -> None:
        self._layouts = layouts
        self._calm_layouts = [layout for layout in layouts if layout.api_key not in WAITING]
        self._random = chance
        self._names = names
        self._kinds: list[Callable[[Layout], bytes]] = []
        for weight, kind in (
            (12, self._untouched),
            (50, self._edited),
            (4, self._truncated),
            (4, self._noisy),
            (2, self._with_other_header),
            (2, self._with_other_body),
            (2, self._lengthened),
        ):
            self._kinds += [kind] * weight
        self._edits: list[Callable[[Layout], Edit]] = []
        for weight, edit in ((56, self._value), (22, self._elements), (4, self._lie), (9, self._tags)):
            self._edits += [edit] * weight

    def reseed(self, chance: random.Random) -> None:
        self._random = chance

    def request(self, correlation_id: int, *, is_gentle: bool = False) -> bytes:
        """Return one frame with its size before it; now and then the size is a lie.

        Args:
            correlation_id: of the request.
            is_gentle: make one that will most likely be answered, and soon.
        """
        chance = self._random
        if is_gentle and chance.random() < 0.95:
            data = self._gentle(chance.choice(self._calm_layouts))
            return struct.pack(">i", len(data)) + data[:4] + correlation_id.to_bytes(4, "big") + data[8:]
        layout = chance.choice(self._layouts)
        data = chance.choice(self._kinds)(layout)
        if len(data) >= CORRELATION_ID_POSITION + 4:
            data = data[:CORRELATION_ID_POSITION] + correlation_id.to_bytes(4, "big") + data[8:]
        size = len(data)
        if chance.random() < 0.006:
            size = chance.choice((size + 1, size - 1, size + 300, *SIZES))
        return struct.pack(">i", max(size, -(2**31))) + data

    # ------------------------------------------------------------ whole requests

    def _gentle(self, layout: Layout) -> bytes:
        data, limit = layout.data, len(layout.data) + 1
        edits = [self._elements(layout) if self._random.random() < 0.2 else self._value(layout) for _ in range(2)]
        for start, end, replacement in sorted(edits, reverse=True):
            if layout.body <= start and end <= limit:
                data = data[:start] + replacement + data[end:]
                limit = start
        return data

    def _untouched(self, layout: Layout) -> bytes:
        return layout.data

    def _edited(self, layout: Layout) -> bytes:
        data = layout.data
        edits = [self._random.choice(self._edits)(layout) for _ in range(self._random.choice((1, 1, 1, 2, 2, 3, 5)))]
        edits.sort(reverse=True)
        limit = len(data) + 1
        for start, end, replacement in edits:
            if end <= limit:
                data = data[:start] + replacement + data[end:]
                limit = start
        return data

    def _truncated(self, layout: Layout) -> bytes:
        return layout.data[: self._random.randrange(len(layout.data))]

    def _lengthened(self, layout: Layout) -> bytes:
        return layout.data + self._random.randbytes(self._random.choice((1, 4, 100)))

    def _noisy(self, layout: Layout) -> bytes:
        chance, data = self._random, layout.data
        for _ in range(chance.choice((1, 1, 2, 4))):
            position = chance.randrange(len(data) + 1)
            content = chance.randbytes(chance.choice((0, 1, 1, 2, 4, 8)))
            data = data[:position] + content + data[position + chance.choice((0, len(content))) :]
        return data

    def _with_other_header(self, layout: Layout) -> bytes:
        chance = self._random
        api_key = layout.api_key if chance.random() < 0.7 else chance.choice((-1, 4, 60, 999, chance.randrange(100)))
        version = chance.choice((-1, layout.version + 1, layout.version - 1, chance.randrange(20), 32_767))
        return struct.pack(">hh", api_key, version) + layout.data[4:]

    def _with_other_body(self, layout: Layout) -> bytes:
        other = self._random.choice(self._layouts)
        return layout.data[: layout.body] + other.data[other.body :]

    # ------------------------------------------------------------ parts of requests

    def _value(self, layout: Layout) -> Edit:
        piece = self._random.choice(layout.pieces)
        return piece.start, piece.end, self._content(piece, layout)

    def _content(self, piece: Piece, layout: Layout) -> bytes:
        chance, kind = self._random, piece.kind
        if kind in WIDTHS:
            bits = WIDTHS[kind]
            limit = 2 ** (bits - 1)
            number = chance.choice((*SMALL_NUMBERS, limit - 1, -limit, chance.randrange(-limit, limit)))
            return int(number % 2**bits).to_bytes(bits // 8, "big")
        if kind == "bool":
            return bytes((chance.choice((0, 1, 2, 255)),))
        if kind == "uuid":
            return chance.choice((bytes(16), bytes(15) + b"\x01", b"\xff" * 16, chance.randbytes(16)))
        if kind == "tags":
            return chance.choice(UNKNOWN_TAGS[:2])
        if kind.endswith("count"):
            return layout.data[piece.start : piece.end]
        if chance.random() < 0.06:
            return framed(kind, None)
        if kind.endswith("string"):
            return framed(kind, chance.choice(self._names if self._names and chance.random() < 0.3 else TEXTS))
        return framed(kind, chance.choice(BLOBS))

    def _elements(self, layout: Layout) -> Edit:
        """More, fewer or no elements of an array, and a count that is right."""
        if not layout.arrays:
            return self._value(layout)
        chance = self._random
        counter, elements = chance.choice(layout.arrays)
        start, end = counter.start, elements[-1][1]
        spans = list(elements)
        kind = chance.randrange(6)
        if kind == 0:
            return start, end, counted(counter.kind, chance.choice((0, -1)))
        if kind == 1:
            spans.pop(chance.randrange(len(spans)))
        elif kind == 2:
            spans.reverse()
        else:
            spans += [chance.choice(spans)] * chance.choice(REPETITIONS)
        data = layout.data
        return start, end, counted(counter.kind, len(spans)) + b"".join([data[first:last] for first, last in spans])

    def _lie(self, layout: Layout) -> Edit:
        """A length or a count that is not true, or a value of a width that is not the field's."""
        chance = self._random
        piece = chance.choice(layout.pieces)
        if piece.kind == "tags":
            return self._tags(layout)
        if piece.kind in NUMBERS or piece.kind == "uuid":
            return piece.start, piece.end, chance.randbytes(chance.choice((0, 1, 3, 9)))
        if piece.kind.startswith("compact_"):
            length = layout.data[piece.start]
            end = piece.start + (1 if length < 0x80 else 2)
            return piece.start, end, chance.choice((*COMPACT_LENGTHS, unsigned_varint(length + 1)))
        width = 2 if piece.kind == "string" else 4
        length = chance.choice((*LENGTHS, piece.end - piece.start)) % 2 ** (8 * width)
        return piece.start, piece.start + width, length.to_bytes(width, "big")

    def _tags(self, layout: Layout) -> Edit:
        """Return unknown or malformed tagged fields."""
        tags = [piece for piece in layout.pieces if piece.kind == "tags"]
        if not tags:
            return self._value(layout)
        piece = self._random.choice(tags)
        return piece.start, piece.end, self._random.choice(UNKNOWN_TAGS)
