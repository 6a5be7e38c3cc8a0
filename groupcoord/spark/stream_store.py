"""What a stream has written so far: tables in parts, one for each update, and a manifest that says which parts count.

An update writes its parts into folders of its own and then its manifest, at one stroke. Until that is there, nothing of
the update counts, and what a crash left of it is written over when Spark repeats the update. So the tables hold every
update once. Small parts are put together as their number grows. What is kept of groups lies in buckets
(:mod:`groupcoord.analysis.folding.buckets`), and the manifest says which files of them count, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from attrs import evolve, field, frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from groupcoord.analysis.columns.errors import PipelineError
from groupcoord.analysis.folding.buckets import BucketFile, BucketFolder, Buckets, outdated
from groupcoord.analysis.history.state import BLOB_VERSION
from groupcoord.spark.group_schemas import HISTORY
from groupcoord.spark.output import OutputDirectory, write_counted
from groupcoord.spark.schemas import COMMITS
from groupcoord.spark.state_buckets import STATES

CHECKPOINT = "checkpoint"
"""The folder for what is needed to go on."""

KEPT_FORM = f"{BLOB_VERSION}.{crc32((HISTORY.simpleString() + COMMITS.simpleString()).encode())}"
"""Stands for the form of all that is made of records as they come: blobs, and the columns of tables."""

KEPT_UPDATES = 4
"""For so long parts of inner tables stay that nothing refers to any more, for those who still read them."""

PARTS_MAX = 16
"""So many parts of about the same size are put together."""

_MANIFESTS = f"{CHECKPOINT}/manifests"
_BUCKETS = f"{CHECKPOINT}/buckets"
_FORMER = (f"{CHECKPOINT}/states",)
"""Folders in which earlier versions kept something."""

_SMALL_ROWS = 10_000
_FORMAT, _FORMAT_WITHOUT_BUCKETS = 2, 1


@frozen
class Part:
    """What some updates added to a table.

    Attributes:
        first: the number of the first update; below 0, if what these updates added was made anew.
        last: that of the last one.
        rows: how many rows they added.
    """

    first: int
    last: int
    rows: int = 0

    @property
    def folder(self) -> str:
        """Its name in the table's folder, from which Spark makes a column ``updates``."""
        return f"updates={self.first}..{self.last}"

    @classmethod
    def in_place_of(cls, parts: tuple[Part, ...], last: int) -> Part:
        """Return one for all updates, in a folder of its own: those of the others count until it is complete."""
        return cls(min((part.first for part in parts), default=0) - 1, last)

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
        buckets: what is kept of groups; None: that is in a form that this version does not know.
    """

    update: int = -1
    tables: Mapping[str, tuple[Part, ...]] = field(factory=dict)
    complete: Mapping[int, tuple[int, int]] = field(factory=dict)
    buckets: Buckets | None = field(factory=Buckets)

    def to_json(self) -> str:
        """Return it as text."""
        tables = {
            name: [[part.first, part.last, part.rows] for part in parts] for name, parts in sorted(self.tables.items())
        }
        found: dict[str, Any] = {"format": _FORMAT, "update": self.update, "tables": tables}
        found["complete"] = [[partition, *known] for partition, known in sorted(self.complete.items())]
        if self.buckets is not None:
            files = [[number, *file] for number, file in sorted(self.buckets.files.items())]
            found["buckets"] = {"form": KEPT_FORM, "count": self.buckets.count, "files": files}
        return json.dumps(found) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Return what :meth:`to_json` was called on, with any version that knew this form or one before it.

        Raises:
            PipelineError: the text is of a later form.
        """
        found: dict[str, Any] = json.loads(text)
        if found["format"] not in (_FORMAT, _FORMAT_WITHOUT_BUCKETS):
            raise PipelineError(
                f"the checkpoint is in form {found['format']}, and this version of groupcoord knows forms up to "
                f"{_FORMAT}: follow with a version as new as the one that wrote it"
            )
        tables = {name: tuple(Part(*part) for part in parts) for name, parts in found["tables"].items()}
        complete = {partition: (end, start) for partition, end, start in found["complete"]}
        kept = found.get("buckets")
        buckets = None
        if kept is not None and kept["form"] == KEPT_FORM:
            buckets = Buckets(kept["count"], {number: BucketFile(*file) for number, *file in kept["files"]})
        return cls(found["update"], tables, complete, buckets)


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

    def write(self, name: str, rows: DataFrame, part: Part) -> Part:
        """Write a part of a table, and return it with its rows."""
        path = self._output.path(self.place(name, part))
        return evolve(part, rows=write_counted(rows.select(*self._schemas[name].fieldNames()), path, mode="overwrite"))

    def read(self, spark: SparkSession, name: str, parts: tuple[Part, ...]) -> DataFrame:
        """Return the rows of some parts of a table."""
        schema = self._schemas[name]
        if not parts:
            return spark.createDataFrame([], schema)
        paths = [self._output.reading_path(self.place(name, part)) for part in parts]
        return spark.read.schema(schema).parquet(*paths).select(*schema.fieldNames())

    def commit(self, manifest: Manifest) -> None:
        """Let what an update wrote count."""
        self._output.replace_text(_manifest_name(manifest.update), manifest.to_json())

    def replace(self, manifest: Manifest) -> Manifest:
        """Let what was made of the same updates anew count in the place of what is there, and return it."""
        self.commit(manifest)
        self._sweep(manifest)
        return manifest

    @property
    def bucket_folder(self) -> BucketFolder:
        """Where workers find what is kept of groups."""
        return BucketFolder(*self._output.place(_BUCKETS))

    def read_states(self, spark: SparkSession, buckets: Buckets) -> DataFrame:
        """Return what is kept of all groups (:data:`groupcoord.spark.state_buckets.STATES`)."""
        if not buckets.files:
            return spark.createDataFrame([], STATES)
        paths = [self._output.reading_path(f"{_BUCKETS}/{name}") for name in buckets.names().values()]
        return spark.read.schema(STATES).parquet(*paths)

    def cleared_place(self, name: str, part: Part) -> str:
        """Return where workers write a part of a table themselves; what a crash left there goes."""
        folder = self.place(name, part)
        if self._output.has(folder):
            self._output.remove(folder)
        return self._output.place(folder)[1]

    def merged(self, spark: SparkSession, manifest: Manifest, name: str) -> Manifest:
        """Put small parts of a table together if there are too many, and return what there is then."""
        parts = manifest.tables.get(name, ())
        count = 0
        while count < len(parts) and parts[-count - 1].size_class <= parts[-1].size_class:
            count += 1
        if count < PARTS_MAX:
            return manifest
        old = parts[-count:]
        new = self.write(name, self.read(spark, name, old), Part(old[0].first, old[-1].last))
        return self.replace(evolve(manifest, tables={**manifest.tables, name: (*parts[:-count], new)}))

    def _manifests(self) -> list[int]:
        names = self._output.names(_MANIFESTS)
        return [int(name.removesuffix(".json")) for name in names if name.removesuffix(".json").isdecimal()]

    def _manifest(self, number: int) -> Manifest:
        return Manifest.from_json(self._output.read_text(_manifest_name(number)))

    def place(self, name: str, part: Part) -> str:
        """Return in which folder of the directory a part of a table lies."""
        return f"{self._folder(name)}/{part.folder}"

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
        if manifest.buckets is not None:
            names = self._output.names(_BUCKETS)
            for name in list(outdated(names, manifest.buckets, manifest.update, KEPT_UPDATES)):
                self._output.remove(f"{_BUCKETS}/{name}")
            for folder in _FORMER:
                if self._output.has(folder):
                    self._output.remove(folder)


def _manifest_name(number: int) -> str:
    return f"{_MANIFESTS}/{number}.json"
