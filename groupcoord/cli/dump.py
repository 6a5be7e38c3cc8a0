"""``groupcoord dump``: records of ``__consumer_offsets``, as JSON lines or a table, or the history of each group."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupcoord.analysis.errors import PipelineError
from groupcoord.analysis.report.text import escape
from groupcoord.cli import dump_records
from groupcoord.cli.dump_records import (
    CONTROL,
    EPOCH,
    DumpInput,
    Filters,
    Parts,
    Row,
    encode_json,
    open_cluster,
    open_files,
    progress_of,
    selected_records,
    selected_share_states,
)
from groupcoord.cli.interrupts import FAILED
from groupcoord.cli.messages import CommandError, command_errors, escape_json, escape_lines
from groupcoord.cli.options import ENGINE_URLS, BootstrapServer, CommandConfig, Groups, Partitions, Topic, given_address
from groupcoord.cli.replica_logs import as_files
from groupcoord.core.fast_construct import collector_paused
from groupcoord.core.log.records import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from groupcoord.records.describe import SHARE_SNAPSHOT, SHARE_UPDATE, UNKNOWN
from groupcoord.records.schemas import RecordType

if TYPE_CHECKING:
    from rich.table import Table

PAGE_ROWS = 200
TYPE_NAMES = (*(record_type.name for record_type in RecordType), SHARE_SNAPSHOT, SHARE_UPDATE, CONTROL, UNKNOWN)


class Format(StrEnum):
    """Output format."""

    json = "json"
    table = "table"
    text = "text"


def dump(
    context: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="Segment files, folders of a log partition, or data directories with __consumer_offsets-N inside; "
            f"or the URL of a log that replicas share: {ENGINE_URLS}.",
        ),
    ] = None,
    bootstrap_server: BootstrapServer = "",
    command_config: CommandConfig = None,
    topic: Topic = OFFSETS_TOPIC,
    output_format: Annotated[
        Format | None,
        typer.Option("--format", help="JSON lines, a table, or (for --history, its default) text."),
    ] = None,
    group: Groups = None,
    record_type: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            help="Only this record type: Kafka's name or number, control or unknown. With --history only "
            "this kind of row: generation, member, rebalance, duplicate, epoch, membership, move, "
            "revocation, group. Repeatable.",
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start time: ISO 8601 (UTC) or milliseconds since 1970.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="End time, exclusive.")] = None,
    partition: Partitions = None,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Keep subscriptions and assignments as base 64, as Kafka's formatter prints them."),
    ] = False,
    history: Annotated[
        bool,
        typer.Option(
            "--history", help="Print the history of each group: generations, members, and rebalances with their causes."
        ),
    ] = False,
) -> None:
    """Print every record of __consumer_offsets logs, or with --history the history of groups.

    With --topic __share_group_state it prints JSON lines of share group states or, with --history, of share-partitions.
    With --bootstrap-server or --command-config it reads a running cluster. Corrupt bytes are reported on stderr and
    skipped. Exit status: 0, 1 if something could not be read or a named group has no record, 2 if there is nothing to
    read.
    """
    with command_errors(PipelineError):
        types = _parse_kinds(record_type or ()) if history else frozenset(map(_parse_type, record_type or ()))
        times = _parse_time("--since", since), _parse_time("--until", until)
        filters = Filters(frozenset(group or ()), types, frozenset(partition or ()), *times)
        address = given_address(bootstrap_server, command_config, paths)
        if address is not None:
            source = open_cluster(address, topic, filters.partitions)
        else:
            files = map(Path, as_files(paths or (), context))
            source = open_files(files, topic, filters.partitions, by_partition=history)
    chosen = _format(output_format, topic, history=history)

    def made(parts: Parts) -> Iterator[Any]:
        return _made(chosen, parts, filters, topic, raw=raw, history=history)

    count = _print(source, made, _print_table if chosen is Format.table else _print_lines)
    if filters.group_ids and not count:
        asked = "" if filters == Filters(filters.group_ids) else " with these filters"
        raise CommandError(f"no record of group {' or '.join(sorted(filters.group_ids))}{asked}", FAILED)


def _print(source: DumpInput, made: Callable[[Parts], Iterator[Any]], print_all: Callable[[Iterator[Any]], int]) -> int:
    with progress_of(source.size_bytes) as progress:
        try:
            for note in source.notes:
                progress.show(note)
            count = print_all(made(source.read(progress)))
        except BrokenPipeError:
            # The interpreter must not try to flush at its exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(FAILED if progress.is_damaged else 0) from None
    if progress.is_damaged:
        raise typer.Exit(FAILED)
    return count


def _format(given: Format | None, topic: str, *, history: bool) -> Format:
    if topic == SHARE_STATE_TOPIC:
        if given not in (None, Format.json):
            raise CommandError(f"records of {SHARE_STATE_TOPIC} are printed as JSON lines only")
        return Format.json
    if given is Format.text and not history:
        raise CommandError("--format text needs --history")
    return given or (Format.text if history else Format.json)


def _made(chosen: Format, parts: Parts, filters: Filters, topic: str, *, raw: bool, history: bool) -> Iterator[Any]:
    if not history:
        if topic == SHARE_STATE_TOPIC:
            return map(encode_json, selected_share_states(parts, filters))
        records = selected_records(parts, filters, raw=raw and chosen is Format.json)
        if chosen is Format.table:
            return starmap(dump_records.table_row, records)
        return (encode_json(record) for _, record in records)
    from groupcoord.cli import dump_history

    if topic == SHARE_STATE_TOPIC:
        return map(encode_json, dump_history.share_partitions(parts, filters))
    rows = dump_history.histories(parts, filters)
    if chosen is Format.json:
        return (encode_json(dump_history.described(row, raw=raw)) for row in rows)
    return map(dump_history.table_row, rows) if chosen is Format.table else dump_history.story_lines(rows)


def _print_lines(lines: Iterable[str]) -> int:
    output = sys.stdout.buffer
    count = 0
    with collector_paused():
        for line in lines:
            output.write(f"{escape_json(line)}\n".encode())
            count += 1
    output.flush()
    return count


def _print_table(rows: Iterable[Row]) -> int:
    from groupcoord.cli.console import open_console

    console = open_console()
    count = 0
    for page in pages(rows, console.width if console.is_terminal else None):
        count += page.row_count
        console.print(page)
    return count


def pages(rows: Iterable[Row], width: int | None) -> Iterator[Table]:
    """Yield tables of at most ``PAGE_ROWS`` rows, so that memory is bounded; without a ``width`` long lines are
    unfolded.
    """
    rows = iter(rows)
    is_first = True
    while (page := list(islice(rows, PAGE_ROWS))) or is_first:
        yield _page(page, width, is_first)
        is_first = False


def _page(rows: list[Row], width: int | None, is_first: bool) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, width=width, show_header=is_first, pad_edge=False)
    unfolded: dict[str, Any] = {"no_wrap": True}
    folded: dict[str, Any] = {"overflow": "fold"}
    for title, chars in {"P": 3, "Offset": 9, "Time (UTC)": 23, "Type": 15}.items():
        layout = {"min_width": chars, **unfolded} if width is None else {"width": chars, **folded}
        table.add_column(title, justify="right" if chars < 10 else "left", **layout)
    for title, least, ratio in (("Group", 12, 1), ("Content", None, 3)):
        layout = {"min_width": least, **unfolded} if width is None else {"ratio": ratio, **folded}
        table.add_column(title, **layout)
    for row in rows:
        *fields, content = row
        table.add_row(*(Text(escape(field)) for field in fields), Text(escape_lines(content)))
    return table


def _parse_type(word: str) -> str:
    """Return the name of a record type given by number, or by Kafka's name in any case, with ``-`` or ``_``."""
    name = word.strip().upper().replace("-", "_")
    if name.isdecimal() and int(name) in {int(record_type) for record_type in RecordType}:
        return RecordType(int(name)).name
    if name not in TYPE_NAMES:
        known = ", ".join(other.lower().replace("_", "-") for other in TYPE_NAMES)
        raise CommandError(f"--type {word!r} is no record type; there are {known}, or their numbers")
    return name


def _parse_kinds(words: Iterable[str]) -> frozenset[str]:
    from groupcoord.analysis.fold.history import KINDS

    kinds = frozenset(word.strip().lower() for word in words)
    for kind in sorted(kinds.difference(KINDS)):
        raise CommandError(f"--type {kind!r} is no kind of row of a history; there are {', '.join(KINDS)}")
    return kinds


def _parse_time(option: str, word: str | None) -> int | None:
    """Return a time in milliseconds since 1970, from that number or from ISO 8601 (UTC by default)."""
    if word is None:
        return None
    if word.removeprefix("-").isdecimal():
        return int(word)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise CommandError(
            f"{option} {word!r} is no time; write 2026-01-31, 2026-01-31T12:00:00Z or milliseconds since 1970"
        ) from None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(milliseconds=1)
