"""``groupcoord dump``: records of ``__consumer_offsets``, as JSON lines or a table, or the history of each group."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from groupcoord.analysis.columns.errors import PipelineError
from groupcoord.cli.cluster_options import BootstrapServer, CommandConfig, Topic, given_address
from groupcoord.cli.dump_files import PathError
from groupcoord.cli.dump_json import record_lines
from groupcoord.cli.dump_reading import OUTPUT_BYTES, Reading, open_reading
from groupcoord.cli.dump_selection import Selection, SelectionError, parse_kinds, parse_time, parse_types
from groupcoord.cli.dump_table import Row, pages, table_rows
from groupcoord.cli.messages import complain, escape_json
from groupcoord.cli.replica_logs import as_files
from groupcoord.core.interpreter import collector_paused
from groupcoord.core.records import OFFSETS_TOPIC
from groupcoord.core.topic_names import SHARE_STATE_TOPIC

DAMAGED, USAGE_ERROR = 1, 2


class Format(StrEnum):
    """How records are printed."""

    json = "json"
    table = "table"
    text = "text"


def dump(
    context: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="Segment files, folders of a log partition, data directories with __consumer_offsets-N inside, or the "
            "URL of a log that replicas share: postgresql://… or nats://…",
        ),
    ] = None,
    bootstrap_server: BootstrapServer = "",
    command_config: CommandConfig = None,
    topic: Topic = OFFSETS_TOPIC,
    output_format: Annotated[
        Format | None,
        typer.Option(
            "--format", help="JSON lines, a table, or text, which is for histories. By default histories are text."
        ),
    ] = None,
    group: Annotated[list[str] | None, typer.Option(help="Only records about this group; can be repeated.")] = None,
    record_type: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            help="Only this record type: Kafka's name or number, control or unknown; of a history only this kind of "
            "row: generation, member, rebalance, duplicate, epoch, membership, move, revocation, group; repeatable.",
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

    With --topic __share_group_state it is JSON lines of share groups' states; with --history, of share-partitions.
    With --bootstrap-server or --command-config they are read from a cluster that runs. Corrupt bytes are reported on
    stderr and skipped. Exit status: 0, 1 if anything could not be read or nothing is about a group that is named, 2 if
    there is nothing to read.
    """
    try:
        selection = Selection(
            frozenset(group or ()),
            (parse_kinds if history else parse_types)(record_type or ()),
            frozenset(partition or ()),
            parse_time("--since", since),
            parse_time("--until", until),
        )
        address = given_address(bootstrap_server, command_config)
        reading = open_reading([Path(path) for path in as_files(paths or [], context)], address, topic, selection)
    except (PathError, SelectionError, PipelineError) as error:
        _give_up(str(error))
    chosen = _format(output_format, topic, history=history)
    printed = _print(chosen, reading, selection, topic, raw=raw, history=history)
    _end(reading, selection, printed)


def _end(reading: Reading, selection: Selection, printed: int) -> None:
    """Exit with what went wrong."""
    if reading.is_damaged:
        raise typer.Exit(DAMAGED)
    if selection.group_ids and not printed:
        told = " or ".join(sorted(selection.group_ids))
        _give_up(f"nothing {'of what is asked for ' if selection.has_more else ''}is about group {told}", DAMAGED)


def _format(given: Format | None, topic: str, *, history: bool) -> Format:
    """Return the format of the output, by default text for histories and else JSON lines."""
    if topic == SHARE_STATE_TOPIC:
        if given not in (None, Format.json):
            _give_up(f"records of {SHARE_STATE_TOPIC} are printed as JSON lines only")
        return Format.json
    if given is Format.text and not history:
        _give_up("--format text goes with --history")
    return given or (Format.text if history else Format.json)


def _print(chosen: Format, reading: Reading, selection: Selection, topic: str, *, raw: bool, history: bool) -> int:
    """Print what is selected; return how many lines or rows there were."""
    rows, lines = (_history_rows, _history_lines) if history else (_record_rows, _record_lines)
    if topic == SHARE_STATE_TOPIC:
        lines = _share_partition_lines if history else _share_state_lines
    printed = 0

    def print_all() -> None:
        nonlocal printed
        if chosen is Format.table:
            printed = _print_table(rows(reading, selection))
        elif chosen is Format.text:
            printed = _print_lines(_story_lines(reading, selection))
        else:
            printed = _print_lines(lines(reading, selection, raw))

    reading.run(print_all)
    return printed


def _give_up(message: str, status: int = USAGE_ERROR) -> NoReturn:
    complain("dump", message)
    raise typer.Exit(status)


_Lines = Iterator[tuple[list[str], int]]
"""Lines that belong together, and how many bytes of a log they tell, about."""


def _record_lines(reading: Reading, selection: Selection, raw: bool) -> _Lines:
    for partition, sound in reading.batches():
        yield record_lines(partition, sound, selection, raw=raw), sound.batch.size_bytes


def _share_state_lines(reading: Reading, selection: Selection, raw: bool) -> _Lines:
    from groupcoord.cli.dump_share_state import ShareStateLines

    maker = ShareStateLines(selection)
    for partition, sound in reading.batches():
        yield maker.lines(partition, sound), sound.batch.size_bytes


def _share_partition_lines(reading: Reading, selection: Selection, raw: bool) -> _Lines:
    from groupcoord.cli.dump_share_state import share_partition_lines

    for partition, files in reading.files():
        lines = share_partition_lines(partition, files, selection)
        yield lines, sum(map(len, lines))


def _history_lines(reading: Reading, selection: Selection, raw: bool) -> _Lines:
    from groupcoord.cli.dump_history import histories, json_line

    for partition, files in reading.files():
        for row in histories(partition, files, selection):
            line = json_line(row, raw=raw)
            yield [line], len(line)


def _story_lines(reading: Reading, selection: Selection) -> _Lines:
    from groupcoord.cli.dump_history import histories, story_lines

    for partition, files in reading.files():
        for lines in story_lines(histories(partition, files, selection)):
            yield lines, sum(map(len, lines))


def _print_lines(made: _Lines) -> int:
    """Print lines; return how many there were."""
    output = sys.stdout.buffer
    waiting: list[str] = []
    size = count = 0
    with collector_paused():
        for lines, size_bytes in made:
            if lines:
                count += len(lines)
                waiting += lines
                size += size_bytes
                if size >= OUTPUT_BYTES:
                    output.write(("\n".join(map(escape_json, waiting)) + "\n").encode())
                    waiting.clear()
                    size = 0
    if waiting:
        output.write(("\n".join(map(escape_json, waiting)) + "\n").encode())
    output.flush()
    return count


def _record_rows(reading: Reading, selection: Selection) -> Iterator[Row]:
    for partition, sound in reading.batches():
        yield from table_rows(partition, sound, selection)


def _history_rows(reading: Reading, selection: Selection) -> Iterator[Row]:
    from groupcoord.cli.dump_history import histories, table_row

    for partition, files in reading.files():
        yield from map(table_row, histories(partition, files, selection))


def _print_table(rows: Iterable[Row]) -> int:
    """Print rows; return how many there were."""
    from groupcoord.cli.console import open_console

    count = 0

    def counted() -> Iterator[Row]:
        nonlocal count
        for row in rows:
            count += 1
            yield row

    console = open_console()
    for page in pages(counted(), console.width if console.is_terminal else None):
        console.print(page)
    return count
