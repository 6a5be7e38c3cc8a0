"""The log of a real broker, which tests of several rooms read."""

from __future__ import annotations

import tarfile
from pathlib import Path

BROKER_LOG = Path(__file__).with_name("broker_log.tar.xz")
"""Six of the eight log partitions of an Apache Kafka 4.4.0 broker under real clients, and what they committed."""


def unpack_broker_log(folder: Path) -> Path:
    """Put the log partitions, and ``truth.json``, into a folder; return it."""
    with tarfile.open(BROKER_LOG) as packed:
        packed.extractall(folder, filter="data")
    return folder
