"""A server of which a topic holds the log that a real broker wrote, gaps of compaction and all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from groupcoord.testing import ServerThread

from ..analysis.fold.history.broker_log import unpack_broker_log

TOPIC = "recorded"
PARTITIONS = (1, 2, 3, 4, 6, 7)
"""Log partitions that hold records; the topic has eight."""

SETTINGS = {"log.retention.ms": "-1"}  # what was recorded is old


@contextmanager
def recorded_server(folder: Path) -> Iterator[ServerThread]:
    """Give the server as long as the context lasts; ``folder/topic/recorded-N`` are the segments that it serves."""
    log = unpack_broker_log(folder)
    topics = {TOPIC: 8}
    with ServerThread(topics=topics, settings=SETTINGS, data_dir=folder / "topic"):
        pass
    for partition in PARTITIONS:
        shutil.copytree(log / f"__consumer_offsets-{partition}", folder / "topic" / f"{TOPIC}-{partition}")
    with ServerThread(topics=topics, settings=SETTINGS, data_dir=folder / "topic") as server:
        yield server
