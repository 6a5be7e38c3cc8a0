"""What an analysis is told to read, whether it is made once or kept up to date."""

from __future__ import annotations

import os
from collections.abc import Iterable

from attrs import field, frozen
from pyspark.sql import DataFrame, SparkSession

from groupcoord.columns.errors import InputError
from groupcoord.columns.files import FileSet, find_segments
from groupcoord.spark.schemas import END_OFFSETS


def _texts(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    return tuple(os.fspath(path) for path in paths)


@frozen
class LogInput:
    """Logs, and where the topics' partitions end.

    Attributes:
        paths: as :func:`groupcoord.spark.read_log` takes them.
        partitions: only these log partitions; all if empty.
        end_offsets: a CSV file with a header and the columns of :data:`groupcoord.spark.schemas.END_OFFSETS`, or None.
    """

    paths: tuple[str, ...] = field(converter=_texts)
    partitions: frozenset[int]
    end_offsets: str | None

    def check(self, *, may_be_empty: bool = False) -> None:
        """Make sure that all of it is there.

        Args:
            may_be_empty: logs may come later.

        Raises:
            InputError: something is not, or may not be read.
        """
        self.find_segments(may_be_empty=may_be_empty)
        path = self.end_offsets
        if path is not None and "://" not in path and not os.access(path, os.R_OK):
            raise InputError(f"{path}: there is no such file, or it may not be read")

    def find_segments(self, *, may_be_empty: bool = False) -> list[FileSet]:
        """Return the files there are now; see :func:`groupcoord.columns.files.find_segments`."""
        return find_segments(self.paths, partitions=self.partitions, may_be_empty=may_be_empty)

    def size_bytes(self) -> int:
        """Return how large the files are together."""
        return sum(segment.size_bytes for files in self.find_segments() for segment in files.segments)

    def read_end_offsets(self, spark: SparkSession) -> DataFrame | None:
        """Return :data:`groupcoord.spark.schemas.END_OFFSETS`, or None if they were not given."""
        if (path := self.end_offsets) is None:
            return None
        where = path if "://" in path else f"file://{os.path.abspath(path)}"
        return spark.read.schema(END_OFFSETS).option("mode", "FAILFAST").csv(where, header=True).persist()
