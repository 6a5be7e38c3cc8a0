"""What can go wrong before Spark has anything to do."""

from __future__ import annotations

from groupcoord.errors import GroupcoordError


class PipelineError(GroupcoordError):
    """The pipeline can't do what it is asked for. The message is one line for the user."""


class JavaNotFoundError(PipelineError):
    """There is no Java that Spark runs on."""


class InputError(PipelineError, ValueError):
    """The input can't be read as logs: a path does not exist, may not be read or holds none, or an option is wrong."""
