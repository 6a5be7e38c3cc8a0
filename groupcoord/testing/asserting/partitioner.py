"""Which partition a record with a key goes to: the one that the Java producer chooses, and most others.

Source: ``BuiltInPartitioner.partitionForKey`` of Apache Kafka 4.4, over MurmurHash2 of 32 bits as Austin Appleby
published it, with Kafka's seed.
"""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
ROTATION = 24
MASK = 0xFFFF_FFFF
POSITIVE = 0x7FFF_FFFF


def murmur2(data: bytes) -> int:
    """Return the hash of bytes, as a number without sign."""
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


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition for a key."""
    return (murmur2(key) & POSITIVE) % partition_count
