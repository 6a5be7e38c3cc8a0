"""``groupcoord lag``: lag of the groups of a running cluster in the terminal, the worst first, or as metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import frozen

from groupcoord.analysis.report.text import clipped, escape, format_number
from groupcoord.cli.interrupts import FAILED
from groupcoord.cli.messages import CommandError, command_errors, say
from groupcoord.cli.options import (
    AsJson,
    BootstrapServer,
    CommandConfig,
    ExcludedGroups,
    Groups,
    Interval,
    Metrics,
    served_metrics,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from groupcoord.analysis.fold.history.rows import Row
    from groupcoord.analysis.live.settings import ClusterAddress
    from groupcoord.analysis.live.snapshots import Snapshot
    from groupcoord.analysis.options import Selection
    from groupcoord.analysis.poll.lag import GroupLag
    from groupcoord.cli.interrupts import StopRequest


@frozen
class _Shown:
    group_ids: tuple[str, ...]
    by_partition: bool
    min_lag: int
    as_json: bool


@frozen
class _Look:
    snapshot: Snapshot
    lags: list[Row]
    groups: list[GroupLag]
    problems: list[str]
    unknown: list[str]


def lag(
    bootstrap_server: BootstrapServer = "",
    command_config: CommandConfig = None,
    groups: Groups = None,
    exclude_group: ExcludedGroups = None,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="Print a row per partition instead of per group.")
    ] = False,
    min_lag: Annotated[
        int,
        typer.Option("--min-lag", min=0, metavar="RECORDS", help="Only groups or partitions with at least this lag."),
    ] = 0,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C.")] = False,
    interval: Interval = 5.0,
    metrics: Metrics = None,
    as_json: AsJson = False,
) -> None:
    """Show the lag of the groups of a cluster, in records and in time, and their problems.

    It requests groups, and the next record of each lagging partition, which needs READ on its topic. It writes nothing.
    Exit status: 0, 1 if the cluster does not respond or a group does not exist, 2 if the command cannot be carried out.
    """
    from groupcoord.analysis.errors import InputError, PipelineError
    from groupcoord.analysis.live.cluster import cluster_id_of
    from groupcoord.analysis.live.settings import cluster_address
    from groupcoord.analysis.options import Selection
    from groupcoord.cli.console import open_console
    from groupcoord.cli.interrupts import AtTheFirstSignal, StopRequest

    with command_errors(PipelineError, status=FAILED), command_errors(InputError):
        if not bootstrap_server and command_config is None:
            raise CommandError("name a cluster, by --bootstrap-server or --command-config")
        address = cluster_address(bootstrap_server, command_config)
        shown = _Shown(tuple(groups or ()), partitions or bool(groups), min_lag, as_json)
        selection = Selection(excluded_groups=exclude_group or ())
        console = open_console()
        if not watch and metrics is None:
            for look in _looks(address, shown.group_ids, selection, None, interval):
                _print(console, look, shown)
                if look.unknown:
                    raise CommandError(_no_such_group(look.unknown), FAILED)
            return
        stop = StopRequest()
        with served_metrics(lambda: cluster_id_of(address), metrics) as collector, AtTheFirstSignal(stop.ask):
            for look in _looks(address, shown.group_ids, selection, stop, interval):
                if collector is not None:
                    from groupcoord.analysis.pipeline.tables import Figures
                    from groupcoord.analysis.poll.rows import group_rows

                    collector.show(Figures(look.snapshot.at_ms, lag=look.lags, groups=list(group_rows(look.snapshot))))
                if not watch:
                    continue
                if not as_json:
                    console.clear()
                    console.print(f"{datetime.now():%H:%M:%S}", style="dim")
                _print(console, look, shown)
                if look.unknown:
                    say(escape(_no_such_group(look.unknown)), is_error=True)


def _looks(
    address: ClusterAddress,
    group_ids: tuple[str, ...],
    selection: Selection,
    stop: StopRequest | None,
    interval_s: float,
) -> Iterator[_Look]:
    from groupcoord.analysis.live.cluster import Patience, connection
    from groupcoord.analysis.live.offsets import BACKOFF_MS, WAIT_MS, next_record_ms
    from groupcoord.analysis.live.snapshots import take_snapshot
    from groupcoord.analysis.poll.lag import LagWatch, group_lags, problems_of, unknown_groups, worst_first
    from groupcoord.analysis.poll.rows import topics_of
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
            snapshot = take_snapshot(cluster, patience, SystemClock().now_ms, topics_of, group_ids, selection)
            lags = worst_first(watch.take(snapshot, group_ids))
            groups = group_lags(snapshot, lags, group_ids)
            problems, unknown = list(problems_of(snapshot, group_ids)), unknown_groups(snapshot, group_ids)
            yield _Look(snapshot, lags, groups, problems, unknown)
            if stop is None or stop.is_there(interval_s):
                return


def _no_such_group(names: list[str]) -> str:
    return f"there is no group {names[0]}" if len(names) == 1 else f"there are no groups {', '.join(names)}"


def _print(console: Console, look: _Look, shown: _Shown) -> None:
    from groupcoord.analysis.poll.lag import LAG_COLUMNS

    lags = [row for row in look.lags if (row["lag"] or 0) >= shown.min_lag]
    groups = [one for one in look.groups if (one.lag or 0) >= shown.min_lag]
    if shown.as_json:
        for row in lags:
            print(json.dumps({name: row[name] for name in LAG_COLUMNS}), flush=True)
    elif shown.by_partition:
        if lags:
            console.print(_partition_table(lags))
        for group in groups:
            if not group.partitions:
                state = group.state or "state unknown"
                console.print(f"group {escape(clipped(group.group_id))}: {state}, no partition, nothing committed")
    elif groups:
        console.print(_group_table(groups))
    if not shown.as_json and not look.unknown and not (lags if shown.by_partition else groups):
        console.print(f"no group is {shown.min_lag:,} records behind" if look.groups else "there are no groups")
    for problem in look.problems:
        say(f"unknown: {escape(problem)}", is_error=True)


def _group_table(groups: list[GroupLag]) -> RenderableType:
    from rich.text import Text

    from groupcoord.cli.console import NAME_LENGTH_MAX, table

    numbers = ("members", "partitions", "lag", "time behind")
    shown = table(("status", "group", "state"), numbers, ["what is wrong"])
    for one in groups:
        cells = (
            clipped(one.group_id, NAME_LENGTH_MAX),
            one.state or "",
            format_number(one.members),
            format_number(one.partitions),
            format_number(one.lag),
            _age(one.lag_ms),
            clipped(one.wrong),
        )
        shown.add_row(_status(one.status), *map(Text, cells))
    return shown


def _partition_table(lags: list[Row]) -> RenderableType:
    from rich.text import Text

    from groupcoord.cli.console import NAME_LENGTH_MAX, table

    numbers = ("lag", "time behind", "committed", "end")
    shown = table(("status", "group", "state", "partition"), numbers, ["owner"])
    for row in lags:
        owner = "" if row["client_id"] is None else f"{row['client_id']} {(row['client_host'] or '').lstrip('/')}"
        cells = (
            clipped(row["group_id"], NAME_LENGTH_MAX),
            row["state"] or "",
            f"{clipped(row['topic'], NAME_LENGTH_MAX)}-{row['topic_partition']}",
            format_number(row["lag"]),
            _age(row["lag_ms"]),
            format_number(row["committed_offset"]),
            format_number(row["end_offset"]),
            clipped(owner, NAME_LENGTH_MAX),
        )
        shown.add_row(_status(row["status"]), *map(Text, cells))
    return shown


def _status(label: str) -> Text:
    from rich.text import Text

    from groupcoord.analysis.rules.statuses import LagStatus

    styles = {LagStatus.ERR: "bold red", LagStatus.WARN: "yellow"}
    return Text(label, style=styles.get(LagStatus.of(label).of_group, ""))


def _age(lag_ms: int | None) -> str:
    from groupcoord.analysis.report.text import format_duration

    return "-" if lag_ms is None else format_duration(lag_ms)
