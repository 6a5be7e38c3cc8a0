"""Lines about appends that fail: one at once, one every ten seconds, one when they work again."""

from __future__ import annotations

import pytest

from groupcoord import Config, ErrorCode, ManualClock, MemoryLogStore
from groupcoord.broker.broker import make_broker
from groupcoord.log_store import AppendTimedOutError, LogStoreError, RecordTooLargeError, StorageError
from groupcoord.messages import OffsetCommit, OffsetToCommit, TopicToCommit

FULL = StorageError("/data/__consumer_offsets-1/0.log: No space left on device")


class Host:
    """Broker with a failing log store and the checks that run once a second."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.store = MemoryLogStore()
        self.clock = ManualClock(1_000_000)
        self.broker = make_broker(config=Config(offsets_topic_num_partitions=3), clock=self.clock, log_store=self.store)
        with self.broker.topics.edit() as edit:
            edit.create("orders", 1)
        self._caplog = caplog

    def commit(self, *errors: LogStoreError, group_id: str = "g") -> ErrorCode:
        self.store.fail_next(*errors)
        topics = (TopicToCommit("orders", (OffsetToCommit(0, 1),)),)
        return self.broker.coordinator.call(OffsetCommit(group_id, topics)).topics[0].partitions[0].error_code

    def wait(self, seconds: int = 1) -> list[tuple[str, str]]:
        """Advance the clock by seconds; return levels and texts of the log lines."""
        self._caplog.clear()
        for _ in range(seconds):
            self.clock.advance(1_000)
            self.broker.reload_failed()
        return [(record.levelname, record.getMessage()) for record in self._caplog.records]


@pytest.fixture
def host(caplog: pytest.LogCaptureFixture) -> Host:
    return Host(caplog)


def test_lasting_failure_is_one_line_in_ten_seconds(host: Host) -> None:
    lines = []
    for _ in range(60):
        for _ in range(100):
            host.commit(FULL)
        lines += host.wait()

    assert len(lines) == 6
    assert {level for level, _ in lines} == {"ERROR"}
    assert [text.rpartition(": ")[2] for _, text in lines] == ["100)"] + 5 * ["1000)"]


def test_it_is_said_when_the_log_can_be_written_again(host: Host) -> None:
    """The first append that succeeds makes a line with the number of those that failed; no other line follows."""
    for _ in range(3):
        host.commit(FULL)
        host.wait()
    host.commit()

    assert host.wait(30) == [("WARNING", "the log can be written again (appends refused in the meantime: 3)")]


def test_all_partitions_must_have_been_written_again(host: Host) -> None:
    """A working log partition does not end the warning of another one."""
    one, other = "a", next(name for name in "bcdef" if host.broker.coordinator.partition_of(name) != 2)
    assert host.broker.coordinator.partition_of(one) != host.broker.coordinator.partition_of(other)
    host.commit(FULL, group_id=one)
    host.commit(FULL, group_id=other)
    host.wait()
    host.commit(group_id=one)

    assert host.wait(20) == []
    host.commit(group_id=other)
    assert [level for level, _ in host.wait()] == ["WARNING"]


def test_a_partition_that_failed_as_a_whole_is_not_called_written(host: Host) -> None:
    """The unknown outcome is logged, then that the partition was loaded again, which is no write."""
    assert host.commit(AppendTimedOutError("no answer")) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    (first, second) = host.wait(20)
    assert first == ("ERROR", "the log can't be written: no answer (appends refused: 1)")
    assert second[1].endswith("had failed and is loaded again")


def test_records_that_are_too_large_are_no_trouble_of_the_log(host: Host) -> None:
    """Errors that a client alone has caused are neither logged nor counted."""
    host.commit(RecordTooLargeError("2 MB"))

    assert host.wait() == []
    assert host.broker.coordinator.counters.append_failures == 0
