"""Where a share group begins that has not read a partition yet: ``share.auto.offset.reset``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from groupcoord.broker.records.list_offsets import find_time
from groupcoord.broker.work import do_whole

if TYPE_CHECKING:
    from groupcoord.storage.partition_log import PartitionLog

_DURATION = re.compile(
    r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?", re.IGNORECASE
)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000)


def duration_ms(policy: str) -> int | None:
    """Return how long ago ``by_duration:PnDTnHnMn.nS`` begins, in milliseconds; None if it is no such policy."""
    found = _DURATION.fullmatch(policy)
    if found is None:
        return None
    *whole, fraction = found.groups()
    parts_ms = (int(text or 0) * unit_ms for text, unit_ms in zip(whole, _UNITS_MS, strict=True))
    return sum(parts_ms) + int((fraction or "").ljust(9, "0")) // 1_000_000


def start_offset_of(policy: str, log: PartitionLog, now_ms: int) -> int:
    """Return where a group begins now.

    Args:
        policy: ``earliest``, ``latest`` or ``by_duration:…``, in small or large letters.
        log: what there is.
        now_ms: the time.

    Raises:
        TopicLogError: what is there can't be read.
    """
    ago_ms = duration_ms(policy)
    if ago_ms is not None:
        found = do_whole(find_time(log, now_ms - ago_ms))
        return log.end_offset if found is None else found.offset
    return log.start_offset if policy.lower() == "earliest" else log.end_offset
