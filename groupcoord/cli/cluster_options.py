"""Options of commands that read from a running cluster, and show metrics of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from groupcoord.analysis.live.settings import ClusterAddress, cluster_address
from groupcoord.cli.messages import complain, say

if TYPE_CHECKING:
    from groupcoord.analysis.pipeline.metrics import GroupCollector

USAGE_ERROR = 2
LOOPBACK, PORT_MAX = "127.0.0.1", 65_535

BootstrapServer = Annotated[
    str,
    typer.Option("--bootstrap-server", metavar="HOST:PORT[,…]", help="Read this cluster instead of files."),
]
CommandConfig = Annotated[
    str | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Properties file of a Kafka client: connection, TLS, log-in.",
    ),
]
Topic = Annotated[
    str, typer.Option("--topic", metavar="NAME", help="Name of a copy of __consumer_offsets on the cluster.")
]

ExcludedGroups = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude-group",
        metavar="REGEX",
        help="Omit groups with a name that fully matches this Python regular expression; repeatable.",
    ),
]


def given_address(bootstrap_server: str, command_config: str | None) -> ClusterAddress | None:
    """Return where the cluster is that a command is to read; None: it is to read files."""
    if not bootstrap_server and command_config is None:
        return None
    return cluster_address(bootstrap_server, command_config)


@contextmanager
def served_metrics(
    command: str, cluster_name: Callable[[], str], address: str | None
) -> Iterator[GroupCollector | None]:
    """Give a collector of metrics, and serve it for as long as the context lasts.

    Args:
        command: the name of the command, for messages.
        cluster_name: returns the label for the cluster.
        address: PORT or HOST:PORT; None: give None.
    """
    if address is None:
        yield None
        return

    def give_up(message: object) -> NoReturn:
        complain(command, f"--metrics {address}: {message}")
        raise typer.Exit(USAGE_ERROR)

    try:
        from groupcoord.analysis.pipeline.metrics import GroupCollector, served
    except ModuleNotFoundError as error:
        give_up(f"{error.name} is not installed; try: pip install 'groupcoord[serve,local]'")
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        give_up("write it as PORT or HOST:PORT")
    collector = GroupCollector(cluster_name())
    with ExitStack() as stack:
        try:
            url = stack.enter_context(served(collector, host.strip("[]") or LOOPBACK, int(port)))
        except OSError as error:
            give_up(error.strerror or error)
        say(f"metrics are at {url}", is_error=True)
        yield collector
