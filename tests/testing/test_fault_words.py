"""A test lets things go wrong for real clients, which notice, try again and go on."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from groupcoord.errors import ErrorCode, UnknownNameError
from groupcoord.testing import ServerThread
from groupcoord.testing.faults import Call, FaultFunctionError

DEADLINE_S = 60.0

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = [
    pytest.mark.groupcoord_server(topics={"orders": 1}),
    # kafka-python leaves a socket behind when a connection breaks off while it connects.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def until(is_so: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_s


def consumer_of(server: ServerThread, **settings: object) -> confluent_kafka.Consumer:
    own = {"group.id": "g", "enable.auto.commit": False, "reconnect.backoff.ms": 10, "log_level": 0} | settings
    return confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap} | own)


ORDERS = confluent_kafka.TopicPartition("orders", 0, 42)


def commit(consumer: confluent_kafka.Consumer, offset: int = 42) -> None:
    consumer.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, offset)], asynchronous=False)


def committed(consumer: confluent_kafka.Consumer) -> int:
    (found,) = consumer.committed([confluent_kafka.TopicPartition("orders", 0)], timeout=DEADLINE_S)
    return int(found.offset)


def test_a_commit_fails_and_then_does_not(groupcoord_server: ServerThread) -> None:
    """The application gets the error, nothing is committed, and the next attempt succeeds."""
    consumer = consumer_of(groupcoord_server)
    fault = groupcoord_server.fail_next("OffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(confluent_kafka.KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        commit(consumer)
    assert fault.count == 1
    assert committed(consumer) < 0
    commit(consumer)
    assert committed(consumer) == 42
    consumer.close()


def test_an_answer_is_held_until_the_test_says_so(groupcoord_server: ServerThread) -> None:
    """While the answer is held the commit is done, and the client doesn't know; no time has to pass for that."""
    consumer = consumer_of(groupcoord_server)
    answers = []
    confirming = consumer_of(groupcoord_server, on_commit=lambda error, partitions: answers.append(error))
    with groupcoord_server.hold("OffsetCommit", where={"group_id": "g"}, after=True) as held:
        confirming.commit(offsets=[ORDERS], asynchronous=True)
        held.wait()
        assert committed(consumer) == 42
        confirming.poll(0)
        assert answers == []
    until(lambda: confirming.poll(0.01) or answers)
    assert answers == [None]
    for each in (consumer, confirming):
        each.close()


def test_a_function_answers(groupcoord_server: ServerThread) -> None:
    """A heartbeat is answered by the test with an error, and the consumer joins again."""
    joins = groupcoord_server.on("JoinGroup", lambda call: None, after=True)
    consumer = consumer_of(groupcoord_server, **{"heartbeat.interval.ms": 20})
    consumer.subscribe(["orders"])
    until(lambda: consumer.poll(0.01) or consumer.assignment())
    count = joins.count
    groupcoord_server.on("Heartbeat", lambda call: ErrorCode.REBALANCE_IN_PROGRESS, times=1).wait()
    until(lambda: consumer.poll(0.01) or joins.count > count)
    consumer.close()


def test_consumers_join_again_when_told_to(groupcoord_server: ServerThread) -> None:
    """A rebalance on request, an expired session: the consumer gets its partition back either way."""
    given: list[int] = []
    consumer = consumer_of(groupcoord_server, **{"heartbeat.interval.ms": 20})
    consumer.subscribe(["orders"], on_assign=lambda _, partitions: given.append(len(partitions)))
    until(lambda: consumer.poll(0.01) or len(given) == 1)
    groupcoord_server.wait_until_stable("g", timeout_s=DEADLINE_S)
    groupcoord_server.begin_rebalance("g")
    until(lambda: consumer.poll(0.01) or len(given) == 2)
    (member,) = groupcoord_server.wait_until_stable("g", timeout_s=DEADLINE_S).members
    groupcoord_server.expire_member("g", member.member_id)
    until(lambda: consumer.poll(0.01) or len(given) == 3)
    assert given == [1, 1, 1]
    consumer.close()


@pytest.mark.parametrize("keeps_files", [False, True], ids=["in memory", "on disk"])
def test_a_crash_loses_nothing_that_was_acknowledged(
    groupcoord_server_factory: Callable[..., ServerThread], tmp_path: Path, keeps_files: bool
) -> None:
    """After a crash the port is closed; after a restart on the same port offsets and records are present."""
    server = groupcoord_server_factory(topics={"orders": 1}, data_dir=tmp_path if keeps_files else None)
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
    producer.produce("orders", b"coffee")
    assert producer.flush(DEADLINE_S) == 0
    consumer = consumer_of(server)
    commit(consumer)
    server.crash()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))
    with pytest.raises(RuntimeError, match=r"has crashed; restart\(\) it"):
        server.drop_connections()
    server.restart()
    assert committed(consumer) == 42
    # A new one: librdkafka, when its broker was away for a moment, sometimes fetches only much later.
    reader = consumer_of(server)
    reader.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
    message = reader.poll(DEADLINE_S)
    assert message is not None
    assert message.value() == b"coffee"
    reader.close()
    server.restart()  # in order this time
    assert committed(consumer) == 42
    consumer.close()


def test_who_was_stopped_for_good_begins_anew(groupcoord_server: ServerThread) -> None:
    """Without a data directory, stopping forgets; a server that was stopped can't be restarted, but started."""
    consumer = consumer_of(groupcoord_server)
    commit(consumer)
    consumer.close()
    groupcoord_server.stop()
    with pytest.raises(RuntimeError, match="was not started"):
        groupcoord_server.restart()
    groupcoord_server.start()
    again = consumer_of(groupcoord_server)
    assert committed(again) < 0
    again.close()


def test_rules_outlast_a_restart(groupcoord_server: ServerThread) -> None:
    """Rules still apply after a crash; a held request is gone with its connection."""
    consumer = consumer_of(groupcoord_server)
    held = groupcoord_server.hold("OffsetCommit", times=1)
    consumer.commit(offsets=[ORDERS], asynchronous=True)
    held.wait()
    fault = groupcoord_server.fail_next("OffsetCommit", "GROUP_AUTHORIZATION_FAILED")
    seen = groupcoord_server.on("OffsetCommit", fail)
    groupcoord_server.crash()
    seen.remove()  # also while nobody serves
    groupcoord_server.restart()
    fault.wait()
    assert (held.count, fault.count) == (1, 1)
    consumer.close()


def test_connections_break_off(groupcoord_server: ServerThread) -> None:
    consumer = consumer_of(groupcoord_server, **{"client.id": "worker"})
    commit(consumer)
    with pytest.raises(
        UnknownNameError, match=r"no client 'works' is connected; did you mean 'worker'\? \(clients: 'worker'\)"
    ):
        groupcoord_server.drop_connections("works")
    assert groupcoord_server.drop_connections("worker") > 0
    commit(consumer, 43)
    assert groupcoord_server.drop_connections() > 0
    assert committed(consumer) == 43
    consumer.close()


def test_aiokafka_produces_in_spite_of_errors(groupcoord_server: ServerThread) -> None:
    """A producer of aiokafka retries after NOT_LEADER_OR_FOLLOWER, and after a closed connection."""
    aiokafka = pytest.importorskip("aiokafka")
    faults = [
        groupcoord_server.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER"),
        groupcoord_server.disconnect_next("Produce"),
        groupcoord_server.delay("Produce", 10),
    ]

    async def produce() -> int:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=groupcoord_server.bootstrap, retry_backoff_ms=10
        ) as producer:
            sent = await producer.send_and_wait("orders", b"coffee")
            return int(sent.offset)

    assert asyncio.run(produce()) == 0
    assert [fault.count for fault in faults] == [1, 1, 1]


# ---------------------------------------------------------------- mistakes of the test


def fail(call: Call) -> None:
    raise LookupError("nothing here")


def test_what_a_function_raises_reaches_the_test() -> None:
    """It is raised where the test waits for it, otherwise where the server is stopped, once."""
    with ServerThread(topics={"orders": 1}) as server:
        consumer = consumer_of(server)
        fault = server.on("OffsetCommit", fail, times=1)
        commit(consumer)
        with pytest.raises(FaultFunctionError, match="for OffsetCommit raised LookupError: nothing here") as raised:
            fault.wait()
        assert isinstance(raised.value.__cause__, LookupError)
        server.on("OffsetCommit", fail)
        commit(consumer)
        consumer.close()
        with pytest.raises(FaultFunctionError, match="nothing here"):
            server.stop()


def test_a_test_that_fails_anyway_is_told_as_well() -> None:
    """Its own error comes through, with a note of what the function raised."""

    def run_test() -> None:
        with ServerThread(topics={"orders": 1}) as server:
            consumer = consumer_of(server)
            server.on("OffsetCommit", fail)
            commit(consumer)
            consumer.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        run_test()
    assert "nothing here" in raised.value.__notes__[0]


def test_waiting_for_nothing_ends(groupcoord_server: ServerThread) -> None:
    with pytest.raises(TimeoutError, match="0 of 2 requests of Heartbeat came"):
        groupcoord_server.on("Heartbeat", fail).wait(2, timeout_s=0.01)
