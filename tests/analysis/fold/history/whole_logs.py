"""The histories that folders of log partitions hold, read batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from groupcoord.analysis.fold.history import HistoryRow, LogHistory
from groupcoord.records.salvage import SoundBatch, salvage_batches


def rows_of_logs(folder: Path, session_timeout_ms: int | None = None) -> Iterator[HistoryRow]:
    """Yield the rows of every group of every log partition in a folder."""
    for partition in sorted(folder.glob("__consumer_offsets-*")):
        found = LogHistory(int(partition.name.rpartition("-")[2]), session_timeout_ms=session_timeout_ms)
        for path in sorted(partition.glob("*.log")):
            found.begin_file()
            data = path.read_bytes()
            for one in salvage_batches(lambda start, size, data=data: data[start : start + size], len(data)):
                if isinstance(one, SoundBatch):
                    found.add(one)
        yield from found.rows()
