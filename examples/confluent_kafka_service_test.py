"""A consumer service in threads, with confluent-kafka, and its tests: rebalance, commit, a crash, duplicates.

``OrderService`` is the code under test: each one is a thread with a consumer. It books each order and then commits. The
tests go through both protocols of groups, the classic one and that of KIP-848: one setting of the service.

    pip install '.[serve]' pytest confluent-kafka
    pytest examples/confluent_kafka_service_test.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException

from groupcoord.testing import ServerThread

SETTINGS = {
    "classic": {"group.protocol": "classic", "session.timeout.ms": "45000", "heartbeat.interval.ms": "100"},
    "consumer": {"group.protocol": "consumer"},
}
"""What the service is told for each protocol; with that of KIP-848 time-outs and intervals are the server's."""

SESSION_TIMEOUT_MS = 45_000
TIMEOUT_S = 30.0


# ---------------------------------------------------------------- the code under test


class OrderService(threading.Thread):
    """Books the orders of a topic, as one of several.

    Args:
        bootstrap: the address of a broker.
        settings: of the consumer, besides.
        book: is given each order's text.
    """

    def __init__(self, bootstrap: str, settings: dict[str, str], book: Callable[[str], None]) -> None:
        super().__init__()
        own = {"group.id": "billing", "enable.auto.commit": "false", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **own, **settings})
        self._book = book
        self._ends = threading.Event()

    def run(self) -> None:
        """Book orders until :meth:`end`."""
        self._consumer.subscribe(["orders"])
        while not self._ends.is_set():
            message = self._consumer.poll(0.05)
            if message is None or message.error():
                continue
            self._book(message.value().decode())
            try:
                self._consumer.commit(message, asynchronous=False)
            except KafkaException:
                continue  # another one has the partition now, and books it again
        self._consumer.close()

    def end(self) -> None:
        """Stop, and leave the group."""
        self._ends.set()
        self.join()

    def __enter__(self) -> OrderService:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


# ---------------------------------------------------------------- the tests


@pytest.mark.parametrize("protocol", SETTINGS)
@pytest.mark.groupcoord_server(topics={"orders": 4})
def test_services_share_the_orders(groupcoord_server: ServerThread, protocol: str) -> None:
    """A second service gets half of the partitions, and gives them back when it goes; each order is booked once."""
    server, booked = groupcoord_server, []
    orders = [f"order {number:02}" for number in range(16)]
    with OrderService(server.bootstrap, SETTINGS[protocol], booked.append):
        server.produce("orders", orders[:8])
        server.wait_until(lambda: sum(server.committed("billing").values()) == 8, TIMEOUT_S)
        with OrderService(server.bootstrap, SETTINGS[protocol], booked.append):
            group = server.wait_until_stable("billing", members=2, timeout_s=TIMEOUT_S)
            assert (group.type, [len(member.assignment) for member in group.members]) == (protocol, [2, 2])
            server.produce("orders", orders[8:])
            server.wait_until(lambda: sum(server.committed("billing").values()) == 16, TIMEOUT_S)
        group = server.wait_until_stable("billing", members=1, timeout_s=TIMEOUT_S)
        assert len(group.members[0].assignment) == 4

    assert sorted(booked) == orders
    assert server.committed("billing") == {("orders", partition): 4 for partition in range(4)}


@pytest.mark.groupcoord_server(topics={"orders": 4})
def test_a_service_goes_on_where_the_last_one_was(groupcoord_server: ServerThread) -> None:
    """What was committed before a restart is not booked again."""
    server, booked = groupcoord_server, []
    for count, order in enumerate(["before", "after"], 1):
        server.produce("orders", [order], partition=0)
        with OrderService(server.bootstrap, SETTINGS["consumer"], booked.append):
            server.wait_until(partial(committed_up_to, server, count), TIMEOUT_S)

    assert booked == ["before", "after"]


def committed_up_to(server: ServerThread, offset: int) -> bool:
    """Tell whether the service has committed so much of the first partition."""
    return server.committed("billing") == {("orders", 0): offset}


@pytest.mark.parametrize("protocol", SETTINGS)
@pytest.mark.groupcoord_server(topics={"orders": 4})
def test_a_killed_service_leaves_an_order_that_is_booked_twice(groupcoord_server: ServerThread, protocol: str) -> None:
    """A service dies after it has booked an order, before the commit: the next one books it again, and goes on.

    The session of the dead one takes 45 seconds, which the test lets pass on the server's clock.
    """
    server, booked = groupcoord_server, []
    server.produce("orders", ["one", "fatal", "three"], partition=0)
    words = [sys.executable, __file__, server.bootstrap, protocol]
    killed = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
    (silent,) = server.members("billing")  # it did not say good-bye
    server.clock.advance(SESSION_TIMEOUT_MS)
    assert silent not in server.members("billing")
    with OrderService(server.bootstrap, SETTINGS[protocol], booked.append):
        server.wait_until(partial(committed_up_to, server, 3), TIMEOUT_S)

    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout.split() == ["one", "fatal"]
    assert booked == ["fatal", "three"]


def book_or_die(order: str) -> None:
    """Book an order by printing it; the fatal one ends the process before anything else can happen."""
    print(order, flush=True)
    if order == "fatal":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    OrderService(sys.argv[1], SETTINGS[sys.argv[2]], book_or_die).run()
