"""What Kafka's answers inherit from Java: the hash of a string and the order in which a small ``HashMap`` is walked."""

from __future__ import annotations

from collections.abc import Iterable


def string_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: ``31 * h + unit`` over UTF-16 code units, as a signed 32-bit number.

    >>> string_hash("my-group")
    -1906497762
    """
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        encoded = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(encoded[::2], encoded[1::2], strict=True):
            value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def string_sort_key(text: str) -> bytes:
    """Return the key under which text sorts as Java's ``String.compareTo`` has it: by UTF-16 code units.

    >>> sorted(["\\ufb00", "\\U0001f600"], key=string_sort_key) == ["\\U0001f600", "\\ufb00"]
    True
    """
    return text.encode("utf-16-be", "surrogatepass")


def partition_for(group_id: str, partition_count: int) -> int:
    """Return the partition of ``__consumer_offsets`` that holds a group.

    The absolute value of the hash, with Kafka's rule that of -2^31 it is 0, modulo the number of partitions.

    >>> partition_for("my-group", 50)
    12
    """
    value = string_hash(group_id)
    return 0 if value == -(2**31) else abs(value) % partition_count


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """Return distinct ``keys`` in the order in which a Java ``HashMap`` that got them in this order is walked.

    Kafka breaks a tie of the protocol vote this way. The table has 16 buckets and doubles when it is three quarters
    full; inside a bucket the order of insertion stays.
    """
    distinct = list(dict.fromkeys(keys))
    buckets = 16
    while len(distinct) > buckets * 3 // 4:
        buckets *= 2

    return sorted(distinct, key=lambda key: hash_bucket(string_hash(key), buckets))


def hash_bucket(hash_code: int, buckets: int) -> int:
    """Return the bucket of a ``HashMap`` with this many, a power of two, in which a key with this hash lies."""
    value = hash_code & 0xFFFFFFFF
    return (value ^ value >> 16) & (buckets - 1)
