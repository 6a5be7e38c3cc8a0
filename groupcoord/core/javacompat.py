"""Java behaviour that Kafka's responses depend on: hash codes, order of hash maps, priority queue, blank strings.

Also the 64-bit XXH3 hash of metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from struct import Struct
from typing import Generic, TypeVar
from uuid import UUID

KeyT = TypeVar("KeyT", bound=Hashable)

# Bounded, because clients choose the ids.
_REMEMBERED_HASHES = 1 << 14
_REMEMBERED_LENGTH_MAX = 80
"""Maximum length of ids with a cached hash; Java caches every hash."""

_GOLDEN_RATIO = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio, as in Kafka's tables of snapshots."""


def string_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: ``31 * h + unit`` over UTF-16 code units, as a signed 32-bit number.

    >>> string_hash("my-group")
    -1906497762
    """
    # Ids of members are hashed again and again; long ones would take much room.
    return _remembered_hash(text) if len(text) <= _REMEMBERED_LENGTH_MAX else _hash_of_text(text)


def _hash_of_text(text: str) -> int:
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        encoded = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(encoded[::2], encoded[1::2], strict=True):
            value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


_remembered_hash = lru_cache(_REMEMBERED_HASHES)(_hash_of_text)


def string_sort_key(text: str) -> bytes:
    """Return the key that sorts text as Java's ``String.compareTo``: by UTF-16 code units.

    >>> sorted(["\\ufb00", "\\U0001f600"], key=string_sort_key) == ["\\U0001f600", "\\ufb00"]
    True
    """
    return text.encode("utf-16-be", "surrogatepass")


def partition_for(group_id: str, partition_count: int) -> int:
    """Return the partition of ``__consumer_offsets`` that holds a group.

    It is the absolute value of the hash (0 for -2^31, as in Kafka) modulo the number of partitions.

    >>> partition_for("my-group", 50)
    12
    """
    value = string_hash(group_id)
    # Its absolute value is no 32-bit number (Kafka's Utils.abs).
    return 0 if value == -(2**31) else abs(value) % partition_count


def uuid_hash(value: UUID) -> int:
    """Return the ``hashCode`` of Kafka's ``Uuid``: its four words of 32 bits, combined by exclusive or.

    >>> uuid_hash(UUID(int=0x0000000F_0000000F_00000001_00000002))
    3
    """
    number = value.int
    folded = number ^ number >> 64
    folded = (folded ^ folded >> 32) & 0xFFFFFFFF
    return folded - 2**32 if folded >= 2**31 else folded


# Java's Integer.hashCode is the number itself.
integer_hash: Callable[[int], int] = int


def uuid_sort_key(value: UUID) -> tuple[int, int]:
    """Return the key that sorts ids as Kafka's ``Uuid.compareTo``: by two signed numbers of 64 bits.

    >>> uuid_sort_key(UUID(int=2**127)) < uuid_sort_key(UUID(int=0)) < uuid_sort_key(UUID(int=2**64))
    True
    """
    high, low = value.int >> 64, value.int & 0xFFFFFFFFFFFFFFFF
    return high - 2**64 if high >= 2**63 else high, low - 2**64 if low >= 2**63 else low


class HashTable(Generic[KeyT]):
    """Keys in the order of a Java ``HashMap`` or ``HashSet``, while keys come and go.

    Java's trees of more than eight keys in a bucket are not reproduced.
    """

    __slots__ = ("_buckets", "_first_place", "_full", "_hash_of", "_next_place", "_places")

    def __init__(self, hash_of: Callable[[KeyT], int], keys: Iterable[KeyT] = (), buckets: int = 16) -> None:
        self._hash_of = hash_of
        # Java's load factor of three quarters.
        self._buckets, self._full = buckets, buckets * 3 // 4
        # In a bucket the key with the lower place comes first.
        self._places = dict(zip(dict.fromkeys(keys), count(), strict=False))
        self._first_place, self._next_place = 0, len(self._places)
        if self._next_place > self._full:
            self._grow()

    def put(self, key: KeyT) -> None:
        if key not in self._places:
            # An existing key keeps its place; a new one goes to the end of its bucket.
            self._places[key] = self._next_place
            self._next_place += 1
            if len(self._places) > self._full:
                self._grow()

    def compute_if_absent(self, key: KeyT) -> None:
        """Insert a key as ``computeIfAbsent`` does: first in its bucket, after the table has grown."""
        if len(self._places) > self._full:
            self._grow()
        if key not in self._places:
            # Before all others of its bucket.
            self._first_place -= 1
            self._places[key] = self._first_place

    def discard(self, key: KeyT) -> None:
        self._places.pop(key, None)

    def _grow(self) -> None:
        while len(self._places) > self._full:
            # Java's tables never shrink.
            self._buckets *= 2
            self._full = self._buckets * 3 // 4

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[KeyT]:
        return iter(self.in_order())

    def in_order(self) -> list[KeyT]:
        hash_of, mask, places = self._hash_of, self._buckets - 1, self._places
        if len(places) < 2:
            return [*places]
        # By place, which a stable sort by bucket keeps; usually the keys came in this order.
        in_order = sorted(places, key=places.__getitem__) if self._first_place < 0 else places

        # Below 2^16 Java's spreading (h ^ h >>> 16) changes nothing.
        if hash_of is integer_hash and max(places) < 1 << 16:  # type: ignore[type-var, operator]
            return sorted(in_order, key=mask.__and__)  # type: ignore[arg-type]

        def bucket(key: KeyT) -> int:  # as in hash_bucket, which is a call more for each key
            value = hash_of(key) & 0xFFFFFFFF
            return (value ^ value >> 16) & mask

        return sorted(in_order, key=bucket)


def buckets_for(capacity: int) -> int:
    """Return the number of buckets for an initial capacity: the next power of two."""
    return 1 << max(capacity - 1, 0).bit_length()


def buckets_of_copy(size: int) -> int:
    """Return the number of buckets of a ``HashMap`` sized for, or copied from, this many keys, up to Java 18."""
    # HashMap.putMapEntries: tableSizeFor(size / 0.75 + 1).
    return 1 << int(size / 0.75).bit_length()


def copied_set(hash_of: Callable[[KeyT], int], keys: Collection[KeyT]) -> HashTable[KeyT]:
    """Return a Java ``HashSet`` that is a copy of a collection."""
    return HashTable(hash_of, keys, max(16, buckets_of_copy(len(keys))))


def hash_map_size(size: int) -> int:
    """Return the initial capacity of a map or set for this number of keys in Kafka's assignors."""
    return int((size + 1) / 0.75 + 1)


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """Return distinct keys in the order of a Java ``HashMap`` that they were put into in this order."""
    distinct = list(dict.fromkeys(keys))
    return distinct if len(distinct) < 2 else HashTable(string_hash, distinct).in_order()


def scala_map_order(keys: Iterable[KeyT], hash_of: Callable[[KeyT], int], buckets: int = 16) -> list[KeyT]:
    """Return distinct keys in the order of a Scala 2.13 ``mutable.HashMap`` with this initial number of buckets."""
    hashes = {key: _spread(hash_of(key)) for key in keys}
    # Scala doubles before three quarters are full; a bucket is sorted by hash code.
    while len(hashes) >= buckets * 3 // 4:
        buckets *= 2
    # Scala compares hash codes as signed numbers, hence the flipped sign bit.
    return sorted(hashes, key=lambda key: (hashes[key] & buckets - 1, hashes[key] ^ 0x80000000))


def scala_trie_order(keys: Iterable[KeyT], hash_of: Callable[[KeyT], int]) -> list[KeyT]:
    """Return distinct keys in the order of a Scala 2.13 ``immutable.HashMap`` or ``HashSet``."""

    def walk(node: list[tuple[int, KeyT]]) -> list[KeyT]:
        slots: dict[int, list[tuple[int, KeyT]]] = {}
        for hash_code, key in node:
            slots.setdefault(hash_code & 31, []).append((hash_code >> 5, key))
        # A node has a slot for each value of five bits; its keys come before its child nodes.
        in_order = [slots[slot] for slot in sorted(slots)]
        own = [slot[0][1] for slot in in_order if len(slot) == 1]
        for slot in in_order:
            if len(slot) > 1:
                # Keys with equal hash codes share a collision node, in order of insertion.
                same = len({hash_code for hash_code, _ in slot}) == 1
                own += [key for _, key in slot] if same else walk(slot)
        return own

    return walk([(_improved(hash_of(key)), key) for key in dict.fromkeys(keys)])


def scala_set_order(keys: Iterable[str]) -> list[str]:
    """Return distinct keys in the order of Scala's ``toSet``."""
    distinct = list(dict.fromkeys(keys))
    # Sets of up to four keys keep the order of insertion.
    return distinct if len(distinct) <= 4 else scala_trie_order(distinct, string_hash)


def topic_partition_hash(partition: tuple[str, int]) -> int:
    """Return ``TopicPartition.hashCode`` of Kafka's clients, as an unsigned 32-bit number."""
    topic, index = partition
    return ((31 + index) * 31 + string_hash(topic)) & 0xFFFFFFFF


def _spread(hash_code: int) -> int:
    value = hash_code & 0xFFFFFFFF
    return value ^ value >> 16


def _improved(hash_code: int) -> int:
    """Return ``scala.collection.Hashing.improve`` of a hash code."""
    value = (hash_code + ~(hash_code << 9)) & 0xFFFFFFFF
    value ^= value >> 14
    value = (value + (value << 4)) & 0xFFFFFFFF
    return value ^ value >> 10


def hash_bucket(hash_code: int, buckets: int) -> int:
    return _spread(hash_code) & (buckets - 1)


def timeline_map_order(keys: Iterable[str]) -> list[str]:
    """Return distinct keys in the order of Kafka's ``TimelineHashMap`` that they were put into in this order."""
    distinct = list(dict.fromkeys(keys))
    if len(distinct) < 2:
        return distinct
    slot_bits = 1
    # Two slots at first; it doubles above four keys for three slots.
    while len(distinct) * 3 > 4 << slot_bits:
        slot_bits += 1
    # Inside a slot the last key comes first.
    distinct.reverse()
    return sorted(distinct, key=lambda key: (string_hash(key) * _GOLDEN_RATIO & 0xFFFFFFFFFFFFFFFF) >> 64 - slot_bits)


EntryT = TypeVar("EntryT")


class PriorityQueue(Generic[EntryT]):
    """Java's ``PriorityQueue``: entries of which the least one can be taken.

    >>> queue = PriorityQueue(len, ["aa", "bb", "c"])
    >>> queue.take(), queue.take(), queue.take(), len(queue)
    ('c', 'aa', 'bb', 0)
    """

    __slots__ = ("_entries", "_key")

    def __init__(self, key: Callable[[EntryT], float], entries: Iterable[EntryT] = ()) -> None:
        self._key = key
        self._entries: list[EntryT] = []
        for entry in entries:
            self.put(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: EntryT) -> None:
        entries, key = self._entries, self._key
        place = len(entries)
        entries.append(entry)
        own_key = key(entry)
        while place > 0:
            parent = (place - 1) // 2
            # Java stops at an equal parent, which decides the order of equal entries.
            if own_key >= key(entries[parent]):
                break
            entries[place] = entries[parent]
            place = parent
        entries[place] = entry

    def take(self) -> EntryT:
        entries, key = self._entries, self._key
        # The last entry sinks from the top, so equal entries come as in Java.
        last = entries.pop()
        if not entries:
            return last
        least, size, place = entries[0], len(entries), 0
        last_key = key(last)
        while place < size // 2:
            child = 2 * place + 1
            # Of equal children the left one rises, as in Java.
            if child + 1 < size and key(entries[child + 1]) < key(entries[child]):
                child += 1
            if last_key <= key(entries[child]):
                break
            entries[place] = entries[child]
            place = child
        entries[place] = last
        return least


_LAST_TRIMMED = " "
_TRIMMED = "".join(map(chr, range(ord(_LAST_TRIMMED) + 1)))


def is_blank(text: str) -> bool:
    """Return whether Java's ``trim`` leaves nothing of a text."""
    return text[:1] <= _LAST_TRIMMED and not text.strip(_TRIMMED)


# Python's numbers don't overflow, so sums and products are cut to size.
_MASK_32 = 0xFFFFFFFF
_MASK_64 = 0xFFFFFFFFFFFFFFFF

_PRIME_32_1, _PRIME_32_2, _PRIME_32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME_64_1, _PRIME_64_2, _PRIME_64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_PRIME_64_4, _PRIME_64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_PRIME_MX_1, _PRIME_MX_2 = 0x165667919E3779F9, 0x9FB21C651E98DF25

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE_BYTES = 64
_SECRET_STEP_BYTES = 8
_STRIPES_IN_BLOCK = (len(_SECRET) - _STRIPE_BYTES) // _SECRET_STEP_BYTES
_LANES = Struct("<8Q")
_PAIR = Struct("<QQ")


def xxh3_64(data: bytes) -> int:
    """Return the XXH3 hash (seed 0) as an unsigned number.

    >>> f"{xxh3_64(b''):016x} {xxh3_64(b'abc'):016x}"
    '2d06800538d394c2 78af5f94892f3950'
    """
    size = len(data)
    if size <= 16:
        return _hash_up_to_16(data)
    if size <= 128:
        return _hash_up_to_128(data)
    return _hash_up_to_240(data) if size <= 240 else _hash_long(data)


def _u32(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 4], "little")


def _u64(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")


def _folded_product(one: int, other: int) -> int:
    product = one * other
    return (product ^ product >> 64) & _MASK_64


_SECRET_UP_TO_3 = _u32(_SECRET, 0) ^ _u32(_SECRET, 4)
_SECRET_UP_TO_8 = _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
_SECRET_LOW, _SECRET_HIGH = _u64(_SECRET, 24) ^ _u64(_SECRET, 32), _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
_SECRET_EMPTY = _u64(_SECRET, 56) ^ _u64(_SECRET, 64)


def _avalanche_xxh64(value: int) -> int:
    value = (value ^ value >> 33) * _PRIME_64_2 & _MASK_64
    value = (value ^ value >> 29) * _PRIME_64_3 & _MASK_64
    return value ^ value >> 32


def _avalanche(value: int) -> int:
    value = (value ^ value >> 37) * _PRIME_MX_1 & _MASK_64
    return value ^ value >> 32


def _hash_up_to_16(data: bytes) -> int:
    size = len(data)
    if size > 8:
        low = _u64(data, 0) ^ _SECRET_LOW
        high = _u64(data, size - 8) ^ _SECRET_HIGH
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(size + swapped + high + _folded_product(low, high) & _MASK_64)
    if size >= 4:
        value = (_u32(data, size - 4) | _u32(data, 0) << 32) ^ _SECRET_UP_TO_8
        value ^= (value << 49 | value >> 15) & _MASK_64 ^ (value << 24 | value >> 40) & _MASK_64
        value = value * _PRIME_MX_2 & _MASK_64
        value = (value ^ (value >> 35) + size) * _PRIME_MX_2 & _MASK_64
        return value ^ value >> 28
    if size:
        combined = data[0] << 16 | data[size >> 1] << 24 | data[size - 1] | size << 8
        return _avalanche_xxh64(combined ^ _SECRET_UP_TO_3)
    return _avalanche_xxh64(_SECRET_EMPTY)


def _mix_16(data: bytes, offset: int, secret_offset: int) -> int:
    low, high = _PAIR.unpack_from(data, offset)
    low_key, high_key = _PAIR.unpack_from(_SECRET, secret_offset)
    product = (low ^ low_key) * (high ^ high_key)
    return int(product ^ product >> 64) & _MASK_64


def _hash_up_to_128(data: bytes) -> int:
    size = len(data)
    value = size * _PRIME_64_1
    for index in range((size - 1) // 32 + 1):
        value += _mix_16(data, 16 * index, 32 * index)
        value += _mix_16(data, size - 16 * (index + 1), 32 * index + 16)
    return _avalanche(value & _MASK_64)


def _hash_up_to_240(data: bytes) -> int:
    size = len(data)
    value = size * _PRIME_64_1
    for index in range(8):
        value += _mix_16(data, 16 * index, 16 * index)
    value = _avalanche(value & _MASK_64)
    for index in range(8, size // 16):
        # 3 is the specification's secret offset of these blocks.
        value += _mix_16(data, 16 * index, 16 * (index - 8) + 3)
    # The minimum size of a secret, less the specification's last offset.
    value += _mix_16(data, size - 16, 136 - 17)
    return _avalanche(value & _MASK_64)


def _hash_long(data: bytes) -> int:
    lanes = [
        *(_PRIME_32_3, _PRIME_64_1, _PRIME_64_2, _PRIME_64_3),
        *(_PRIME_64_4, _PRIME_32_2, _PRIME_64_5, _PRIME_32_1),
    ]
    stripes = (len(data) - 1) // _STRIPE_BYTES
    for stripe in range(stripes):
        in_block = stripe % _STRIPES_IN_BLOCK
        _accumulate(lanes, data, stripe * _STRIPE_BYTES, in_block * _SECRET_STEP_BYTES)
        if in_block == _STRIPES_IN_BLOCK - 1:
            _scramble(lanes)
    # The last stripe is always full, so it may overlap the one before it.
    _accumulate(lanes, data, len(data) - _STRIPE_BYTES, len(_SECRET) - _STRIPE_BYTES - 7)
    return _merged(lanes, len(data) * _PRIME_64_1)


def _accumulate(lanes: list[int], data: bytes, offset: int, secret_offset: int) -> None:
    values = _LANES.unpack_from(data, offset)
    keys = _LANES.unpack_from(_SECRET, secret_offset)
    for lane in range(8):
        keyed = values[lane] ^ keys[lane]
        lanes[lane] += (keyed & _MASK_32) * (keyed >> 32) + values[lane ^ 1]
        lanes[lane] &= _MASK_64


def _scramble(lanes: list[int]) -> None:
    keys = _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE_BYTES)
    for lane, value in enumerate(lanes):
        lanes[lane] = (value ^ value >> 47 ^ keys[lane]) * _PRIME_32_1 & _MASK_64


def _merged(lanes: Sequence[int], start: int) -> int:
    value = start
    for lane in range(0, 8, 2):
        low, high = _PAIR.unpack_from(_SECRET, 11 + 8 * lane)
        value += _folded_product(lanes[lane] ^ low, lanes[lane + 1] ^ high)
    return _avalanche(value & _MASK_64)
