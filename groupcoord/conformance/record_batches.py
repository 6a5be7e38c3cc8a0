"""Records in transcripts: what is produced and what a fetch returns, as values.

A request may say ``{"batches": [{"values": ["a", "b"]}]}`` where records are wanted: the bytes are made when it is
sent, since their time is that of the server's clock. In an answer to ShareFetch records are a list of batches, each
with its first and last offset and its values, or with the end of a transaction; in one to Fetch, that or bytes.
"""

from __future__ import annotations

import struct
from typing import Any

from groupcoord.conformance.entities import Plain
from groupcoord.errors import ErrorCode

_CONTROL_TYPE = struct.Struct(">hh")


def with_bytes(body: Plain, now_ms: int) -> Plain:
    """Return a request's body with the bytes of its batches.

    Args:
        body: its variables have values already.
        now_ms: the time of records, from which each batch's ``age`` is taken off.
    """
    if isinstance(body, list):
        return [with_bytes(element, now_ms) for element in body]
    if not isinstance(body, dict):
        return body
    if set(body) == {"batches"}:
        return {"hex": b"".join(_encode(now_ms, **batch) for batch in body["batches"]).hex()}
    return {name: with_bytes(value, now_ms) for name, value in body.items()}


def _encode(
    now_ms: int,
    values: list[str],
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    age: int = 0,
) -> bytes:
    from groupcoord.records.batches import encode_batch

    return encode_batch(
        0,
        [(None, value.encode(), now_ms - age) for value in values],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )


def has_bytes(body: Plain) -> bool:
    """Tell whether a body has records as bytes."""
    if isinstance(body, list):
        return any(map(has_bytes, body))
    if not isinstance(body, dict):
        return False
    return any(isinstance(value, dict) if name == "records" else has_bytes(value) for name, value in body.items())


def with_batches(body: Plain) -> Plain:
    """Return the body of an answer to a fetch with its records as values, and names of error codes."""
    if isinstance(body, list):
        return [with_batches(element) for element in body]
    if not isinstance(body, dict):
        return body
    readable: dict[str, Plain] = {}
    for name, value in body.items():
        if name == "records":
            readable[name] = _batches(value)
        elif name == "acknowledge_error_code":
            readable[name] = ErrorCode(value).name
        else:
            readable[name] = with_batches(value)
    return readable


def _batches(records: Plain) -> Plain:
    from groupcoord.records.batches import TruncatedBatchError, iter_batches

    found: list[Plain] = []
    try:
        for batch in iter_batches(bytes.fromhex("" if records is None else records["hex"])):
            told: dict[str, Any] = {"base_offset": batch.base_offset, "last_offset": batch.next_offset - 1}
            records_of = list(batch.records())
            if batch.is_control:
                _, is_commit = _CONTROL_TYPE.unpack(bytes(records_of[0][2] or b""))
                told["control"] = "COMMIT" if is_commit else "ABORT"
            else:
                told["values"] = [bytes(record[3] or b"").decode("latin-1") for record in records_of]
            found.append(told)
    except TruncatedBatchError:
        pass  # the last one may be cut
    return found
