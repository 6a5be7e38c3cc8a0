"""A machine's clock that is set back or forward: under a running server, and between two of its lives."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from groupcoord import Config, ErrorCode, ManualClock
from groupcoord.broker.broker import Broker, make_broker
from groupcoord.clock import Clock, SystemClock
from groupcoord.host.opening import open_log_store
from groupcoord.messages import (
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    JoinProtocol,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    SyncGroup,
    TopicToCommit,
)

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
CONFIG = Config(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0, log_flush_interval_ms=500)


class SteppedTime:
    """The two clocks of a machine: the wall clock can be set, the monotonic one can't."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ms, self.uptime_ms = NOW_MS, 5_000
        monkeypatch.setattr(time, "time_ns", lambda: self.wall_ms * 1_000_000)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.uptime_ms * 1_000_000)

    def pass_ms(self, duration_ms: int) -> None:
        self.wall_ms += duration_ms
        self.uptime_ms += duration_ms


def open_broker(directory: Path, clock: Clock) -> Broker:
    broker = make_broker(
        config=CONFIG,
        clock=clock,
        log_store=open_log_store(directory, CONFIG),
    )
    with broker.topics.edit() as edit:
        edit.create("orders", 1)
    return broker


def commit(broker: Broker, offset: int) -> ErrorCode:
    topics = (TopicToCommit("orders", (OffsetToCommit(0, offset),)),)
    return broker.coordinator.call(OffsetCommit("simple", topics)).topics[0].partitions[0].error_code


def committed(broker: Broker) -> int:
    (group,) = broker.coordinator.call(OffsetFetch((GroupToFetch("simple"),))).groups
    return group.topics[0].partitions[0].committed_offset if group.topics else -1


def join(broker: Broker) -> tuple[str, int]:
    request = JoinGroup(
        "g", protocols=(JoinProtocol("range", b""),), session_timeout_ms=10_000, requires_known_member_id=False
    )
    broker.coordinator.submit(request, "join")
    broker.coordinator.tick()
    ((_, joined),) = broker.coordinator.take_replies()
    broker.coordinator.call(SyncGroup("g", joined.generation_id, joined.member_id))
    return joined.member_id, joined.generation_id


@pytest.mark.parametrize("step_ms", [-40 * DAY_MS, -1, 3_600_000, 40 * DAY_MS])
def test_a_step_under_a_running_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_ms: int) -> None:
    """Sessions end in time, no offset expires, and writes and flushes continue, whatever the wall clock."""
    machine = SteppedTime(monkeypatch)
    broker = open_broker(tmp_path, SystemClock())
    assert commit(broker, 1) is ErrorCode.NONE
    member_id, generation_id = join(broker)
    machine.wall_ms += step_ms
    broker.tick()
    broker.reload_failed()
    for offset in range(2, 5):
        machine.pass_ms(9_000)
        broker.tick()
        assert broker.log_store.flush_due(broker.clock.now_ms()) is None  # type: ignore[attr-defined]
        assert commit(broker, offset) is ErrorCode.NONE
        heartbeat = broker.coordinator.call(Heartbeat("g", generation_id, member_id))
        assert heartbeat.error_code is ErrorCode.NONE
    machine.pass_ms(10_000)
    broker.tick()
    heartbeat = broker.coordinator.call(Heartbeat("g", generation_id, member_id))
    assert heartbeat.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(broker) == 4
    broker.coordinator.check()
    broker.close()


@pytest.mark.parametrize("step_ms", [-40 * DAY_MS, -1, DAY_MS, 6 * DAY_MS])
def test_a_step_between_two_lives(tmp_path: Path, step_ms: int) -> None:
    """Records with times in the future or days ago load; members have a whole session, and commits continue."""
    first = open_broker(tmp_path, ManualClock(NOW_MS))
    assert commit(first, 1) is ErrorCode.NONE
    member_id, generation_id = join(first)
    first.close()
    clock = ManualClock(NOW_MS + step_ms)
    broker = open_broker(tmp_path, clock)
    for _ in range(2):
        clock.advance(9_000)
        broker.tick()
        heartbeat = broker.coordinator.call(Heartbeat("g", generation_id, member_id))
        assert heartbeat.error_code is ErrorCode.NONE
    assert committed(broker) == 1
    assert commit(broker, 2) is ErrorCode.NONE
    clock.advance(DAY_MS // 2)
    broker.tick()
    assert committed(broker) == 2
    broker.coordinator.check()
    broker.close()


def test_offsets_written_in_the_future_expire_in_the_end(tmp_path: Path) -> None:
    """As in Kafka, an offset is kept until the retention after the time it was written with is over."""
    first = open_broker(tmp_path, ManualClock(NOW_MS + DAY_MS))
    assert commit(first, 1) is ErrorCode.NONE
    first.close()
    clock = ManualClock(NOW_MS)
    broker = open_broker(tmp_path, clock)
    clock.advance(8 * DAY_MS - 1)
    broker.tick()
    assert committed(broker) == 1
    clock.advance(CONFIG.offsets_retention_check_interval_ms)
    broker.tick()
    assert committed(broker) == -1
    broker.close()
