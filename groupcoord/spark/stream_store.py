"""What a stream has written so far: tables in parts, one for each update, and a manifest that says which parts count.

An update writes its parts into folders of its own and then its manifest, at one stroke. Until that is there, nothing of
the update counts, and what a crash left of it is written over when Spark repeats the update. So the tables hold every
update once. Small parts are put together as their number grows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve, field, frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from groupcoord.columns.errors import PipelineError
from groupcoord.spark.output import OutputDirectory, write_counted

CHECKPOINT = "checkpoint"
"""The folder for what is needed to go on."""

KEPT_UPDATES = 4
"""For so long parts of inner tables stay that nothing refers to any more, for those who still read them."""

PARTS_MAX = 16
"""So many parts of about the same size are put together."""

_MANIFESTS = f"{CHECKPOINT}/manifests"
_SMALL_ROWS = 10_000
_FORMAT = 1


@frozen
class Part:
    """What some updates added to a table.

    Attributes:
        first: the number of the first update.
        last: that of the last one.
        rows: how many rows they added.
    """

    first: int
    last: int
    rows: int

    @property
    def folder(self) -> str:
        """Its name in the table's folder, from which Spark makes a column ``updates``."""
        return f"updates={self.first}..{self.last}"

    @property
    def size_class(self) -> int:
        """How large it is: parts of one class are put together to one of the next."""
        rows, size_class = self.rows // _SMALL_ROWS, 0
        while rows:
            rows, size_class = rows // PARTS_MAX, size_class + 1
        return size_class


@frozen
class Manifest:
    """What there is after an update.

    Attributes:
        update: its number; -1 before the first.
        tables: by name, the parts of each table in order.
        complete: by log partition, its next offset and the one from which on no record is missing.
    """

    update: int = -1
    tables: Mapping[str, tuple[Part, ...]] = field(factory=dict)
    complete: Mapping[int, tuple[int, int]] = field(factory=dict)

    def to_json(self) -> str:
        """Return it as text."""
        tables = {
            name: [[part.first, part.last, part.rows] for part in parts] for name, parts in sorted(self.tables.items())
        }
        complete = [[partition, *known] for partition, known in sorted(self.complete.items())]
        return json.dumps({"format": _FORMAT, "update": self.update, "tables": tables, "complete": complete}) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Return what :meth:`to_json` was called on.

        Raises:
            PipelineError: the text is of another form.
        """
        found: dict[str, Any] = json.loads(text)
        if found["format"] != _FORMAT:
            raise PipelineError(
                f"the checkpoint is in form {found['format']}, and this version of groupcoord knows form {_FORMAT}: "
                "follow with the version that wrote it, or into an empty directory"
            )
        tables = {name: tuple(Part(*part) for part in parts) for name, parts in found["tables"].items()}
        complete = {partition: (end, start) for partition, end, start in found["complete"]}
        return cls(found["update"], tables, complete)


class StreamStore:
    """The parts of the tables of one stream.

    Args:
        output: where they lie.
        schemas: of the tables, by name.
        inner: the tables that are for going on alone; they lie below the checkpoint.
    """

    def __init__(self, output: OutputDirectory, schemas: Mapping[str, StructType], inner: frozenset[str]) -> None:
        self._output = output
        self._schemas = schemas
        self._inner = inner

    def latest(self) -> Manifest:
        """Return what there is now."""
        numbers = self._manifests()
        return self._manifest(max(numbers)) if numbers else Manifest()

    def before(self, update: int) -> Manifest:
        """Return what there was before an update, and remove all that came after.

        Raises:
            PipelineError: it is not there any more.
        """
        numbers = self._manifests()
        if update and update - 1 not in numbers:
            raise PipelineError(f"{self._output.name}/{CHECKPOINT} is not complete: update {update - 1} is missing")
        for number in numbers:
            if number != update - 1:
                self._output.remove(_manifest_name(number))
        found = self._manifest(update - 1) if update else Manifest()
        self._sweep(found)
        return found

    def write(self, name: str, rows: DataFrame, update: int) -> Part:
        """Write what an update adds to a table."""
        return self._write(name, rows, update, update)

    def read(self, spark: SparkSession, name: str, parts: tuple[Part, ...]) -> DataFrame:
        """Return the rows of some parts of a table."""
        schema = self._schemas[name]
        if not parts:
            return spark.createDataFrame([], schema)
        paths = [self._output.reading_path(f"{self._folder(name)}/{part.folder}") for part in parts]
        return spark.read.schema(schema).parquet(*paths).select(*schema.fieldNames())

    def commit(self, manifest: Manifest) -> None:
        """Let what an update wrote count."""
        self._output.replace_text(_manifest_name(manifest.update), manifest.to_json())

    def merged(
        self, spark: SparkSession, manifest: Manifest, name: str, merge: Callable[[DataFrame], DataFrame]
    ) -> Manifest:
        """Put small parts of a table together if there are too many, and return what there is then."""
        parts = manifest.tables.get(name, ())
        count = 0
        while count < len(parts) and parts[-count - 1].size_class <= parts[-1].size_class:
            count += 1
        if count < PARTS_MAX:
            return manifest
        old = parts[-count:]
        new = self._write(name, merge(self.read(spark, name, old)), old[0].first, old[-1].last)
        manifest = evolve(manifest, tables={**manifest.tables, name: (*parts[:-count], new)})
        self.commit(manifest)
        self._sweep(manifest)
        return manifest

    def _write(self, name: str, rows: DataFrame, first: int, last: int) -> Part:
        part = Part(first, last, 0)
        path = self._output.path(f"{self._folder(name)}/{part.folder}")
        return evolve(part, rows=write_counted(rows.select(*self._schemas[name].fieldNames()), path, mode="overwrite"))

    def _manifests(self) -> list[int]:
        names = self._output.names(_MANIFESTS)
        return [int(name.removesuffix(".json")) for name in names if name.removesuffix(".json").isdecimal()]

    def _manifest(self, number: int) -> Manifest:
        return Manifest.from_json(self._output.read_text(_manifest_name(number)))

    def _folder(self, name: str) -> str:
        return f"{CHECKPOINT if name in self._inner else 'tables'}/{name}"

    def _sweep(self, manifest: Manifest) -> None:
        """Remove parts that don't count."""
        for name in self._schemas:
            counting = {part.folder for part in manifest.tables.get(name, ())}
            kept = range(manifest.update - KEPT_UPDATES, manifest.update) if name in self._inner else range(0)
            for folder in self._output.names(self._folder(name)):
                if folder not in counting and int(folder.rpartition(".")[2]) not in kept:
                    self._output.remove(f"{self._folder(name)}/{folder}")


def _manifest_name(number: int) -> str:
    return f"{_MANIFESTS}/{number}.json"
