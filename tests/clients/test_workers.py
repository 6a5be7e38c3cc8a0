"""Real clients go on while workers of a server of several processes are killed: nothing acknowledged is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.services import COUNT, DEADLINE_S, RUNS, TOPIC, Service
from tests.host.workers import serve_by_workers

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("client_libraries")]


def records_of(bootstrap: str, isolation: str = "read_uncommitted") -> list[bytes]:
    """Return all records of the topic."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation})
    found = []
    for index in range(3):
        low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, index), timeout=DEADLINE_S)
        consumer.assign([TopicPartition(TOPIC, index, low)])
        while high > low:
            message: Any = consumer.poll(5)
            if message is None:
                break
            found.append(message.value())
            low = message.offset() + 1
    consumer.close()
    return found


@pytest.mark.parametrize("run", RUNS)
def test_clients_go_on_while_workers_are_killed(tmp_path: Path, run: Callable[[Service], None]) -> None:
    """Each worker is killed twice: all that was acknowledged is in the topic, and is booked."""
    with serve_by_workers(tmp_path, "--topic", f"{TOPIC}:3") as workers:
        service = Service(workers.bootstrap)
        thread = threading.Thread(target=run, args=(service,))
        thread.start()
        try:
            for part in range(1, 5):
                service.wait_for(part * COUNT // 6)
                workers.kill_one()
            service.wait_for(COUNT)
        finally:
            service.ends.set()
            thread.join(DEADLINE_S)
        kept = records_of(workers.bootstrap)
        assert len(service.acknowledged) == COUNT
        assert set(service.acknowledged) <= set(kept)
        assert set(service.booked) == set(kept)


@pytest.mark.slow
def test_transactions_over_workers_that_are_killed(tmp_path: Path) -> None:
    """A pipeline reads, writes to all partitions and commits its offsets in transactions: each record's copy is there
    once, whichever worker was killed meanwhile."""
    from confluent_kafka import Consumer, KafkaException, Producer

    with serve_by_workers(tmp_path, "--topic", "in:3", "--topic", f"{TOPIC}:3") as workers:
        quiet = {"bootstrap.servers": workers.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        # Else librdkafka bootstraps anew when no broker is connected, and send_offsets_to_transaction() waits for ever
        # for a coordinator that it has given up (docs/client-bugs.md).
        quiet["metadata.recovery.strategy"] = "none"
        plain = Producer(quiet)
        for number in range(COUNT):
            plain.produce("in", b"%d" % number, partition=number % 3)
        plain.flush(DEADLINE_S)
        producer = Producer({**quiet, "transactional.id": "pipeline"})
        producer.init_transactions(DEADLINE_S)
        settings = {"group.id": "pipeline", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**quiet, **settings})
        consumer.subscribe(["in"])
        done = silent_s = 0
        while done < COUNT:
            messages = consumer.consume(COUNT // 6, timeout=1)
            silent_s = 0 if messages else silent_s + 1
            assert silent_s < 2 * DEADLINE_S, f"nothing comes any more, after {done} of {COUNT} records"
            if not messages:
                continue
            producer.begin_transaction()
            try:
                for message in messages:
                    producer.produce(TOPIC, message.value(), partition=done % 3)
                    done += 1
                positions = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), DEADLINE_S)
                workers.kill_one()
                producer.commit_transaction(DEADLINE_S)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(DEADLINE_S)
                done -= len(messages)
                positions = consumer.committed(consumer.assignment(), DEADLINE_S)
                for position in positions:
                    position.offset = max(position.offset, 0)
                    consumer.seek(position)
        consumer.close()
        assert sorted(records_of(workers.bootstrap, "read_committed")) == sorted(
            b"%d" % number for number in range(COUNT)
        )
