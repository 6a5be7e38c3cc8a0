"""``groupcoord dump``: every record of segment files, log directories or data directories, as JSON lines or a table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from groupcoord.cli.dump_files import PathError, Segment, find_segments, read_segment, unread_files
from groupcoord.cli.dump_json import JsonLines
from groupcoord.cli.dump_selection import Selection, SelectionError, parse_time, parse_types
from groupcoord.cli.dump_table import Row, TableRows, pages
from groupcoord.coordinator import collector_paused
from groupcoord.records.salvage import Damage, SoundBatch

DAMAGED, USAGE_ERROR = 1, 2
OUTPUT_BYTES = 262_144
PROGRESS_BYTES_MIN = 16_777_216
PIPE_WIDTH_MIN = 160


class Format(StrEnum):
    """How records are printed."""

    json = "json"
    table = "table"


def dump(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="Segment files, folders of a log partition, or data directories with __consumer_offsets-N inside.",
        ),
    ],
    output_format: Annotated[Format, typer.Option("--format", help="JSON lines, or a table to read.")] = Format.json,
    group: Annotated[list[str] | None, typer.Option(help="Only records about this group; can be repeated.")] = None,
    record_type: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help="Only this record type: Kafka's name or number, control or unknown; can be repeated."
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this time on: ISO 8601 (UTC) or milliseconds since 1970.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before this time.")] = None,
    partition: Annotated[list[int] | None, typer.Option(help="Only this log partition; can be repeated.")] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Leave subscriptions and assignments in base 64, exactly as Kafka's formatter prints them."
        ),
    ] = False,
) -> None:
    """Print every record of __consumer_offsets logs, those of a real broker as well.

    Corrupt bytes are reported on stderr and skipped. Exit status: 0, 1 if anything could not be read, 2 if there is
    nothing to read.
    """
    try:
        selection = Selection(
            frozenset(group or ()),
            parse_types(record_type or ()),
            frozenset(partition or ()),
            parse_time("--since", since),
            parse_time("--until", until),
        )
        segments = [segment for segment in find_segments(paths) if selection.has_partition(segment.partition)]
    except (PathError, SelectionError) as error:
        _give_up(str(error))
    if not segments:
        _give_up("none of the paths holds the log partitions asked for")
    reading = _Reading(segments)
    try:
        with _progress(sum(segment.size_bytes for segment in segments)) as (advance, report):
            reading.advance, reading.report = advance, report
            for path in unread_files(segments):
                report(f"{path}: not read; compaction was interrupted when it wrote this")
            if output_format is Format.table:
                _print_table(reading, selection)
            else:
                with collector_paused():
                    _print_json(reading, JsonLines(selection, raw=raw))
    except BrokenPipeError:
        # Whoever read this wants no more of it; the interpreter must not try to flush on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if reading.is_damaged:
        raise typer.Exit(DAMAGED)


def _give_up(message: str) -> NoReturn:
    typer.echo(f"groupcoord dump: {message}", err=True)
    raise typer.Exit(USAGE_ERROR)


class _Reading:
    """The batches of all segments. What can't be read is reported and remembered."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self.advance: Callable[[int], None] = lambda size_bytes: None
        self.report: Callable[[str], None] = lambda message: None
        self.is_damaged = False

    def batches(self) -> Iterator[tuple[int | None, SoundBatch]]:
        """Yield each sound batch with its log partition."""
        for segment in self._segments:
            try:
                yield from self._batches_of(segment)
            except BrokenPipeError:
                raise
            except OSError as error:
                self._tell(f"{segment.path}: {error.strerror or error}")

    def _batches_of(self, segment: Segment) -> Iterator[tuple[int | None, SoundBatch]]:
        position, next_offset = 0, -1
        for found in read_segment(segment):
            if isinstance(found, Damage):
                self._tell(f"{segment.path}: {damage_text(found)}")
                continue
            batch = found.batch
            if batch.base_offset < next_offset:
                self._tell(
                    f"{segment.path}: offsets go back at position {batch.position}: "
                    f"{batch.base_offset} after {next_offset - 1}"
                )
            next_offset = batch.next_offset
            yield segment.partition, found
            end = batch.position + batch.size_bytes
            if end - position >= OUTPUT_BYTES:
                self.advance(end - position)
                position = end
        self.advance(segment.size_bytes - position)

    def _tell(self, message: str) -> None:
        self.is_damaged = True
        self.report(message)


def damage_text(damage: Damage) -> str:
    """Return one line about bytes that were skipped."""
    end = damage.position + damage.size_bytes
    text = f"{damage.reason}; skipped {damage.size_bytes} bytes, positions {damage.position} to {end - 1}"
    first, behind = damage.first_offset, damage.end_offset
    if first is not None and behind is not None and first < behind:
        return f"{text}, offsets {first} to {behind - 1}"
    if behind is None:
        return f"{text}, to the end" + ("" if first is None else f", offsets from {first} on")
    return f"{text}, offsets before {behind}" if first is None else text


def _print_json(reading: _Reading, lines: JsonLines) -> None:
    output = sys.stdout.buffer
    waiting: list[str] = []
    size = 0
    for partition, sound in reading.batches():
        made = lines.lines(partition, sound)
        if made:
            waiting += made
            size += sound.batch.size_bytes
            if size >= OUTPUT_BYTES:
                output.write(("\n".join(waiting) + "\n").encode())
                waiting.clear()
                size = 0
    if waiting:
        output.write(("\n".join(waiting) + "\n").encode())
    output.flush()


def _print_table(reading: _Reading, selection: Selection) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    width = console.width if console.is_terminal else max(console.width, PIPE_WIDTH_MIN)
    console = Console(highlight=False, markup=False, width=width)
    maker = TableRows(selection)

    def rows() -> Iterator[Row]:
        for partition, sound in reading.batches():
            yield from maker.rows(partition, sound)

    for page in pages(rows(), width):
        console.print(page)


@contextmanager
def _progress(size_bytes: int) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """Give two functions: one takes how many bytes were read, one a line for stderr.

    The bar is for long work, on a terminal that the records don't go to.
    """
    if size_bytes < PROGRESS_BYTES_MIN or not sys.stderr.isatty() or sys.stdout.isatty():
        yield (lambda size: None), (lambda message: typer.echo(f"groupcoord dump: {message}", err=True))
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

    from groupcoord.cli.progress import progress_bar

    with progress_bar(TextColumn("dump"), BarColumn(), DownloadColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("dump", total=size_bytes)
        yield (
            lambda size: bar.advance(task, size),
            lambda message: bar.console.print(f"groupcoord dump: {message}", soft_wrap=True),
        )
