"""What is kept of groups, in buckets by the hash of their ids, so that an update reads and writes what is new.

A bucket is one Parquet file, in order of its groups. An update writes the buckets anew in which a group has something
new, under names of their own, and whoever keeps account of updates says which file of each bucket counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
from attrs import field, frozen
from fsspec import AbstractFileSystem
from pyarrow.parquet import ParquetFile, ParquetWriter

from groupcoord.analysis.columns.results import whole_file
from groupcoord.analysis.columns.schema import Column
from groupcoord.analysis.columns.tables import arrow_schema

STATES = (
    Column("log_partition", pa.int32(), "where the group's records lie; -1 if that is not known"),
    Column("group_id", pa.string(), "the group"),
    Column("blob", pa.binary(), "what groupcoord.analysis.history.state makes of it"),
)
"""What is kept of each group."""

COUNT_MIN, COUNT_MAX = 16, 4_096
"""How many buckets there are at least, and at most."""

GROUPS_MAX = 256
"""With more groups than this in a bucket, on average, there are to be more buckets."""

GROWTH = 4
"""So many times as many there are then."""

_ROWS_MAX, _BYTES_MAX = 256, 4_194_304
_SCHEMA = arrow_schema(STATES)
_NAME = re.compile(r"(\d+)-of-(\d+)\.(\d+)\.parquet")


class Kept(NamedTuple):
    """What is kept of one group."""

    log_partition: int
    group_id: str
    blob: bytes

    @property
    def key(self) -> tuple[str, int]:
        """What the groups of a bucket are in order of; Spark orders text as Python does."""
        return self.group_id, self.log_partition


class BucketFile(NamedTuple):
    """What a bucket is.

    Attributes:
        update: the number of the update that wrote it.
        groups: how many groups are in it.
    """

    update: int
    groups: int


@frozen
class Buckets:
    """Where what is kept of all groups lies.

    Attributes:
        count: how many buckets there are, those without a group too; 0: that is not settled yet.
        files: by number of a bucket, what it is; without those that have no groups.
    """

    count: int = 0
    files: Mapping[int, BucketFile] = field(factory=dict)

    @property
    def wanted_count(self) -> int:
        """How many buckets there should be for these groups."""
        groups, count = sum(file.groups for file in self.files.values()), self.count
        while count < COUNT_MAX and groups > GROUPS_MAX * count:
            count = min(COUNT_MAX, count * GROWTH)
        return count

    def names(self) -> dict[int, str]:
        """Return the names of the files by the numbers of their buckets."""
        return {number: bucket_name(number, self.count, file.update) for number, file in sorted(self.files.items())}


def first_count(tasks: int) -> int:
    """Return with how many buckets to begin, a power of two: enough for so many tasks of about the same size."""
    count = COUNT_MIN
    while count < min(COUNT_MAX, GROWTH * tasks):
        count *= 2
    return count


def bucket_name(number: int, count: int, update: int) -> str:
    """Return the name of the file of a bucket, as an update writes it where there are so many."""
    return f"{number:05d}-of-{count:05d}.{update}.parquet"


def outdated(names: Iterable[str], buckets: Buckets, update: int, kept_updates: int) -> Iterator[str]:
    """Yield the names of files that nobody needs after an update, nor did in some updates before it.

    Args:
        names: of all files that there are.
        buckets: that count.
        update: its number.
        kept_updates: for so long files stay that were replaced, for those who still read them.
    """
    counting = set(buckets.names().values())
    written: dict[tuple[int, int], list[int]] = {}
    for name in names:
        found = _NAME.fullmatch(name)
        if found is None or int(found[3]) > update:
            yield name  # of a task or an update that was not completed
        else:
            written.setdefault((int(found[2]), int(found[1])), []).append(int(found[3]))
    of_now = [min(updates) for (count, _), updates in written.items() if count == buckets.count]
    for (count, number), updates in written.items():
        updates.sort()
        # Where there are more buckets now, they came with the oldest file of them that there is, or earlier.
        replaced = [*updates[1:], update if count == buckets.count else min(of_now, default=update)]
        for one, replaced_by in zip(updates, replaced, strict=True):
            name = bucket_name(number, count, one)
            if name not in counting and replaced_by <= update - kept_updates:
                yield name


def bucket_of(group_id: str, count: int) -> int:
    """Return the number of a group's bucket, where there are so many."""
    return crc32(group_id.encode("utf-8")) % count


@frozen
class BucketFolder:
    """Where the files lie. Workers get it pickled.

    Attributes:
        file_system: workers have to reach it.
        path: of the folder.
    """

    file_system: AbstractFileSystem
    path: str

    def read(self, name: str | None) -> Iterator[Kept]:
        """Yield the groups of a bucket in order; none if it has no file."""
        if name is None:
            return
        with self.file_system.open(f"{self.path}/{name}", "rb") as file:
            for batch in ParquetFile(file).iter_batches(_ROWS_MAX, columns=_SCHEMA.names):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    yield Kept(*row)

    @contextmanager
    def writing(self, name: str, attempt: int = 0) -> Iterator[BucketWriter]:
        """Give what writes a bucket. The file gets its name when it is whole, whichever attempt at it that was."""
        with whole_file(self.file_system, f"{self.path}/{name}", attempt) as file:
            writer = BucketWriter(ParquetWriter(file, _SCHEMA, compression="none", use_dictionary=False))
            try:
                yield writer
            finally:
                writer.close()


class BucketWriter:
    """Writes a bucket; it holds some groups at a time.

    Attributes:
        groups: how many it was given.
    """

    def __init__(self, writer: ParquetWriter) -> None:
        self._writer = writer
        self._waiting: list[Kept] = []
        self._waiting_bytes = 0
        self.groups = 0

    def add(self, kept: Kept) -> None:
        """Take the group that comes next in order."""
        self._waiting.append(kept)
        self._waiting_bytes += len(kept.blob)
        self.groups += 1
        if len(self._waiting) >= _ROWS_MAX or self._waiting_bytes >= _BYTES_MAX:
            self._flush()

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            columns = [list(column) for column in zip(*self._waiting, strict=True)]
            arrays = [pa.array(column, kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)]
            self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
        self._waiting, self._waiting_bytes = [], 0
