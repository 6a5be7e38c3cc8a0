"""What can go wrong before a log is read, and how errors of others are told."""

from __future__ import annotations

from groupcoord.errors import GroupcoordError


class PipelineError(GroupcoordError):
    """The pipeline can't do what it is asked for. The message is one line for the user."""


class InputError(PipelineError, ValueError):
    """The input can't be read as logs: a path does not exist, may not be read or holds none, or an option is wrong."""


class RunFailedError(PipelineError):
    """What was asked for was right, and could not be done all the same. The message is one line for the user."""


def first_line(error: Exception) -> str:
    """Return the line of an exception that says what is wrong: of Java's the innermost cause, else the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Py4J's own line before that of a Java exception says only which call it came from.
    of_java = [line.partition(": ")[2] for line in lines if line.startswith((": ", "Caused by: "))]
    return (of_java[-1:] or lines or [type(error).__name__])[0]
