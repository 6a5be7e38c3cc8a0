"""Probes of a broker: what topics, records and transactions show of its settings."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from groupcoord import Config
from groupcoord.broker.topics.registry import Topic, TopicRegistry, ensure_internal_topic
from groupcoord.core.log.records import TRANSACTIONS_TOPIC
from groupcoord.records.batches import encode_batch, iter_batches
from tests.broker.data_world import START_MS, DataWorld, batch, fetch_of, part
from tests.broker.driving import feed
from tests.broker.test_created_topics import ask, broker
from tests.broker.transaction_world import TransactionWorld

HOUR_MS = 3_600_000


def start_producer(**settings: Any) -> str:
    return str(TransactionWorld().open(**settings).init(timeout_ms=60_000)[0])


def first_abort_ms(**settings: Any) -> int:
    """Return after how many milliseconds a transaction with a time-out of 1 ms is aborted."""
    world = TransactionWorld()
    settings = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 10_000, **settings}
    client = world.open(**settings)
    producer = client.start(timeout_ms=1)
    client.add_group(producer)
    begun_ms = world.clock.now_ms()
    while client.state() != "CompleteAbort":
        world.clock.advance_to(client.broker.next_deadline_ms() or 0)
        client.broker.tick()
    return world.clock.now_ms() - begun_ms


def state_after_an_hour(**settings: Any) -> str:
    world = TransactionWorld()
    client = world.open(**settings)
    client.start()
    world.clock.advance(HOUR_MS)
    client.broker.tick()
    return client.state() or "Dead"


# ---------------------------------------------------------------- topics


def segment_bytes_of(topic: str) -> Callable[..., str]:
    return lambda **settings: _internal_topic(topic, **settings).configs["segment.bytes"]


def partitions_of_transactions(**settings: Any) -> int:
    return _internal_topic(TRANSACTIONS_TOPIC, **settings).partition_count


def _internal_topic(name: str, **settings: Any) -> Topic:
    with TopicRegistry().edit() as edit:
        return ensure_internal_topic(edit, name, Config(**settings))


def partitions_of_new_topic(**settings: Any) -> int | None:
    made = broker(**settings)
    ask(made, "new")
    return made.topics.partition_count("new")


def is_created(**settings: Any) -> bool:
    made = broker(**settings)
    ask(made, "new")
    return made.topics.get("new") is not None


def refuses_a_request(**settings: Any) -> bool:
    connection = broker(**settings).connect("/127.0.0.1")
    feed(connection, struct.pack(">i", 100))
    return connection.closing is not None


# ---------------------------------------------------------------- records


def produce(**settings: Any) -> str:
    return DataWorld(**settings).produce(batch(b"v")).error_code.name


def produce_without_key(**settings: Any) -> str:
    records = encode_batch(0, [(None, b"v", START_MS)], leader_epoch=-1)
    return DataWorld(**settings).produce(records).error_code.name


def fetched_batches(**settings: Any) -> int:
    """Return how many of two batches, each larger than the least limit, one Fetch brings."""
    world = DataWorld(**settings)
    for _ in range(2):
        world.produce(batch(b"v" * 1_100))
    return len(list(iter_batches(b"".join(world.fetch().records))))


def has_a_fetch_session(**settings: Any) -> bool:
    request = fetch_of(part())
    request.session_epoch = request.max_wait_ms = 0
    return bool(DataWorld(**settings).ask(request).session_id)


def _log(world: DataWorld) -> Any:
    topic = world.topics.get("one")
    assert topic is not None
    return world.data.log(topic, 0)


def segments(**settings: Any) -> int:
    """Return how many segments there are for two batches of 1.1 MB."""
    world = DataWorld(message_max_bytes=2_000_000, **settings)
    world.configure("one", max_message_bytes="2000000")
    for _ in range(2):
        world.produce(batch(b"v" * 1_100_000))
    return len(list(_log(world).groups()))


def segments_over_time(**settings: Any) -> int:
    """Return how many segments there are for two batches a minute apart."""
    world = DataWorld(**settings)
    for minute in range(2):
        world.produce(batch(b"v", at_ms=START_MS + 60_000 * minute))
    return len(list(_log(world).groups()))


def start_offset_after_an_hour(**settings: Any) -> int:
    """Return where a log begins an hour after two batches that are a minute apart."""
    world = DataWorld(**settings)
    for minute in range(2):
        world.produce(batch(b"v", at_ms=START_MS + 60_000 * minute))
    world.clock.advance(HOUR_MS)
    world.data.tick(world.clock.now_ms())
    return int(_log(world).start_offset)


def first_retention_ms(**settings: Any) -> int:
    deadline_ms = DataWorld(**settings).data.next_deadline_ms()
    assert deadline_ms is not None
    return deadline_ms - START_MS


def _after_compaction(*values: bytes | None, passes: int = 1, **settings: Any) -> list[bytes | None]:
    """Return what is left of the values of a key, each in a closed segment, after passes of compaction."""
    world = DataWorld(log_cleanup_policy=("compact",), log_roll_ms=1, **settings)
    for number, value in enumerate(values):
        world.produce(encode_batch(0, [(b"k", value, START_MS + 1_000 * number)], leader_epoch=-1))
    for number in range(passes):
        world.produce(encode_batch(0, [(b"other", b"", START_MS + 60_000 * (number + 1))], leader_epoch=-1))
        world.clock.advance(60_000)
        while world.data.compact_some(world.clock.now_ms()):
            pass
    log = _log(world)
    data = b"".join(log.read(0, log.end_offset, 2**20, takes_first=True).parts)
    return [value for each in iter_batches(data) for _, _, key, value in each.records() if key == b"k"]


def records_after_compaction(**settings: Any) -> int:
    return len(_after_compaction(b"a", b"b", b"c", **settings))


def tombstones_after_compaction(**settings: Any) -> int:
    return len(_after_compaction(b"a", None, passes=2, log_cleaner_min_cleanable_ratio=0.0, **settings))
