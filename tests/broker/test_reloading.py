"""Log partitions that can't be loaded: the others are served, retries become rarer, and each reason is logged once."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from groupcoord import Config, LoadError, LogStoreError, ManualClock, MemoryLogStore, PartitionStatus
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.broker.groups import LONGEST_PAUSE_MS
from groupcoord.core.messages import Heartbeat, HeartbeatResponse
from groupcoord.log_store import LogRecord

COUNT = 3


class BrokenStore(MemoryLogStore):
    """A store of which some partitions can't be read; it counts the tries."""

    def __init__(self, **broken: str) -> None:
        super().__init__()
        self.broken = {int(name.removeprefix("p")): reason for name, reason in broken.items()}
        self.tries: list[int] = []

    def read(self, partition: int) -> Iterator[LogRecord]:
        self.tries.append(partition)
        if partition in self.broken:
            raise LogStoreError(self.broken[partition])
        return iter(super().read(partition))


def new_broker(store: MemoryLogStore) -> tuple[Broker, ManualClock]:
    clock = ManualClock(1_000_000)
    return make_broker(config=Config(offsets_topic_num_partitions=COUNT), clock=clock, log_store=store), clock


def status_names(broker: Broker) -> list[str]:
    return [broker.coordinator.status(partition).name for partition in range(COUNT)]


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def error_of(broker: Broker, partition: int) -> str:
    """Return what a heartbeat to a group of this log partition is answered."""
    group_id = next(name for name in "abcdefghij" if broker.coordinator.partition_of(name) == partition)
    response = broker.coordinator.call(Heartbeat(group_id, 1, "m"))
    assert isinstance(response, HeartbeatResponse)
    return str(response.error_code.name)


def test_the_others_are_served(caplog: pytest.LogCaptureFixture) -> None:
    """Groups of a failed partition get NOT_COORDINATOR, all others are served, and each failure is one line."""
    broker, _ = new_broker(BrokenStore(p0="f0 is corrupt at position 7: bad", p2="f2 is gone"))
    assert status_names(broker) == ["FAILED", "ACTIVE", "FAILED"]
    assert [error_of(broker, partition) for partition in range(COUNT)] == [
        "NOT_COORDINATOR",
        "UNKNOWN_MEMBER_ID",
        "NOT_COORDINATOR",
    ]
    first, second = messages(caplog, logging.ERROR)
    assert "log partition 0" in first
    assert "f0 is corrupt at position 7: bad" in first
    assert "log partition 2" in second
    assert "f2 is gone" in second


def test_nothing_to_serve() -> None:
    """If not one partition can be loaded there is no broker."""
    with pytest.raises(LoadError, match="log partition 1"):
        new_broker(BrokenStore(p0="x", p1="y", p2="z"))


def test_retries_get_rarer(caplog: pytest.LogCaptureFixture) -> None:
    """The pause doubles from a second to a minute; trying again and failing alike is not logged again."""
    store = BrokenStore(p1="broken")
    broker, clock = new_broker(store)
    store.tries.clear()
    tried_s = []
    for second in range(1, 300):
        clock.advance(1_000)
        broker.reload_failed()
        if store.tries:
            assert store.tries == [1]
            store.tries.clear()
            tried_s.append(second)
    assert tried_s == [1, 3, 7, 15, 31, 63, 123, 183, 243]
    assert LONGEST_PAUSE_MS == 60_000
    assert len(messages(caplog, logging.ERROR)) == 1
    store.broken[1] = "broken in another way"
    clock.advance(LONGEST_PAUSE_MS)
    broker.reload_failed()
    assert ["another way" in message for message in messages(caplog, logging.ERROR)] == [False, True]


def test_a_repaired_partition_is_served_again(caplog: pytest.LogCaptureFixture) -> None:
    """The next try that succeeds is logged, and a later failure is tried again at short intervals, as the first was."""
    store = BrokenStore(p1="broken")
    broker, clock = new_broker(store)
    for _ in range(4):
        clock.advance(LONGEST_PAUSE_MS)
        broker.reload_failed()
    del store.broken[1]
    clock.advance(LONGEST_PAUSE_MS)
    broker.reload_failed()
    assert broker.coordinator.status(1) is PartitionStatus.ACTIVE
    (again,) = messages(caplog, logging.WARNING)
    assert "log partition 1" in again
    assert broker.loading._failures == {}
