"""How a producer that was fenced is told so: PRODUCER_FENCED is newer than the transaction APIs (KIP-588)."""

from groupcoord.errors import ErrorCode


def fenced(error_code: ErrorCode, version: int, since: int) -> ErrorCode:
    """Return the error code as a version can carry it; ``since`` is the first to know PRODUCER_FENCED."""
    if error_code == ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error_code
