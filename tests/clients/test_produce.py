"""Producers of three libraries learn at once that nothing is kept: a failed send, no retries until a time-out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.clients.fleet import TOPIC
from tests.processes import ServerProcess

pytestmark = pytest.mark.usefixtures("client_libraries")

AT_ONCE_S = 5.0
"""Far below the libraries' delivery time-outs: two minutes, five in confluent-kafka."""

LONGEST_S = 20.0


def send_with_kafka_python(bootstrap: str, acks: int | str, is_idempotent: bool) -> str:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    producer = KafkaProducer(bootstrap_servers=bootstrap, acks=acks, enable_idempotence=is_idempotent)
    try:
        producer.send(TOPIC, b"value").get(timeout=LONGEST_S)
    except KafkaError as error:
        return type(error).__name__
    finally:
        producer.close(timeout=1)
    return "sent"


def send_with_aiokafka(bootstrap: str, acks: int | str, is_idempotent: bool) -> str:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    async def send() -> str:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks=acks, enable_idempotence=is_idempotent)
        await producer.start()
        try:
            await asyncio.wait_for(producer.send_and_wait(TOPIC, b"value"), LONGEST_S)
        except KafkaError as error:
            return type(error).__name__
        finally:
            await producer.stop()
        return "sent"

    return asyncio.run(send())


def send_with_confluent(bootstrap: str, acks: int | str, is_idempotent: bool) -> str:
    from confluent_kafka import KafkaError, Message, Producer

    settings = {"bootstrap.servers": bootstrap, "acks": acks, "enable.idempotence": is_idempotent, "log_level": 0}
    producer = Producer(settings)
    outcomes: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        outcomes.append("sent" if error is None else error.name())

    producer.produce(TOPIC, b"value", on_delivery=on_delivery)
    assert producer.flush(LONGEST_S) == 0
    (outcome,) = outcomes
    return outcome


Send = Callable[[str, "int | str", bool], str]


@pytest.mark.parametrize(
    ("send", "error"),
    [
        pytest.param(send_with_kafka_python, "PolicyViolationError", id="kafka-python"),
        pytest.param(send_with_aiokafka, "PolicyViolationError", id="aiokafka"),
        pytest.param(send_with_confluent, "POLICY_VIOLATION", id="confluent-kafka"),
    ],
)
@pytest.mark.parametrize(("acks", "is_idempotent"), [(1, False), ("all", False), ("all", True)])
def test_a_send_fails_at_once(
    server: ServerProcess, send: Send, error: str, acks: int | str, is_idempotent: bool
) -> None:
    """The library reports the error that the server answered, idempotent producer or not, and does not try again."""
    begin = time.monotonic()
    assert send(server.bootstrap, acks, is_idempotent) == error
    assert time.monotonic() - begin < AT_ONCE_S


def test_nobody_waits_with_acks_0(server: ServerProcess) -> None:
    """A producer that wants no answer is done when the request is written."""
    assert send_with_confluent(server.bootstrap, 0, False) == "sent"
