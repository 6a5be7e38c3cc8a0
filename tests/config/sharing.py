"""Probes of share groups and the share coordinator: what consumers, states and dead letters show of settings."""

from __future__ import annotations

from typing import Any

from groupcoord import ErrorCode, MemoryLogStore
from groupcoord.core.share_state.records import SharePartitionKey
from groupcoord.records.batches import encode_batch, iter_batches
from tests.broker.sharing import REJECT, RELEASE, RENEW, SharingWorld
from tests.core.share_state.driver import TOPIC, Driver

LETTERS = {"errors_deadletterqueue_auto_create_topics_enable": True}
MINUTE_MS = 60_000


def _named(fetched: Any) -> Any:
    return fetched.name if isinstance(fetched, ErrorCode) else fetched


def deliveries(**settings: Any) -> int:
    """Return how often a record is delivered that is always released."""
    world = SharingWorld(**settings)
    world.produce(1)
    ann, count = world.client(), 0
    while ann.fetch():
        count += 1
        ann.acknowledge((0, 0, [RELEASE]))
    return count


def is_released_after_25_s(**settings: Any) -> bool:
    world = SharingWorld(**settings)
    world.produce(1)
    world.client().fetch()
    world.pass_time(25_000)
    return bool(world.client("ben").fetch())


def acquired_records(**settings: Any) -> int:
    """Return how many of 300 records in three batches are acquired at once."""
    world = SharingWorld(**settings)
    for _ in range(3):
        world.produce(100)
    return sum(last - first + 1 for first, last, _ in world.client().fetch())


def second_session(**settings: Any) -> Any:
    world = SharingWorld(**settings)
    world.client().fetch()
    ben = world.client("ben")
    fetched = ben.fetch(1_000)
    world.pass_time(1_000)
    return _named(ben.fetched() if fetched is None else fetched)


def fetch(own: dict[str, str]) -> Any:
    """Return what a group acquires of records that were produced before it."""
    world = SharingWorld()
    world.group_configs.replace({"g": own})
    world.produce(3)
    return world.client().fetch()


def reads_open_transactions(own: dict[str, str]) -> bool:
    world = SharingWorld(own)
    now_ms = world.clock.now_ms()
    data = encode_batch(
        0, [(b"k", b"v", now_ms)], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    world.log().append_encoded(data, 1, now_ms, world.data.settings_of(world.topics.get("jobs")))
    return bool(world.client().fetch())


def renew(own: dict[str, str]) -> str:
    world = SharingWorld(own)
    world.produce(1)
    ann = world.client()
    ann.fetch()
    return ann.acknowledge((0, 0, [RENEW]), is_renew_ack=True).name


def _rejecting(own: dict[str, str], **settings: Any) -> bytes:
    """Return the records of ``dlq.jobs`` when a group has rejected a record."""
    world = SharingWorld(own, **settings)
    world.produce(1)
    ann = world.client()
    ann.fetch()
    ann.acknowledge((0, 0, [REJECT]))
    world.pass_time(1_000)
    log = None if world.topics.get("dlq.jobs") is None else world.log("dlq.jobs")
    return b"" if log is None else b"".join(log.read(0, log.end_offset, 2**20, takes_first=True).parts)


def dead_letters(**settings: Any) -> int:
    data = _rejecting({"errors.deadletterqueue.topic.name": "dlq.jobs"}, **settings)
    return sum(batch.record_count for batch in iter_batches(data))


def dead_letters_of_group(own: dict[str, str]) -> int:
    return sum(batch.record_count for batch in iter_batches(_rejecting(own, **LETTERS)))


def copies_records(own: dict[str, str]) -> bool:
    return b"v0" in _rejecting({"errors.deadletterqueue.topic.name": "dlq.jobs", **own}, **LETTERS)


# ---------------------------------------------------------------- the share coordinator


def state_partition(**settings: Any) -> int:
    settings = {"share_coordinator_state_topic_num_partitions": 50, **settings}
    return Driver(**settings).coordinator.partition_of(SharePartitionKey("g", TOPIC, 0))


def write_timeout_ms(**settings: Any) -> int:
    driver = Driver(**settings)
    driver.store.acknowledge_late = True
    driver.submit(_initialize())
    now_ms = driver.clock.now_ms()
    deadline_ms = driver.coordinator.next_deadline_ms()
    assert deadline_ms is not None
    driver.clock.advance_to(deadline_ms)
    driver.coordinator.tick()
    assert driver.coordinator.take_replies()
    return deadline_ms - now_ms


def _initialize() -> Any:
    from groupcoord.core.messages import share_state as messages

    entry = messages.StateToInitialize(0, 0, 0)
    return messages.InitializeShareGroupState("g", (messages.StateTopicToInitialize(TOPIC, (entry,)),))


def _records(store: MemoryLogStore) -> list[Any]:
    return list(store.read(0))


def record_types(**settings: Any) -> list[str]:
    """Return the classes of the records of a state that was initialized and written once."""
    driver = Driver(**settings)
    driver.initialize()
    driver.write((0, 0, 2, 1))
    return [type(record.record).__name__ for record in _records(driver.store)]


def records_after_a_minute(**settings: Any) -> int:
    driver = Driver(share_coordinator_snapshot_update_records_per_snapshot=0, **settings)
    driver.initialize()
    driver.write((0, 0, 2, 1))
    driver.clock.advance(MINUTE_MS)
    driver.coordinator.tick()
    return len(_records(driver.store))
