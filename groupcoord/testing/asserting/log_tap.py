"""The lines that one server of a process writes to the log, kept for its report; they are written all the same."""

from __future__ import annotations

import logging
import threading
from collections import deque

LOGGER_NAME = "groupcoord.host"
KEPT_LINES = 20


class LogTap(logging.Filter):
    """Keeps the last warnings and errors that are written in one thread during a ``with`` block, and lets all pass."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._thread_id: int | None = None

    def __enter__(self) -> LogTap:
        self._thread_id = threading.get_ident()
        logging.getLogger(LOGGER_NAME).addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger(LOGGER_NAME).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep a line, and let it pass."""
        if record.thread == self._thread_id and record.levelno >= logging.WARNING:
            self._lines.append(f"{record.levelname.lower()}: {record.getMessage()}")
        return True

    def lines(self) -> list[str]:
        """Return what was kept."""
        return list(self._lines)
