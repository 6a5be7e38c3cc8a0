"""The server inside of this process serves clients, keeps its data, follows a virtual clock and stops cleanly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from groupcoord import ConfigError, ManualClock
from groupcoord.broker.broker import Broker
from groupcoord.messages import (
    ConsumerGroupDescribe,
    GroupToFetch,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    TopicToCommit,
)
from groupcoord.testing import ServerThread
from groupcoord.testing.machine.modern_members import Kip848Consumer
from tests.client import Client, api_versions

CLIENTS_TIMEOUT_S = 60.0
WEEK_MS = 7 * 24 * 3_600_000
START_MS = 1_700_000_000_000


def count_apis(port: int) -> int:
    with Client(port) as client:
        return len(client.ask(api_versions())["api_keys"])


def commit(broker: Broker) -> None:
    broker.coordinator.call(OffsetCommit("g", (TopicToCommit("orders", (OffsetToCommit(0, 42),)),)))


def committed(broker: Broker) -> dict[str, int]:
    """Return topic → committed offset of partition 0."""
    (group,) = broker.coordinator.call(OffsetFetch((GroupToFetch("g"),))).groups
    return {str(topic.name): topic.partitions[0].committed_offset for topic in group.topics}


def test_consumer_groups_assign_at_once() -> None:
    """A second member of a consumer group (KIP-848) has a target at once; settings of a test take precedence."""

    def target_epochs(**settings: int) -> list[int]:
        with ServerThread(topics={"orders": 3}, settings=settings) as server:
            for name in ("a", "b"):
                join = Kip848Consumer(name, "g").join_request()
                server.run(lambda broker, join=join: broker.coordinator.call(join))
            described = server.run(lambda broker: broker.coordinator.call(ConsumerGroupDescribe(("g",)))).groups[0]
            return [described.group_epoch, described.assignment_epoch]

    assert target_epochs() == [3, 3]
    assert target_epochs(group_consumer_assignment_interval_ms=1_000) == [3, 2]


def test_nothing_is_left_behind() -> None:
    threads = threading.active_count()
    with ServerThread() as server:
        assert threading.active_count() > threads
        port = server.port

    assert threading.active_count() == threads
    with pytest.raises(ConnectionRefusedError):
        count_apis(port)


def test_stopping_twice_is_no_mistake() -> None:
    """A server that does not run can be stopped; one that runs can't be started."""
    server = ServerThread()
    server.stop()
    server.start()
    with pytest.raises(RuntimeError, match="runs already"):
        server.start()
    server.stop()
    server.stop()
    with pytest.raises(RuntimeError, match="does not run"):
        server.run(lambda broker: None)


def test_data_survives_a_restart(tmp_path: Path) -> None:
    """Offsets and topics are there after a restart; the number of log partitions stays that of the first start."""
    with ServerThread(topics={"orders": 1}, data_dir=tmp_path, settings={"offsets.topic.num.partitions": 3}) as server:
        server.run(commit)
    with ServerThread(data_dir=tmp_path) as again:
        assert again.run(committed) == {"orders": 42}
        assert again.run(lambda broker: broker.topics.partition_count("orders")) == 1


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """An error at the start is raised by the call, and leaves no thread."""
    path = tmp_path / "file"
    path.write_text("x")
    threads = threading.active_count()
    with pytest.raises(OSError, match="file"):
        ServerThread(data_dir=path).start()

    assert threading.active_count() == threads


def test_settings_have_kafkas_keys() -> None:
    """Keys may be spelled with dots or underscores; an unknown one is refused before anything is started."""
    with ServerThread(settings={"group.max.size": 5, "group_initial_rebalance_delay_ms": "100"}) as server:
        config = server.run(lambda broker: broker.config)
    assert (config.group_max_size, config.group_initial_rebalance_delay_ms) == (5, 100)
    with pytest.raises(ConfigError, match="did you mean"):
        ServerThread(settings={"group.max.sizes": 5})


def test_time_is_the_tests() -> None:
    """On a manual clock a week passes at once, and offsets expire on the way."""
    clock = ManualClock(START_MS)
    with ServerThread(topics={"orders": 1}, clock=clock, settings={"offsets.topic.num.partitions": 1}) as server:
        server.run(commit)
        server.advance(WEEK_MS - 1)
        assert server.run(committed) == {"orders": 42}
        server.advance(600_000)
        assert server.run(committed) == {}
        assert clock.now_ms() == START_MS + WEEK_MS - 1 + 600_000
        with pytest.raises(ValueError, match="the duration must not be negative"):
            server.advance(-1)


def test_real_time_goes_on_and_can_be_turned_forward() -> None:
    """Without a clock of the test's a week passes at once as well, on top of the time that passes anyway."""
    with ServerThread(topics={"orders": 1}, settings={"offsets.topic.num.partitions": 1}) as server:
        server.run(commit)
        before_ms = server.clock.now_ms()
        server.clock.advance(WEEK_MS + 600_000)
        assert before_ms + WEEK_MS + 600_000 <= server.clock.now_ms() < before_ms + WEEK_MS + 1_200_000
        assert server.run(committed) == {}
        with pytest.raises(ValueError, match="the duration must not be negative"):
            server.clock.advance(-1)


def test_what_waits_is_due_sooner_when_time_was_turned_forward() -> None:
    """After all but the end of a delay was skipped, only the end has to pass: the commit is handled then."""
    consumer_module = pytest.importorskip("confluent_kafka")
    with ServerThread(topics={"orders": 1}) as server:
        consumer = consumer_module.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g"})
        delayed = server.delay("OffsetCommit", WEEK_MS)
        consumer.commit(offsets=[consumer_module.TopicPartition("orders", 0, 42)], asynchronous=True)
        delayed.wait()
        server.clock.advance(WEEK_MS - 20)
        deadline_s = time.monotonic() + CLIENTS_TIMEOUT_S
        while server.run(committed) != {"orders": 42}:
            assert time.monotonic() < deadline_s
        consumer.close()


def test_errors_of_a_function_are_raised_here() -> None:
    """An exception of a function in the server's thread reaches its caller, and the server continues."""

    def fail(broker: Broker) -> None:
        raise LookupError("nothing here")

    with ServerThread() as server:
        with pytest.raises(LookupError, match="nothing here"):
            server.run(fail)
        assert count_apis(server.port) > 20


# ---------------------------------------------------------------- the fixtures


@pytest.mark.groupcoord_server(topics={"orders": 3}, settings={"group.max.size": 7})
class TestMarked:
    """A marker of a class holds for its tests; one of a test comes before it."""

    def test_the_marker_has_options(self, groupcoord_server: ServerThread) -> None:
        assert groupcoord_server.run(lambda broker: broker.topics.partition_count("orders")) == 3
        assert groupcoord_server.run(lambda broker: broker.config.group_max_size) == 7

    @pytest.mark.groupcoord_server(topics={"bills": 1}, data_dir=True)
    def test_the_nearest_marker_counts(self, groupcoord_server: ServerThread, tmp_path: Path) -> None:
        """The test's marker replaces that of the class; a directory is made on request."""
        assert groupcoord_server.run(lambda broker: broker.topics.partition_count("orders")) is None
        assert groupcoord_server.run(lambda broker: broker.config.group_max_size) == 7
        assert (tmp_path / "groupcoord").is_dir()


def test_the_factory_starts_several(groupcoord_server_factory: Callable[..., ServerThread], tmp_path: Path) -> None:
    """Servers of one test don't share anything but what they are given."""
    first, second = groupcoord_server_factory(), groupcoord_server_factory(data_dir=tmp_path)
    first.run(commit)

    assert first.bootstrap != second.bootstrap
    assert second.run(committed) == {}
