"""``groupcoord lag``: how far the groups of a cluster are behind, as a table in the terminal, the worst first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from attrs import asdict

from groupcoord.analysis.report.text import clipped, escape
from groupcoord.cli.cluster_options import BootstrapServer, CommandConfig, given_address
from groupcoord.cli.messages import complain, say

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from groupcoord.analysis.live.settings import ClusterAddress
    from groupcoord.analysis.polling.lag import PartitionLag
    from groupcoord.cli.interrupts import StopRequest

FAILED = 1
USAGE_ERROR = 2
_BAD = {"LOST": "bold red", "STOP": "bold red", "STALL": "red", "NO OWNER": "red", "REWIND": "yellow", "WARN": "yellow"}

Groups = Annotated[list[str] | None, typer.Option("--group", metavar="NAME", help="Only this group; can be repeated.")]
Watch = Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")]
Interval = Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="With --watch: how long between two looks.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print an object a line for each partition.")]


def lag(
    bootstrap_server: BootstrapServer = "",
    command_config: CommandConfig = None,
    groups: Groups = None,
    watch: Watch = False,
    interval: Interval = 5.0,
    as_json: AsJson = False,
) -> None:
    """Show how far the groups of a cluster are behind, in records and in time, and who has which partition.

    It asks for groups and for the next record of each partition that is behind, which needs READ on its topic, and
    writes nothing. Exit status: 0, 1 if the cluster doesn't answer, 2 if the command can't be carried out.
    """
    from groupcoord.cli.console import open_console
    from groupcoord.cli.interrupts import AtTheFirstSignal, StopRequest

    with _errors_in_words():
        address = given_address(bootstrap_server, command_config)
        if address is None:
            _give_up("name a cluster, by --bootstrap-server or --command-config")
        console = open_console()
        if not watch:
            for lags, problems in _looks(address, groups or [], None, interval):
                _print(console, lags, problems, as_json=as_json)
            return
        stop = StopRequest()
        with AtTheFirstSignal(stop.ask):
            for lags, problems in _looks(address, groups or [], stop, interval):
                if not as_json:
                    console.clear()
                    console.print(f"{datetime.now():%H:%M:%S}", style="dim")
                _print(console, lags, problems, as_json=as_json)


def _looks(
    address: ClusterAddress, group_ids: list[str], stop: StopRequest | None, interval_s: float
) -> Iterator[tuple[list[PartitionLag], list[str]]]:
    """Yield what each look shows, and what it doesn't tell: one look, or until somebody asks to stop."""
    from groupcoord.analysis.live.connection import connection
    from groupcoord.analysis.live.record_times import BACKOFF_MS, WAIT_MS, next_record_ms
    from groupcoord.analysis.live.retries import Patience
    from groupcoord.analysis.live.snapshots import take_snapshot
    from groupcoord.analysis.polling.lag import LagWatch, problems_of
    from groupcoord.analysis.polling.views import topics_of
    from groupcoord.clock import SystemClock
    from groupcoord.core.consumer_protocol import TopicPartition

    with connection(address, begins_run=True) as (cluster, patience):
        for_records = Patience(WAIT_MS, BACKOFF_MS)
        watch = LagWatch(
            lambda row: next_record_ms(
                cluster,
                for_records,
                TopicPartition(row["topic"], row["topic_partition"]),
                row["committed_offset"],
                row["end_offset"],
            )
        )
        while True:
            snapshot = take_snapshot(cluster, patience, SystemClock().now_ms, topics_of)
            yield watch.take(snapshot, group_ids), list(problems_of(snapshot, group_ids))
            if stop is None or stop.is_there(interval_s):
                return


@contextmanager
def _errors_in_words() -> Iterator[None]:
    """Tell what goes wrong in one line, and exit."""
    from groupcoord.analysis.columns.errors import InputError, PipelineError

    try:
        yield
    except InputError as error:
        _give_up(str(error))
    except PipelineError as error:
        _give_up(str(error), FAILED)


def _give_up(message: str, status: int = USAGE_ERROR) -> NoReturn:
    complain("lag", message)
    raise typer.Exit(status)


def _print(console: Console, lags: list[PartitionLag], problems: list[str], *, as_json: bool) -> None:
    if as_json:
        for one in lags:
            print(json.dumps(asdict(one)), flush=True)
    else:
        console.print(_table(lags) if lags else "no group has committed anything")
    for problem in problems:
        say(f"not told: {escape(problem)}", is_error=True)


def _table(lags: list[PartitionLag]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    from groupcoord.analysis.report.durations import format_duration
    from groupcoord.cli.console import NAME_LENGTH_MAX

    table = Table()
    for title in ("status", "group", "state", "partition"):
        table.add_column(title, overflow="fold")
    for title in ("lag", "time behind", "committed", "end"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("owner", overflow="fold")
    for one in lags:
        owner = "" if one.client_id is None else f"{one.client_id} {(one.client_host or '').lstrip('/')}"
        cells = (
            clipped(one.group_id, NAME_LENGTH_MAX),
            one.state or "",
            f"{clipped(one.topic, NAME_LENGTH_MAX)}-{one.topic_partition}",
            _number(one.lag),
            "" if one.lag_ms is None else format_duration(one.lag_ms),
            _number(one.committed_offset),
            _number(one.end_offset),
            clipped(owner, NAME_LENGTH_MAX),
        )
        table.add_row(Text(one.status, style=_BAD.get(one.status, "")), *map(Text, cells))
    return table


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
