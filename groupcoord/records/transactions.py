"""Records of ``__transaction_state``: a key and a value for each change of a transactional id.

Source: Kafka's schemas ``TransactionLogKey`` and ``TransactionLogValue`` (KIP-98, KIP-890). Values are written in
version 1, as by brokers with ``transaction.version`` 1 or 2; both versions are read.
"""

from __future__ import annotations

from struct import error as StructError  # noqa: N812
from typing import Any

from groupcoord.schema.engine import Values, parse_structures, read_whole, reader_of, writer_of
from groupcoord.schema.primitives import MalformedError, Reader

KEY_VERSION = b"\x00\x00"
VALUE_VERSION = 1
FIRST_FLEXIBLE = 1  # version of the value from which on it has tagged fields

_STRUCTURES = parse_structures(
    """
    TransactionLogKey: transactionalId string
    PartitionsSchema: topic string, partitionIds int32[]
    TransactionLogValue: producerId int64, previousProducerId int64 1+ tag 0, nextProducerId int64 1+ tag 1,
        producerEpoch int16, nextProducerEpoch int16 1+ tag 3, transactionTimeoutMs int32, transactionStatus int8,
        transactionPartitions PartitionsSchema[]?, transactionLastUpdateTimestampMs int64,
        transactionStartTimestampMs int64, clientTransactionVersion int16 1+ tag 2
    """,
    made={},
)
_KEY, _VALUE = _STRUCTURES["TransactionLogKey"], _STRUCTURES["TransactionLogValue"]


def encode_transaction_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id's records.

    Raises:
        MalformedError: the id is longer than 32,767 bytes.
    """
    return KEY_VERSION + writer_of(_KEY, 0, False)({"transactionalId": transactional_id})


def encode_transaction_value(values: Values) -> bytes:
    """Return the bytes of a value; tagged fields that are missing are omitted.

    Raises:
        MalformedError: a name is longer than 32,767 bytes.
        KeyError, struct.error: a field is missing, or does not fit.
    """
    return VALUE_VERSION.to_bytes(2) + writer_of(_VALUE, VALUE_VERSION, True)(values)


def decode_transaction_key(key: bytes) -> str | None:
    """Return the transactional id in a key; None if the version of the key is unknown.

    Raises:
        MalformedError: the bytes do not fit the schema.
    """
    if key[:2] != KEY_VERSION:
        return None
    transactional_id: str = _read(reader_of(_KEY, 0, False), key)["transactionalId"]
    return transactional_id


def decode_transaction_value(value: bytes) -> Values:
    """Return the fields of a value; tagged fields only if present.

    Raises:
        MalformedError: the bytes do not fit the schema, or the version is unknown.
    """
    version = int.from_bytes(value[:2], signed=True)
    if not 0 <= version <= VALUE_VERSION:
        raise MalformedError(f"a value of version {version}")
    return _read(reader_of(_VALUE, version, version >= FIRST_FLEXIBLE), value)


def _read(read: Reader[Any], data: bytes) -> Values:
    try:
        values: Values = read_whole(read, data, 2)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise MalformedError(f"cut short: {error}") from error
    return values
