"""How a producer that was fenced is told so: PRODUCER_FENCED is newer than the transaction APIs (KIP-588)."""

from groupcoord.errors import ErrorCode
from groupcoord.wire.header import RequestHeader
from groupcoord.wire.schema import Values
from groupcoord.wire.transaction_messages import EndTxnResponse, InitProducerIdResponse


def fenced(error_code: ErrorCode, version: int, since: int) -> ErrorCode:
    """Return the error code as a version can carry it; ``since`` is the first to know PRODUCER_FENCED."""
    if error_code == ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error_code


def answer_with_producer(
    response: EndTxnResponse | InitProducerIdResponse, header: RequestHeader, *, since: int
) -> Values:
    """Return the fields of an answer that names the producer; ``since`` is as in :func:`fenced`."""
    return {
        "throttle_time_ms": 0,
        "error_code": fenced(response.error_code, header.api_version, since=since),
        "producer_id": response.producer_id,
        "producer_epoch": response.producer_epoch,
    }
