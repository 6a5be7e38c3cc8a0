"""How the rules of a group say no."""

from __future__ import annotations

from groupcoord.errors import ErrorCode


class RefusedError(Exception):
    """A request can't be granted. Nothing of it has any effect.

    Args:
        error_code: for the client.
        message: for whoever reads the client's log; None where Kafka sends none.
    """

    def __init__(self, error_code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or error_code.name)
        self.error_code = error_code
        self.message = message
