"""``groupcoord dump``: every record of segment files, log directories or data directories, as JSON lines or a table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from groupcoord.cli.dump_files import PathError, Segment, find_segments, read_segment, unread_files
from groupcoord.cli.dump_json import JsonLines
from groupcoord.cli.dump_selection import Selection, SelectionError, parse_kinds, parse_time, parse_types
from groupcoord.cli.dump_table import Row, TableRows, pages
from groupcoord.interpreter import collector_paused
from groupcoord.records.salvage import Damage, SoundBatch

DAMAGED, USAGE_ERROR = 1, 2
OUTPUT_BYTES = 262_144
PROGRESS_BYTES_MIN = 16_777_216


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
            "--type",
            help="Only this record type: Kafka's name or number, control or unknown; of a history only this kind of "
            "row: generation, member, rebalance, duplicate, epoch, membership, move, revocation or group; can be "
            "repeated.",
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
    history: Annotated[
        bool,
        typer.Option(
            "--history", help="What happened to each group: generations, members, and rebalances with their causes."
        ),
    ] = False,
) -> None:
    """Print every record of __consumer_offsets logs, those of a real broker as well, or what they tell of groups.

    Corrupt bytes are reported on stderr and skipped. Exit status: 0, 1 if anything could not be read, 2 if there is
    nothing to read.
    """
    try:
        selection = Selection(
            frozenset(group or ()),
            (parse_kinds if history else parse_types)(record_type or ()),
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
    rows, lines = (_history_rows, _history_lines) if history else (_record_rows, _record_lines)
    if output_format is Format.table:
        reading.run(lambda: _print_table(rows(reading, selection)))
    else:
        reading.run(lambda: _print_json(lines(reading, selection, raw)))
    if reading.is_damaged:
        raise typer.Exit(DAMAGED)


def _give_up(message: str) -> NoReturn:
    typer.echo(f"groupcoord dump: {message}", err=True)
    raise typer.Exit(USAGE_ERROR)


class _Reading:
    """The batches of all segments. What can't be read is reported and remembered."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._advance: Callable[[int], None] = lambda size_bytes: None
        self._report: Callable[[str], None] = lambda message: None
        self.is_damaged = False

    def run(self, show: Callable[[], None]) -> None:
        """Call ``show``, which takes what this yields, and tell meanwhile how far it is and what was left out.

        Raises:
            Exit: the user interrupted it.
        """
        try:
            with _progress(sum(segment.size_bytes for segment in self._segments)) as (self._advance, self._report):
                for path in unread_files(self._segments):
                    self._report(f"{path}: not read; compaction was interrupted when it wrote this")
                show()
        except BrokenPipeError:
            # Whoever read this wants no more of it; the interpreter must not try to flush on its way out.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def batches(self) -> Iterator[tuple[int | None, SoundBatch]]:
        """Yield each sound batch with its log partition."""
        for segment in self._segments:
            for sound in self._batches_of(segment):
                yield segment.partition, sound

    def files(self) -> Iterator[tuple[int | None, Iterator[Iterator[SoundBatch]]]]:
        """Yield each log partition with the batches of its files, one file after the other."""
        partitions: dict[int | None, list[Segment]] = {}
        for segment in self._segments:
            partitions.setdefault(segment.partition, []).append(segment)
        for partition, segments in partitions.items():
            yield partition, map(self._batches_of, segments)

    def _batches_of(self, segment: Segment) -> Iterator[SoundBatch]:
        try:
            yield from self._read(segment)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._tell(f"{segment.path}: {error.strerror or error}")

    def _read(self, segment: Segment) -> Iterator[SoundBatch]:
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
            yield found
            end = batch.position + batch.size_bytes
            if end - position >= OUTPUT_BYTES:
                self._advance(end - position)
                position = end
        self._advance(segment.size_bytes - position)

    def _tell(self, message: str) -> None:
        self.is_damaged = True
        self._report(message)


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


_Lines = Iterator[tuple[list[str], int]]
"""Lines that belong together, and how many bytes of a log they tell, about."""


def _record_lines(reading: _Reading, selection: Selection, raw: bool) -> _Lines:
    maker = JsonLines(selection, raw=raw)
    for partition, sound in reading.batches():
        yield maker.lines(partition, sound), sound.batch.size_bytes


def _history_lines(reading: _Reading, selection: Selection, raw: bool) -> _Lines:
    from groupcoord.cli.dump_history import histories, json_line

    for partition, files in reading.files():
        for row in histories(partition, files, selection):
            line = json_line(row, raw=raw)
            yield [line], len(line)


def _print_json(made: _Lines) -> None:
    output = sys.stdout.buffer
    waiting: list[str] = []
    size = 0
    with collector_paused():
        for lines, size_bytes in made:
            if lines:
                waiting += lines
                size += size_bytes
                if size >= OUTPUT_BYTES:
                    output.write(("\n".join(waiting) + "\n").encode())
                    waiting.clear()
                    size = 0
    if waiting:
        output.write(("\n".join(waiting) + "\n").encode())
    output.flush()


def _record_rows(reading: _Reading, selection: Selection) -> Iterator[Row]:
    maker = TableRows(selection)
    for partition, sound in reading.batches():
        yield from maker.rows(partition, sound)


def _history_rows(reading: _Reading, selection: Selection) -> Iterator[Row]:
    from groupcoord.cli.dump_history import histories, table_row

    for partition, files in reading.files():
        yield from map(table_row, histories(partition, files, selection))


def _print_table(rows: Iterable[Row]) -> None:
    from groupcoord.cli.console import open_console

    console = open_console()
    for page in pages(rows, console.width if console.is_terminal else None):
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
