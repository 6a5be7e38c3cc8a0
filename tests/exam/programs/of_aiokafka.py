"""The consumer and the producer of aiokafka's README, put together: each record is booked, offsets go by default.

``python of_aiokafka.py BOOTSTRAP GROUP TOPIC OUTPUT``
"""

from __future__ import annotations

import asyncio
import signal
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def consume(bootstrap: str, group: str, topic: str, output: str) -> None:
    """Book records until the task is cancelled."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    await producer.start()
    await consumer.start()
    try:
        async for message in consumer:
            await producer.send_and_wait(output, message.value)
    finally:
        await consumer.stop()
        await producer.stop()


async def main(*arguments: str) -> None:
    """Book records until SIGTERM comes."""
    work = asyncio.ensure_future(consume(*arguments))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    await asyncio.wait([work])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
