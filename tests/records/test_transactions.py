"""The bytes of ``__transaction_state``: those that a broker wrote, older ones, and damaged ones."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord.records.transactions import (
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)
from groupcoord.schema.primitives import MalformedError
from tests.tables import as_one_test

EMPTY = {
    "producerId": 1,
    "producerEpoch": 0,
    "transactionTimeoutMs": 60_000,
    "transactionStatus": 0,
    "transactionPartitions": None,
    "transactionLastUpdateTimestampMs": 1795526490802,
    "transactionStartTimestampMs": -1,
    "previousProducerId": 1,
}
ONGOING = {
    "producerId": 0,
    "producerEpoch": 0,
    "transactionTimeoutMs": 60_000,
    "transactionStatus": 1,
    "transactionPartitions": [
        {"topic": "t", "partitionIds": [2, 0]},
        {"topic": "__consumer_offsets", "partitionIds": [3]},
    ],
    "transactionLastUpdateTimestampMs": 1795526487645,
    "transactionStartTimestampMs": 1795526487630,
    "previousProducerId": 0,
}
ABORTED = {
    "producerId": 0,
    "producerEpoch": 1,
    "transactionTimeoutMs": 60_000,
    "transactionStatus": 5,
    "transactionPartitions": [],
    "transactionLastUpdateTimestampMs": 1795526488684,
    "transactionStartTimestampMs": 1795526488674,
    "previousProducerId": 0,
    "clientTransactionVersion": 2,
}
RECORDED = {
    "empty": (EMPTY, "0001000000000000000100000000ea600000000001a20db7fab2ffffffffffffffff0100080000000000000001"),
    "ongoing": (
        ONGOING,
        "0001000000000000000000000000ea600103027403000000020000000000135f5f636f6e73756d65725f6f66667365747302"
        "0000000300000001a20db7ee5d000001a20db7ee4e0100080000000000000000",
    ),
    "aborted": (
        ABORTED,
        "0001000000000000000000010000ea600501000001a20db7f26c000001a20db7f262020008000000000000000002020002",
    ),
}


@as_one_test
@pytest.mark.parametrize("name", RECORDED)
def test_what_a_broker_wrote(name: str) -> None:
    """The values of Apache Kafka 4.4.0 are read as what they are, and written again to the byte."""
    values, text = RECORDED[name]
    assert decode_transaction_value(bytes.fromhex(text)) == values
    assert encode_transaction_value(values).hex() == text


def test_keys() -> None:
    """A key is a version and an id; other versions are ignored, as in Kafka."""
    assert encode_transaction_key("wrïter") == b"\x00\x00\x00\x07wr\xc3\xafter"
    assert decode_transaction_key(b"\x00\x00\x00\x07wr\xc3\xafter") == "wrïter"
    assert decode_transaction_key(b"\x00\x01\x00\x01w") is None
    with pytest.raises(MalformedError):
        encode_transaction_key("w" * 32_768)


def test_the_version_before() -> None:
    """Values of brokers before ``transaction.version`` 1 (Kafka 3.9) are read, too."""
    old = bytes.fromhex("0000000000000000000700030000ea6004ffffffff0000000000000002ffffffffffffffff")
    assert decode_transaction_value(old) == {
        "producerId": 7,
        "producerEpoch": 3,
        "transactionTimeoutMs": 60_000,
        "transactionStatus": 4,
        "transactionPartitions": None,
        "transactionLastUpdateTimestampMs": 2,
        "transactionStartTimestampMs": -1,
    }


@as_one_test
@pytest.mark.parametrize("damage", [b"", b"\x00", b"\x00\x02", b"\xff\xff", "cut", "longer"])
def test_damaged_values(damage: Any) -> None:
    """Values that don't match the schema are reported as damaged."""
    sound = encode_transaction_value(ONGOING)
    with pytest.raises(MalformedError):
        decode_transaction_value({"cut": sound[:-1], "longer": sound + b"\x00"}.get(damage, damage))


def test_every_cut_is_noticed() -> None:
    """No beginning of a value is taken for one."""
    sound = encode_transaction_value(ONGOING)
    for size in range(len(sound)):
        with pytest.raises(MalformedError):
            decode_transaction_value(sound[:size])
