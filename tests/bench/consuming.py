"""How fast a real consumer (librdkafka) reads a topic from servers, side by side: groupcoord and a real broker.

    python -m tests.bench.consuming [--target NAME='COMMAND {port} {directory} {settings}'] … [--kafka SCRIPT] [--kfake]
                                    [--mebibytes 1024] [--rounds 3]

All servers run at once; the same records of 1 KiB are produced to each, and then read from one after the other, again
and again, by one consumer that looks at nothing. Printed are medians of the rounds: MiB for each second, and the CPU
seconds of the server for each GiB; ratios are to the last server.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from tests.bench.under_load import parser_of, running, targets_of

RECORD = bytes(range(256)) * 4
TOPIC, PARTITIONS = "t", 4
AT_A_TIME, LONGEST_S = 10_000, 600.0


def fill(port: int, count: int) -> None:
    """Produce records, and wait until all are acknowledged."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 50, "queue.buffering.max.messages": 200_000}
    producer = Producer(settings | {"queue.buffering.max.kbytes": 1 << 20})
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, RECORD, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(LONGEST_S) == 0


def read(port: int, count: int) -> float:
    """Read all records; return how many seconds it took from the first to the last."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer(settings | {"queued.max.messages.kbytes": 1 << 18, "queued.min.messages": 1_000_000})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found, began_s = 0, 0.0
    while found < count:
        records = consumer.consume(min(AT_A_TIME, count - found), 30.0)
        assert records, f"nothing comes after {found} of {count} records"
        began_s = began_s or time.monotonic()
        found += len(records)
    took_s = time.monotonic() - began_s
    consumer.close()
    return took_s


def compare(targets: dict[str, str], mebibytes: int, rounds: int) -> None:
    """Fill all servers, read from each, and print."""
    count = mebibytes * 1024
    seconds: dict[str, list[float]] = {target: [] for target in targets}
    cpu: dict[str, list[float]] = {target: [] for target in targets}
    with (
        tempfile.TemporaryDirectory(prefix="groupcoord-consuming-", ignore_cleanup_errors=True) as name,
        running(targets, Path(name)) as servers,
    ):
        for server in servers.values():
            fill(server.port, count)
        for number in range(rounds + 1):  # the first makes servers warm, and a JVM compile
            for target, server in servers.items():
                before_s = server.cpu_seconds()
                took_s = read(server.port, count)
                seconds[target] += [took_s] * (number > 0)
                cpu[target] += [server.cpu_seconds() - before_s] * (number > 0)
    base = list(targets)[-1]
    base_s = statistics.median(seconds[base])
    for target in targets:
        took_s, cpu_s = statistics.median(seconds[target]), statistics.median(cpu[target]) * 1024 / mebibytes
        print(
            f"{target:12} {mebibytes / took_s:7.0f} MiB a second: {base_s / took_s:5.2f} x {base}; "
            f"{cpu_s:5.2f} s of CPU for a GiB"
        )


def main() -> None:
    """Measure and print."""
    parser = parser_of("consuming", __doc__)
    parser.add_argument("--mebibytes", type=int, default=1024)
    options = parser.parse_args()
    compare(targets_of(options), options.mebibytes, options.rounds)


if __name__ == "__main__":
    main()
