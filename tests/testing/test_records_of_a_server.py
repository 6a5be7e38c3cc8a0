"""Records that a test appends and reads, as clients see them, and errors of wrong arguments."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from groupcoord import ErrorCode, ManualClock
from groupcoord.broker.topics.registry import TopicError
from groupcoord.storage.log.batches import read_produced
from groupcoord.testing import ConsumerRecord, ProducerRecord, RecordsRefusedError, ServerThread
from groupcoord.testing.asserting.records import RecordFields, decode_records, encode_records, murmur2
from tests.tables import as_one_test

START_MS = 1_700_000_000_000
CLIENTS_TIMEOUT_S = 60.0


def produced(server: ServerThread, **settings: Any) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, **settings})
    for value in ("one", "two", "three"):
        producer.produce("orders", value, key="k", headers={"origin": value, "none": None}, partition=1)
    assert producer.flush(CLIENTS_TIMEOUT_S) == 0


def test_records_stand_where_they_were_put() -> None:
    """Text and bytes, keys, headers, partitions and times are kept; who names no time gets the server's."""
    special = ProducerRecord(
        "two", key=b"k", headers={"origin": "here", "none": None}, partition=2, timestamp_ms=START_MS - 7
    )
    with ServerThread(topics={"orders": 3}, clock=ManualClock(START_MS)) as server:
        appended = server.produce("orders", ["one", special, None, memoryview(b"four")], partition=1)
        assert server.records("orders") == sorted(appended, key=lambda record: (record.partition, record.offset))
        assert [record.value for record in server.records("orders", 1)] == [b"one", None, b"four"]
        topic = server.topics["orders"]

    assert appended[0] == ConsumerRecord("orders", 1, 0, START_MS, None, b"one")
    assert appended[1] == ConsumerRecord(
        "orders", 2, 0, START_MS - 7, b"k", b"two", (("origin", b"here"), ("none", None))
    )
    assert [record.offset for record in appended] == [0, 0, 1, 2]
    assert (topic.name, topic.partition_count, topic.end_offsets, topic.record_count) == ("orders", 3, (0, 3, 1), 4)


def test_keys_decide_the_partition() -> None:
    """A key's partition is the one that other producers choose; without a key it is one after the other, over calls."""
    hasher = pytest.importorskip("kafka.partitioner.default")
    source = random.Random(7)
    keys = [source.randbytes(length) for length in range(40)]
    with ServerThread(topics={"orders": 5}) as server:
        appended = server.produce("orders", [ProducerRecord("", key=key) for key in keys])
        turns = [*server.produce("orders", ["a", "b", "c"]), *server.produce("orders", ["d", "e", "f"])]

    assert [record.partition for record in appended] == [(hasher.murmur2(key) & 0x7FFFFFFF) % 5 for key in keys]
    assert [record.partition for record in turns] == [0, 1, 2, 3, 4, 0]


def test_the_hash_is_known() -> None:
    """The hash of a word is the number that Kafka's tests name."""
    assert murmur2(b"21") == -973932308 % 2**32


def test_a_real_consumer_reads_what_a_test_has_put() -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    with ServerThread(topics=["orders"]) as server:
        server.produce("orders", [ProducerRecord("one", "k", {"origin": "here"}, timestamp_ms=START_MS + 5), "two"])
        consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "billing"})
        consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
        messages = consumer.consume(2, CLIENTS_TIMEOUT_S)
        consumer.close()

    assert [message.value() for message in messages] == [b"one", b"two"]
    assert (messages[0].key(), messages[0].headers()) == (b"k", [("origin", b"here")])
    assert messages[0].timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, START_MS + 5)


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_test_reads_what_a_real_producer_has_sent(on_disk: bool, tmp_path: Path) -> None:
    with ServerThread(topics={"orders": 2}, data_dir=tmp_path if on_disk else None) as server:
        produced(server, **{"compression.type": "gzip", "linger.ms": 50})
        records = server.records("orders")

    assert [record.value for record in records] == [b"one", b"two", b"three"]
    assert [record.offset for record in records] == [0, 1, 2]
    assert records[2].headers == (("origin", b"three"), ("none", None))


def test_readers_choose_what_of_transactions_they_see() -> None:
    """Aborted and open records are omitted for readers of committed ones; markers are no records."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    with ServerThread(topics=["orders"]) as server:
        settings = {"bootstrap.servers": server.bootstrap, "transactional.id": "payments"}
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions()
        for value in ("committed", "aborted", "open"):
            producer.begin_transaction()
            producer.produce("orders", value)
            producer.flush()
            if value == "committed":
                producer.commit_transaction()
            elif value == "aborted":
                producer.abort_transaction()
        server.produce("orders", ["plain"])
        everything = [record.value for record in server.records("orders")]
        committed = [record.value for record in server.records("orders", isolation_level="read_committed")]
        producer.abort_transaction()
        later = [record.value for record in server.records("orders", isolation_level="read_committed")]

    assert everything == [b"committed", b"aborted", b"open", b"plain"]
    assert committed == [b"committed"]
    assert later == [b"committed", b"plain"]


def test_records_of_the_log_have_the_logs_time() -> None:
    with ServerThread(topics=["orders"], clock=ManualClock(START_MS)) as server:
        with server.run(lambda broker: broker.topics).edit() as edit:
            edit.configure("orders", {"message.timestamp.type": "LogAppendTime"})
        (record,) = server.produce("orders", [ProducerRecord("late", timestamp_ms=START_MS - 5)])

    assert record.timestamp_ms == START_MS


def test_topics_are_named_or_counted() -> None:
    """Names alone get ``num.partitions``; topics can be added later, and Kafka's own aren't among them."""
    with ServerThread(topics=["orders", "bills"], settings={"num.partitions": 2}) as server:
        server.create_topics({"payments": 3})
        server.create_topics(["refunds"])
        counts = {name: topic.partition_count for name, topic in server.topics.items()}
        with pytest.raises(TopicError, match="'orders' already exists"):
            server.create_topics(["orders"])

    assert counts == {"orders": 2, "bills": 2, "payments": 3, "refunds": 2}


def test_topics_go_with_what_they_hold() -> None:
    """A topic that is deleted, and made again, is empty; there is nothing to delete of one that isn't there."""
    with ServerThread(topics={"orders": 1}) as server:
        server.produce("orders", ["a"])
        server.delete_topic("orders")
        assert "orders" not in server.topics
        with pytest.raises(TopicError):
            server.delete_topic("orders")
        server.create_topics({"orders": 1})
        assert server.records("orders") == []


@as_one_test
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"topics": "orders"}, TypeError, r"\['orders'\], or \{'orders': 3\}"),
        ({"topics": 3}, TypeError, "topics must be names"),
        ({"topics": {"orders": "3"}}, TypeError, "of topic 'orders' must be an integer, not '3'"),
        ({"topics": {"orders": True}}, TypeError, "must be an integer, not True"),
        ({"topics": {"orders": 0}}, ValueError, "at least one partition, not 0"),
        ({"topics": [3]}, TypeError, "a topic's name must be text, not 3"),
        ({"topics": ["a b"]}, TopicError, "'a b' contains one or more characters"),
        ({"data_dir": True}, TypeError, "data_dir must be a path, not True"),
        ({"clock": 7}, TypeError, "clock must be a ManualClock"),
    ],
)
def test_wrong_arguments_are_told_in_words(options: dict[str, Any], error: type[Exception], words: str) -> None:
    """Invalid arguments are refused before anything starts, with the valid form."""
    with pytest.raises(error, match=words):
        ServerThread(**options)


def test_what_there_is_not_is_told_in_words() -> None:
    """Unknown isolation levels, and values that are no bytes, raise errors with the valid ones."""
    wrong: Any = 3
    with ServerThread(topics={"orders": 1}) as server:
        with pytest.raises(ValueError, match="read_uncommitted, read_committed, not 'committed'"):
            server.records("orders", isolation_level="committed")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"produce\(topic, \['one'\]\)"):
            server.produce("orders", "one")
        with pytest.raises(TypeError, match="text, bytes or None, not 3"):
            server.produce("orders", [wrong])
        with pytest.raises(TypeError, match="contents by name, or pairs, not 'x'"):
            ProducerRecord("one", headers="x")  # type: ignore[arg-type]
        assert server.records("orders") == []


def test_a_topic_may_refuse_records() -> None:
    with ServerThread(topics=["orders"]) as server:
        with server.run(lambda broker: broker.topics).edit() as edit:
            edit.configure("orders", {"cleanup.policy": "compact"})
        with pytest.raises(RecordsRefusedError, match="orders-0 does not take it: INVALID_RECORD") as refused:
            server.produce("orders", ["without a key"])

    assert refused.value.error_code is ErrorCode.INVALID_RECORD


def test_empty_topics_have_no_records() -> None:
    """A server without logs of topics raises an error instead of returning none."""
    with ServerThread(topics=["orders"], settings={"records.enable": "false"}) as server:
        with pytest.raises(LookupError, match=r"records\.enable=false"):
            server.records("orders")
        assert server.topics["orders"].end_offsets == (0,)


def test_records_come_back_from_bytes() -> None:
    """With any fields, in any order of time, decoding gives the encoded records."""
    fields = [
        RecordFields(START_MS, b"k" * 200, b"", ()),
        RecordFields(START_MS - 100_000, None, None, (("a", b"1"), ("a", b""))),
        RecordFields(START_MS + 9, b"", b"v" * 20_000, (("é", None),)),
    ]
    batch = read_produced(encode_records(fields))

    assert list(decode_records(batch)) == list(enumerate(fields))
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms, batch.base_sequence) == (START_MS, START_MS + 9, -1)
