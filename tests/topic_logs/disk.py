"""A data directory with the logs of one topic, which is closed, or killed, and opened again."""

from __future__ import annotations

from pathlib import Path

from groupcoord.storage.data_directory import DataDirectory
from groupcoord.storage.log.file_log import SegmentLog
from groupcoord.storage.topic_logs import TopicLogs
from tests.topic_logs.batches import NOW_MS, TOPIC

MEMORY_BYTES = 16 * 1024 * 1024


class Disk:
    """The logs below a folder, of a process that can be ended in either way."""

    def __init__(self, path: Path, *, memory_bytes: int = MEMORY_BYTES, descriptors_max: int = 8) -> None:
        self.path = path
        self.now_ms = NOW_MS
        self.lines: list[str] = []
        self._memory_bytes = memory_bytes
        self._descriptors_max = descriptors_max
        self._open()

    def _open(self) -> None:
        self.directory = DataDirectory(self.path, descriptors_max=self._descriptors_max)
        self.logs = TopicLogs(
            self._memory_bytes,
            self.directory,
            now_ms=lambda: self.now_ms,
            report=lambda kind, line: self.lines.append(line),
        )
        self.logs.open_found([TOPIC])

    def log(self, partition_index: int = 0) -> SegmentLog:
        log = self.logs.log(TOPIC, partition_index)
        assert isinstance(log, SegmentLog)
        return log

    def folder(self, partition_index: int = 0) -> Path:
        return self.path / f"{TOPIC.name}-{partition_index}"

    def restart(self) -> None:
        """Close everything, and open it again."""
        self.logs.close()
        self._open()

    def kill(self) -> None:
        """Kill the process, and open its files."""
        self.directory.files.close_all()
        self._open()
