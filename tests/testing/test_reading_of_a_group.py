"""``wait_until_reading``: a consumer with ``auto.offset.reset=latest`` gets what is produced after it returns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from groupcoord.testing import ServerThread

TIMEOUT_S = 60.0
SOON_S = 0.02

Consume = Callable[[ServerThread, str, list[bytes], threading.Event], None]


def confluent(server: ServerThread, group_id: str, values: list[bytes], ends: threading.Event, **settings: str) -> None:
    Consumer = pytest.importorskip("confluent_kafka").Consumer  # noqa: N806

    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": group_id, **settings})
    consumer.subscribe(["orders"])
    while not ends.is_set():
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()


def confluent_kip848(server: ServerThread, group_id: str, values: list[bytes], ends: threading.Event) -> None:
    confluent(server, group_id, values, ends, **{"group.protocol": "consumer"})


def confluent_share(server: ServerThread, group_id: str, values: list[bytes], ends: threading.Event) -> None:
    ShareConsumer = pytest.importorskip("confluent_kafka").ShareConsumer  # noqa: N806

    consumer = ShareConsumer({"bootstrap.servers": server.bootstrap, "group.id": group_id})
    consumer.subscribe(["orders"])
    while not ends.is_set():
        values.extend(message.value() for message in consumer.poll(0.05))
    consumer.close()


def kafka_python(server: ServerThread, group_id: str, values: list[bytes], ends: threading.Event) -> None:
    consumer = pytest.importorskip("kafka").KafkaConsumer(
        "orders", bootstrap_servers=server.bootstrap, group_id=group_id
    )
    while not ends.is_set():
        for records in consumer.poll(timeout_ms=1000).values():
            values.extend(record.value for record in records)
    consumer.close()


def aiokafka(server: ServerThread, group_id: str, values: list[bytes], ends: threading.Event) -> None:
    AIOKafkaConsumer = pytest.importorskip("aiokafka").AIOKafkaConsumer  # noqa: N806

    async def consume() -> None:
        options = {"bootstrap_servers": server.bootstrap, "group_id": group_id, "heartbeat_interval_ms": 200}
        async with AIOKafkaConsumer("orders", **options) as consumer:
            while not ends.is_set():
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    values.extend(record.value for record in records)

    asyncio.run(consume())


@contextmanager
def consuming(server: ServerThread, consume: Consume, *group_ids: str) -> Iterator[dict[str, list[bytes]]]:
    """Run a consumer for each group id given, each in a thread; yield what each group has read."""
    ends = threading.Event()
    values: dict[str, list[bytes]] = {group_id: [] for group_id in group_ids}
    threads = [threading.Thread(target=consume, args=(server, one, values[one], ends)) for one in group_ids]
    for thread in threads:
        thread.start()
    try:
        yield values
    finally:
        ends.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(
    "consume",
    [
        confluent,
        *(pytest.param(one, marks=pytest.mark.ci) for one in (confluent_kip848, confluent_share)),
        *(pytest.param(one, marks=pytest.mark.ci) for one in (kafka_python, aiokafka)),
    ],
)
@pytest.mark.parametrize("members", [1, pytest.param(2, marks=pytest.mark.ci)])
def test_a_group_that_reads_gets_what_is_produced_then(consume: Consume, members: int) -> None:
    """With each client and kind of group, a record of each partition is read once the wait is over."""
    with ServerThread(topics={"orders": 2}) as server, consuming(server, consume, *["billing"] * members) as values:
        group = server.wait_until_reading("billing", members=members, timeout_s=TIMEOUT_S)
        server.produce("orders", ["coffee"], partition=0)
        server.produce("orders", ["tea"], partition=1)
        server.wait_until(lambda: len(values["billing"]) == 2, timeout_s=TIMEOUT_S)

    assert len(group.members) == members
    assert sorted(values["billing"]) == [b"coffee", b"tea"]


@pytest.mark.ci
def test_groups_whose_clients_have_one_client_id_are_told_apart() -> None:
    with ServerThread(topics={"orders": 2}) as server, consuming(server, confluent, "billing") as first:
        server.wait_until_reading("billing", timeout_s=TIMEOUT_S)
        with consuming(server, confluent, "shipping") as second:
            server.wait_until_reading("shipping", timeout_s=TIMEOUT_S)
            server.produce("orders", ["coffee"])
            server.wait_until(lambda: first["billing"] and second["shipping"], timeout_s=TIMEOUT_S)

    assert first["billing"] == second["shipping"] == [b"coffee"]


def test_a_wait_in_vain_names_members_and_partitions() -> None:
    """A fetch that fails is none; the message names who has not fetched from what. It works on an event loop, too."""

    async def wait(server: ServerThread) -> Any:
        with pytest.raises(TimeoutError) as failed:
            await server.asyncio.wait_until_reading("billing", timeout_s=SOON_S)
        return failed.value

    with ServerThread(topics={"orders": 2}) as server, consuming(server, confluent, "billing"):
        fault = server.fail_next("Fetch", "KAFKA_STORAGE_ERROR", times=None)
        server.wait_until_stable("billing", timeout_s=TIMEOUT_S)
        fault.wait()
        message = str(asyncio.run(wait(server)))
        fault.remove()
        server.wait_until_reading("billing", timeout_s=TIMEOUT_S)

    assert message.startswith("group 'billing' is not reading after 0.02 s: rdkafka-")
    assert message.endswith("(client 'rdkafka') has not fetched from orders-0, orders-1")


def test_a_group_without_partitions_does_not_read() -> None:
    """A member that is assigned nothing of its topic is not reading."""
    with ServerThread() as server:
        with pytest.raises(TimeoutError, match=r"there is no group 'billing' \(groups: none\)"):
            server.wait_until_reading("billing", timeout_s=SOON_S)
        with consuming(server, confluent_kip848, "billing"):
            server.wait_until_stable("billing", timeout_s=TIMEOUT_S)
            with pytest.raises(TimeoutError, match="billing: no member has a partition of any topic"):
                server.wait_until_reading("billing", timeout_s=SOON_S)
