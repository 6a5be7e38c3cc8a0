"""The options by which commands are told of a cluster that runs."""

from __future__ import annotations

from typing import Annotated

import typer

from groupcoord.analysis.live.settings import ClusterAddress, cluster_address

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server", metavar="HOST:PORT[,…]", help="Read from the cluster that runs there, instead of files."
    ),
]
CommandConfig = Annotated[
    str | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="How to reach the cluster and log in: a file of properties, as Kafka's own commands take it.",
    ),
]
Topic = Annotated[
    str, typer.Option("--topic", metavar="NAME", help="Of the cluster: a copy of __consumer_offsets by another name.")
]


def given_address(bootstrap_server: str, command_config: str | None) -> ClusterAddress | None:
    """Return where the cluster is that a command is to read; None: it is to read files."""
    if not bootstrap_server and command_config is None:
        return None
    return cluster_address(bootstrap_server, command_config)
