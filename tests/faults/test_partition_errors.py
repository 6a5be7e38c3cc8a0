"""One partition of a request fails, and the others are handled: with real clients, and for each API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from groupcoord.errors import ErrorCode, UnknownNameError
from groupcoord.testing import ServerThread

confluent_kafka = pytest.importorskip("confluent_kafka")
TIMEOUT_S = 60.0
SECOND = {"topic": "orders", "partition": 1}


def consumer_of(server: ServerThread, **settings: str) -> Any:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            **settings,
        }
    )


def places(*offsets: int) -> list[Any]:
    return [confluent_kafka.TopicPartition("orders", index, offset) for index, offset in enumerate(offsets)]


def errors(server: ServerThread, api: str) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for request in server.requests.where(api):
        answer = request.answer
        groups = getattr(answer, "groups", None)
        topics = groups[0].topics if groups else getattr(answer, "responses", None) or getattr(answer, "topics", ())
        for topic in topics:
            for partition in topic.partitions:
                found.setdefault(partition.partition_index, set()).add(partition.error_code.name)
    return found


def test_one_partition_of_a_commit_fails() -> None:
    with ServerThread(topics={"orders": 2}) as server:
        fault = server.fail_next("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", where=SECOND)
        consumer = consumer_of(server)
        with pytest.raises(confluent_kafka.KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
            consumer.commit(offsets=places(5, 7), asynchronous=False)
        committed = server.committed("billing")
        consumer.close()

    assert (fault.count, committed) == (1, {("orders", 0): 5})
    assert errors(server, "OffsetCommit") == {0: {"NONE"}, 1: {"GROUP_AUTHORIZATION_FAILED"}}


def test_one_partition_of_an_answer_fails_after_it_was_handled() -> None:
    """With ``after=True`` both are committed, and the client does not know."""
    with ServerThread(topics={"orders": 2}) as server:
        server.fail_next("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", where=SECOND, after=True)
        consumer = consumer_of(server)
        with pytest.raises(confluent_kafka.KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
            consumer.commit(offsets=places(5, 7), asynchronous=False)
        committed = server.committed("billing")
        consumer.close()

    assert committed == {("orders", 0): 5, ("orders", 1): 7}


def test_one_partition_of_committed_offsets_fails() -> None:
    with ServerThread(topics={"orders": 2}) as server:
        consumer = consumer_of(server)
        consumer.commit(offsets=places(5, 7), asynchronous=False)
        server.fail_next("OffsetFetch", "UNKNOWN_TOPIC_OR_PARTITION", where=SECOND)
        found = consumer.committed(places(0, 0), timeout=TIMEOUT_S)
        consumer.close()

    assert found[0].offset == 5
    assert found[1].error is not None
    assert errors(server, "OffsetFetch") == {0: {"NONE"}, 1: {"UNKNOWN_TOPIC_OR_PARTITION"}}


def test_one_partition_of_a_produce_request_fails() -> None:
    """Nothing is appended to it, and the records of the other one are there."""
    with ServerThread(topics={"orders": 2}) as server:
        server.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED", where=SECOND, times=None)
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 50})
        told: dict[int, bool] = {}
        for index in (0, 1):
            producer.produce(
                "orders", b"tea", partition=index, on_delivery=lambda e, m: told.update({m.partition(): e is None})
            )
        producer.flush(TIMEOUT_S)

        assert told == {0: True, 1: False}
        assert [record.partition for record in server.records("orders")] == [0]


@pytest.mark.parametrize("api", ["Fetch", "ListOffsets"])
def test_one_partition_that_can_not_be_read_holds_up_no_other(api: str) -> None:
    """The records of the other partition come; when the fault is removed, those of the failed one, too."""
    with ServerThread(topics={"orders": 2}) as server:
        server.produce("orders", ["coffee"], partition=0)
        server.produce("orders", ["tea"], partition=1)
        fault = server.fail_next(api, "NOT_LEADER_OR_FOLLOWER", where=SECOND, times=None)
        consumer = consumer_of(server)
        consumer.subscribe(["orders"])
        values = []
        while len(values) < 1 or not fault.count:
            values += [message.value() for message in consumer.consume(10, timeout=0.1) if message.error() is None]
        assert values == [b"coffee"]
        fault.remove()
        while len(values) < 2:
            values += [message.value() for message in consumer.consume(10, timeout=0.1) if message.error() is None]
        consumer.close()

    assert values == [b"coffee", b"tea"]
    assert errors(server, api)[0] == {"NONE"}
    assert "NOT_LEADER_OR_FOLLOWER" in errors(server, api)[1]


@pytest.mark.ci
def test_one_partition_of_a_fetch_session_fails() -> None:
    kafka = pytest.importorskip("kafka")
    with ServerThread(topics={"orders": 2}) as server:
        consumer = kafka.KafkaConsumer(bootstrap_servers=server.bootstrap, auto_offset_reset="earliest")
        consumer.assign([kafka.TopicPartition("orders", index) for index in (0, 1)])
        while not any(request.message.session_epoch > 1 for request in server.requests.where("Fetch")):
            consumer.poll(timeout_ms=100)
        fault = server.fail_next("Fetch", "NOT_LEADER_OR_FOLLOWER", where=SECOND)
        while not fault.count:
            consumer.poll(timeout_ms=100)
        server.produce("orders", ["tea"], partition=1)
        values: list[bytes] = []
        while not values:
            values += [record.value for records in consumer.poll(timeout_ms=100).values() for record in records]
        consumer.close()

    assert values == [b"tea"]
    assert errors(server, "Fetch")[1] == {"NONE", "NOT_LEADER_OR_FOLLOWER"}


def test_records_of_one_partition_are_not_deleted() -> None:
    admin = pytest.importorskip("confluent_kafka.admin")
    with ServerThread(topics={"orders": 2}) as server:
        for index in (0, 1):
            server.produce("orders", ["tea"], partition=index)
        server.fail_next("DeleteRecords", "TOPIC_AUTHORIZATION_FAILED", where=SECOND)
        client = admin.AdminClient({"bootstrap.servers": server.bootstrap})
        done = client.delete_records(places(1, 1), request_timeout=TIMEOUT_S)
        failed = {place.partition: future.exception() is not None for place, future in done.items()}

        assert failed == {0: False, 1: True}
        assert [record.partition for record in server.records("orders")] == [1]


@pytest.mark.ci
@pytest.mark.parametrize("api", ["ShareFetch", "ShareAcknowledge"])
def test_jobs_of_one_partition_fail(api: str) -> None:
    with ServerThread(topics={"orders": 2}) as server:
        worker = confluent_kafka.ShareConsumer({"bootstrap.servers": server.bootstrap, "group.id": "billing"})
        worker.subscribe(["orders"])
        while len(server.share("billing").progress()) < 2:
            worker.poll(0.1)
        fault = server.fail_next(api, "NOT_LEADER_OR_FOLLOWER", where=SECOND, times=None)
        while api == "ShareFetch" and not fault.count:
            worker.poll(0.1)
        server.produce("orders", ["coffee"], partition=0)
        server.produce("orders", ["tea"], partition=1)
        values: list[bytes] = []
        wanted = [b"coffee"] if api == "ShareFetch" else [b"coffee", b"tea"]
        while sorted(values) != wanted:
            values += [job.value() for job in worker.poll(0.1)]
        worker.commit_sync(TIMEOUT_S)
        fault.remove()
        if api == "ShareFetch":
            while sorted(values) != [b"coffee", b"tea"]:
                values += [job.value() for job in worker.poll(0.1)]
        worker.close()

    assert sorted(values) == [b"coffee", b"tea"]
    assert "NOT_LEADER_OR_FOLLOWER" in errors(server, api)[1]


@pytest.mark.parametrize(
    ("word", "error", "message"),
    [
        (
            lambda server: server.fail_next("JoinGroup", "NOT_COORDINATOR", where=SECOND),
            UnknownNameError,
            "'partition'",
        ),
        (
            lambda server: server.hold("Fetch", where={"partition": "1"}),
            TypeError,
            "partition must be a number, not '1'",
        ),
    ],
)
def test_what_has_no_partitions_is_refused(
    word: Callable[[ServerThread], object], error: type[Exception], message: str
) -> None:
    """Requests that name no partitions, and partitions that are no numbers, are mistakes."""
    with ServerThread(topics={"orders": 2}) as server, pytest.raises(error, match=message):
        word(server)


def test_other_words_take_partitions_too() -> None:
    with ServerThread(topics={"orders": 2}) as server:
        consumer = consumer_of(server)
        held = server.hold("OffsetCommit", where={"partition": 1})
        consumer.commit(offsets=places(5), asynchronous=False)
        consumer.commit(offsets=places(5, 7), asynchronous=True)
        held.wait()
        assert server.committed("billing") == {("orders", 0): 5}
        held.remove()
        server.assert_committed("billing", {("orders", 0): 5, ("orders", 1): 7})
        consumer.close()

    assert ErrorCode.NONE.name in errors(server, "OffsetCommit")[1]
