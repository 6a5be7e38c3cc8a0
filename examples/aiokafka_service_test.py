"""A consumer service on asyncio, with aiokafka, and its tests: rebalance, commit, a crash, duplicates.

``OrderService`` is the code under test. It books each order and then commits, so a service that dies in between leaves
an order that is booked again: at least once, never less. Server and services run in the test's process; only the one
that is killed has a process of its own, which is killed as processes are.

    pip install '.[serve]' pytest aiokafka
    pytest examples/aiokafka_service_test.py
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError

from groupcoord.testing import ServerThread

SESSION_TIMEOUT_MS = 45_000
TIMEOUT_S = 30.0


# ---------------------------------------------------------------- the code under test


class OrderService:
    """Books the orders of a topic, as one of several.

    Args:
        bootstrap: the address of a broker.
        book: is given each order's text.
    """

    def __init__(self, bootstrap: str, book: Callable[[str], None]) -> None:
        self._bootstrap = bootstrap
        self._book = book

    async def run(self) -> None:
        """Book orders until cancelled."""
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=self._bootstrap,
            group_id="billing",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=100,
        )
        await consumer.start()
        try:
            async for record in consumer:
                self._book(record.value.decode())
                with contextlib.suppress(CommitFailedError):  # another one has the partition now, and books it again
                    await consumer.commit({TopicPartition(record.topic, record.partition): record.offset + 1})
        finally:
            await consumer.stop()


# ---------------------------------------------------------------- the tests


@contextlib.asynccontextmanager
async def running(service: OrderService) -> AsyncIterator[asyncio.Task[None]]:
    """Let a service run beside the block."""
    task = asyncio.create_task(service.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.groupcoord_server(topics={"orders": 4})
def test_orders_are_booked_and_committed(groupcoord_server: ServerThread) -> None:
    """Each order is booked once, and all of them are committed."""
    server, booked = groupcoord_server, []
    orders = [f"order {number}" for number in range(8)]
    server.produce("orders", orders)

    async def scenario() -> None:
        async with running(OrderService(server.bootstrap, booked.append)):
            await server.asyncio.wait_until(lambda: sum(server.committed("billing").values()) == 8, TIMEOUT_S)

    asyncio.run(scenario())
    assert sorted(booked) == orders
    assert server.committed("billing") == {("orders", partition): 2 for partition in range(4)}


@pytest.mark.groupcoord_server(topics={"orders": 4})
def test_services_share_the_orders(groupcoord_server: ServerThread) -> None:
    """A second service gets half of the partitions, and gives them back when it goes; nothing is booked twice."""
    server, booked = groupcoord_server, []

    async def scenario() -> None:
        async with running(OrderService(server.bootstrap, booked.append)):
            await server.asyncio.wait_until_stable("billing", members=1, timeout_s=TIMEOUT_S)
            async with running(OrderService(server.bootstrap, booked.append)):
                group = await server.asyncio.wait_until_stable("billing", members=2, timeout_s=TIMEOUT_S)
                assert [len(member.assignment) for member in group.members] == [2, 2]
                server.produce("orders", [f"order {number}" for number in range(8)])
                await server.asyncio.wait_until(lambda: sum(server.committed("billing").values()) == 8, TIMEOUT_S)
            group = await server.asyncio.wait_until_stable("billing", members=1, timeout_s=TIMEOUT_S)
            assert len(group.members[0].assignment) == 4

    asyncio.run(scenario())
    assert len(set(booked)) == len(booked) == 8


@pytest.mark.groupcoord_server(topics={"orders": 4})
def test_a_service_goes_on_where_the_last_one_was(groupcoord_server: ServerThread) -> None:
    """What was committed before a restart is not booked again."""
    server, first, second = groupcoord_server, [], []

    async def scenario(booked: list[str], count: int) -> None:
        async with running(OrderService(server.bootstrap, booked.append)):
            await server.asyncio.wait_until(lambda: sum(server.committed("billing").values()) == count, TIMEOUT_S)

    server.produce("orders", ["before"])
    asyncio.run(scenario(first, 1))
    server.produce("orders", ["after"])
    asyncio.run(scenario(second, 2))

    assert (first, second) == (["before"], ["after"])


@pytest.mark.groupcoord_server(topics={"orders": 4})
def test_a_killed_service_leaves_an_order_that_is_booked_twice(groupcoord_server: ServerThread) -> None:
    """A service dies after it has booked an order, before the commit: the next one books it again, and goes on.

    The session of the dead one takes 45 seconds, which the test lets pass on the server's clock.
    """
    server, booked = groupcoord_server, []
    server.produce("orders", ["one", "fatal", "three"], partition=0)
    killed = subprocess.run(
        [sys.executable, __file__, server.bootstrap], stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S
    )
    (silent,) = server.members("billing")  # it did not say good-bye
    server.clock.advance(SESSION_TIMEOUT_MS)
    assert silent not in server.members("billing")

    async def scenario() -> None:
        async with running(OrderService(server.bootstrap, booked.append)):
            await server.asyncio.wait_until(lambda: server.committed("billing") == {("orders", 0): 3}, TIMEOUT_S)

    asyncio.run(scenario())
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout.split() == ["one", "fatal"]
    assert booked == ["fatal", "three"]


def book_or_die(order: str) -> None:
    """Book an order by printing it; the fatal one ends the process before anything else can happen."""
    print(order, flush=True)
    if order == "fatal":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(OrderService(sys.argv[1], book_or_die).run())
