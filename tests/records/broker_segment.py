"""A segment that real brokers wrote: Kafka 4.0.0, killed, then 4.4.0 on the same directory, with librdkafka as client.

Two members of the group ``modern``, one of them static, and one of the group ``regex`` come, are lost when 4.0 is
killed, expire under 4.4, and come and leave again; only the static member is to return. The group ``moves`` begins with
a classic member, becomes a consumer group when another kind of member joins it, and is classic again when that one
leaves; then the first one leaves as well.
"""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

from groupcoord.records.batches import iter_batches


@cache
def segment_bytes() -> bytes:
    return lzma.decompress((Path(__file__).parent / "consumer_groups.log.xz").read_bytes())


@cache
def segment_records() -> tuple[tuple[int, bytes, bytes | None], ...]:
    """Return log offset, key and value of each of its records."""
    records = (record for batch in iter_batches(segment_bytes()) for record in batch.records())
    return tuple((log_offset, key or b"", value) for log_offset, _, key, value in records)
