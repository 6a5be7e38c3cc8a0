"""The least that Kafka's schemas are made of: lengths, and ids of topics."""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID

from groupcoord.core.log.records import ZERO_UUID

STRING_BYTES_MAX = 32_767


class MalformedError(ValueError):
    """Bytes or values that no schema allows."""


def unsigned_varint(value: int) -> bytes:
    """Return ``value`` in base 128, lowest seven bits first, the top bit set on all bytes but the last."""
    if 0 <= value <= 0x7F:  # nearly always
        return _SHORT_VARINTS[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_SHORT_VARINTS = tuple(bytes((value,)) for value in range(0x80))


@lru_cache(1_024)
def topic_id_of(topic_id: bytes) -> UUID:
    """Return a topic's id from its bytes; always the same object for the one that stands for none."""
    made = UUID(bytes=topic_id)
    return ZERO_UUID if made == ZERO_UUID else made
