"""XXH3 with 64 bits, default secret and no seed: the hash by which Kafka detects changed topics of a group.

Source: the specification of xxHash.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

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
    """Return the hash as an unsigned number.

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
