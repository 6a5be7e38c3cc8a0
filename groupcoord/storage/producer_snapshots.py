"""Producer snapshots: the producer state of a log at an offset, in Kafka's format (``docs/records.md``).

Kafka writes one entry for each producer, with its last batch. Here a producer has one entry for each batch that may be
repeated, the last one last. Kafka keeps the last entry of a producer, so it reads what it would have written. Source:
``ProducerStateManager.readSnapshot`` of Apache Kafka 4.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from struct import error as StructError  # noqa: N812

from crc32c import crc32c

from groupcoord.config.files import read_file
from groupcoord.storage.producer_states import ProducerEntry
from groupcoord.storage.whole_files import replace_file

VERSION = 1
_HEADER, _COUNT = Struct(">hI"), Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_NAME = re.compile(r"([0-9]{20})\.snapshot")


class BadSnapshotError(ValueError):
    """A file is not a producer snapshot of a known version."""


def snapshot_path(folder: Path, offset: int) -> Path:
    """Return the path of the snapshot at an offset."""
    return folder / f"{offset:020d}.snapshot"


def list_snapshots(names: Iterable[str]) -> list[int]:
    """Return the offsets of the snapshots among file names, in order."""
    return sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)


def write_snapshot(folder: Path, offset: int, entries: Iterable[ProducerEntry]) -> None:
    """Write the producer state at an offset.

    Raises:
        OSError: it can't be written.
    """
    packed = [_ENTRY.pack(*entry) for entry in entries]
    covered = _COUNT.pack(len(packed)) + b"".join(packed)
    replace_file(snapshot_path(folder, offset), _HEADER.pack(VERSION, crc32c(covered)) + covered, is_durable=False)


def read_snapshot(folder: Path, offset: int) -> Iterator[ProducerEntry]:
    """Yield the entries of a snapshot.

    Raises:
        BadSnapshotError: it is incomplete.
        OSError: it can't be read.
    """
    data = read_file(snapshot_path(folder, offset))
    try:
        version, crc = _HEADER.unpack_from(data)
        covered = data[_HEADER.size :]
        (count,) = _COUNT.unpack_from(covered)
        if version != VERSION or crc != crc32c(covered) or len(covered) != _COUNT.size + count * _ENTRY.size:
            raise BadSnapshotError(f"version {version}, {len(data)} bytes")
        return (ProducerEntry(*entry) for entry in _ENTRY.iter_unpack(covered[_COUNT.size :]))
    except StructError as error:
        raise BadSnapshotError(str(error)) from None
