"""Options of several commands, declared once, and those of ``groupcoord`` itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import groupcoord

if TYPE_CHECKING:
    from groupcoord.analysis.live.settings import ClusterAddress
    from groupcoord.analysis.pipeline.metrics import GroupCollector

ENGINE_URLS = "postgresql://USER@HOST/DATABASE or nats://HOST,HOST,HOST"
"""Forms of the URL of a log that several processes share."""

LOOPBACK, PORT_MAX = "127.0.0.1", 65_535


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"groupcoord {groupcoord.__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Kafka's group coordinator as a library: a small broker, a demonstration, and checks against real Kafka."""


BootstrapServer = Annotated[
    str,
    typer.Option("--bootstrap-server", "--bootstrap", metavar="HOST:PORT[,…]", help="Use this running cluster."),
]
CommandConfig = Annotated[
    str | None,
    typer.Option(
        "--command-config", metavar="FILE", help="Properties file of a Kafka client: connection, TLS, log-in."
    ),
]
Topic = Annotated[
    str, typer.Option("--topic", metavar="NAME", help="Name of a copy of __consumer_offsets on the cluster.")
]
Partitions = Annotated[list[int] | None, typer.Option("--partition", help="Only this log partition; repeatable.")]
Groups = Annotated[list[str] | None, typer.Option("--group", metavar="NAME", help="Only this group; repeatable.")]
ExcludedGroups = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude-group",
        metavar="REGEX",
        help="Omit groups with a name that fully matches this Python regular expression; repeatable.",
    ),
]
Interval = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time from one update to the next.")]
Metrics = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Serve /metrics for Prometheus while it runs; on 127.0.0.1 by default, port 0 takes a free one.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A server setting under Kafka's key; repeatable."),
]
Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="REGEX", help="Only those with a matching name; repeatable.")
]
ListOnly = Annotated[bool, typer.Option("--list", help="List what would run, and exit.")]
Jobs = Annotated[int, typer.Option(min=1, help="Number that run at the same time.")]
CpuSeconds = Annotated[float, typer.Option("--cpu", min=0.1, metavar="SECONDS", help="CPU limit of each search.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
HtmlFile = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the result as one HTML page.")]
JunitFile = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write the result as JUnit XML.")]


def given_address(
    bootstrap_server: str, command_config: str | None, paths: Collection[str] | None
) -> ClusterAddress | None:
    """Return the address of the cluster to read, or None if paths are given instead."""
    from groupcoord.analysis.live.settings import cluster_address
    from groupcoord.cli.messages import CommandError

    is_cluster = bool(bootstrap_server) or command_config is not None
    if is_cluster == bool(paths):
        raise CommandError("give either paths or a cluster, by --bootstrap-server or --command-config")
    return cluster_address(bootstrap_server, command_config) if is_cluster else None


def metrics_address(text: str) -> tuple[str, int]:
    from groupcoord.cli.messages import CommandError

    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        raise CommandError(f"--metrics {text}: write it as PORT or HOST:PORT")
    return host.strip("[]") or LOOPBACK, int(port)


@contextmanager
def served_metrics(cluster_name: Callable[[], str], address: str | None) -> Iterator[GroupCollector | None]:
    """Serve /metrics at PORT or HOST:PORT within the context; yield its collector, or None without an address."""
    from groupcoord.cli.messages import command_errors, say

    if address is None:
        yield None
        return
    from groupcoord.analysis.pipeline.metrics import GroupCollector, served

    place = metrics_address(address)
    collector = GroupCollector(cluster_name())
    with ExitStack() as stack:
        with command_errors(OSError, prefix=f"--metrics {address}: "):
            url = stack.enter_context(served(collector, *place))
        say(f"metrics are at {url}", is_error=True)
        yield collector
