"""Services that send records and book them with a client library, while a test lets the server change."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from tests.clients.libraries import CONSUMERS, PRODUCERS

TOPIC, GROUP = "orders", "billing"
COUNT = 60
DEADLINE_S = 60.0


class Service:
    """Produces and consumes records with a client library until ended. Attributes: acknowledged: the acknowledged
    values. booked: the consumed values, repetitions included.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.acknowledged: list[bytes] = []
        self.booked: list[bytes] = []
        self.ends = threading.Event()

    def wait_for(self, count: int) -> None:
        """Wait for a number of booked records."""
        deadline_s = time.monotonic() + DEADLINE_S
        while len(set(self.booked)) < count:
            assert time.monotonic() < deadline_s, f"{len(set(self.booked))} of {count} are booked"
            time.sleep(0.02)


def values() -> Iterator[bytes]:
    for number in range(COUNT):
        yield b"%d" % number


def run(library: str, service: Service) -> None:
    """Send a record, consume, and commit what was consumed, again and again."""
    backoff = {"retry_backoff_ms": 50, "reconnect_backoff_max_ms": 200}
    left = values()
    with (
        PRODUCERS[library](service.bootstrap, TOPIC, acks="all", retries=50, **backoff) as producer,
        CONSUMERS[library](
            service.bootstrap, GROUP, TOPIC, subscribes=True, auto_offset_reset="earliest", **backoff
        ) as consumer,
    ):
        while not service.ends.is_set():
            value = next(left, None)
            if value is not None:
                producer.send([value])
                service.acknowledged.append(value)
            with contextlib.suppress(Exception):  # what can't be committed, as the group has moved on, comes again
                records = consumer.poll(0.02)
                service.booked += [record.value for record in records]
                if records:
                    consumer.commit({record.partition: (record.offset + 1, "") for record in records})
