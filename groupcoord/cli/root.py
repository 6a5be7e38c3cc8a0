"""``groupcoord`` itself: the options that belong to no subcommand."""

from __future__ import annotations

from typing import Annotated

import typer

import groupcoord


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
