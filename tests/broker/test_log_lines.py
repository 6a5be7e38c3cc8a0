"""Lines in the server's log: failed appends, floods, and requests in vain."""

from __future__ import annotations

import logging

import pytest

from groupcoord import Config, ErrorCode, ManualClock, MemoryLogStore
from groupcoord.broker.broker import make_broker
from groupcoord.broker.configs.definitions import ALLOWS_DEAD_LETTERS, TOPIC_DEFINITIONS
from groupcoord.broker.log_lines import RateLimitedLogger
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.log_store import AppendTimedOutError, LogStoreError, RecordTooLargeError, StorageError
from groupcoord.messages import ConsumerGroupHeartbeat, OffsetCommit, OffsetToCommit, TopicToCommit
from groupcoord.wire.broker_messages import CreatableTopic, CreatableTopicConfig, CreateTopics
from groupcoord.wire.config_messages import (
    AlterConfigs,
    ConfigResourceType,
    ConfigToAlter,
    IncrementalAlterConfigs,
    ResourceToAlter,
)

# ---------------------------------------------------------------- failed appends


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


# ---------------------------------------------------------------- floods


logger = logging.getLogger("groupcoord.tests.limited_log")
WARNING, ERROR = logging.WARNING, logging.ERROR


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([(WARNING, "a", 0.0, "1"), (ERROR, "a", 0.1, "2")], [(WARNING, "1"), (ERROR, "2")]),
        (
            [*((WARNING, "a", number / 1_000, str(number)) for number in range(1_000)), 12.0],
            [(WARNING, "0"), (WARNING, "1"), (WARNING, "999 (a: the last of 998 lines left out in 12 s)")],
        ),
        (
            [(WARNING, "a", now_s, f"{now_s:g}") for now_s in (0.0, 1.0, 2.0, 10.0)],
            [(WARNING, text) for text in ("0", "1", "2 (a: the last of 1 line left out in 10 s)", "10")],
        ),
        (
            [*[(WARNING, "a", 0.0, "x")] * 100, (ERROR, "b", 0.0, "y")],
            [(WARNING, "x"), (WARNING, "x"), (ERROR, "y")],
        ),
        (
            [(level, "a", 0.0, "100% full") for level in (WARNING, WARNING, ERROR, WARNING)] + [9.9, 10.0, 30.0],
            [(WARNING, "100% full")] * 2 + [(ERROR, "100% full (a: the last of 2 lines left out in 10 s)")],
        ),
        ([*[(logging.DEBUG, "a", 0.0, "x")] * 100, 10.0], []),
    ],
    ids=["burst", "count", "next interval", "kinds", "loudest level", "suppressed"],
)
def test_lines(
    calls: list[tuple[int, str, float, str] | float], expected: object, caplog: pytest.LogCaptureFixture
) -> None:
    """A number among the calls is the time of a report."""
    log = RateLimitedLogger(logger, burst=2, interval_s=10)
    for call in calls:
        if isinstance(call, float):
            log.report(call)
        else:
            log.log(*call)

    assert [(level, text) for _, level, text in caplog.record_tuples] == expected


def test_a_traceback_can_go_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("planted")
    except ValueError:
        RateLimitedLogger(logger).log(ERROR, "internal error", 0.0, "it failed", exc_info=True)

    assert "ValueError: planted" in caplog.text


# ---------------------------------------------------------------- requests in vain


REPLICAS, SEGMENT = CreatableTopicConfig("min.insync.replicas", "2"), CreatableTopicConfig("segment.ms", "60000")


class NotingBroker:
    """A broker with a topic ``orders``, and what it writes to the log."""

    def __init__(self, caplog: pytest.LogCaptureFixture, config: Config | None = None) -> None:
        caplog.set_level(logging.WARNING, "groupcoord.host")
        self._caplog = caplog
        self.topics = TopicRegistry()
        self.topics.ensure("orders", 1)
        config = Config() if config is None else config
        self.broker = make_broker(config=config, clock=ManualClock(), log_store=MemoryLogStore(), topics=self.topics)
        self.connection = self.broker.connect("/10.0.0.7")

    def lines_after(self, *requests: object) -> list[str]:
        """Handle requests; return the lines logged meanwhile."""
        self._caplog.clear()
        for request in requests:
            self.broker.handle(self.connection, request)
        return self._caplog.messages


def create(*names: str, config: CreatableTopicConfig = REPLICAS, validate_only: bool = False) -> CreateTopics:
    topics = tuple(CreatableTopic(name, 1, configs=(config,)) for name in names)
    return CreateTopics(topics, validate_only=validate_only)


def to_alter(name: str, value: str, topic: str = "orders") -> tuple[ResourceToAlter, ...]:
    """Return a setting of a topic to change."""
    return (ResourceToAlter(ConfigResourceType.TOPIC, topic, (ConfigToAlter(name, value),)),)


def test_a_protocol_that_is_switched_off_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """The line has the client and the setting; with the protocol enabled there is none."""
    join = ConsumerGroupHeartbeat("billing", "m", client_id="billing-1")

    assert NotingBroker(caplog).lines_after(join) == []
    assert NotingBroker(
        caplog, Config.from_properties({"group.coordinator.rebalance.protocols": "classic"})
    ).lines_after(join) == [
        "client 'billing-1' at /10.0.0.7 asks for group.protocol=consumer in group 'billing', which is switched off "
        "here: group.coordinator.rebalance.protocols does not name it"
    ]


def test_settings_without_effect_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """A topic that is created with a setting that changes nothing, or gets one, is named with it."""
    world = NotingBroker(caplog)

    assert world.lines_after(create("bills", "mail")) == [
        "topics have got settings that have no effect here: bills (min.insync.replicas=2), mail (min.insync.replicas=2)"
    ]
    assert world.lines_after(AlterConfigs(to_alter("compression.type", "gzip"))) == [
        "topics have got settings that have no effect here: orders (compression.type=gzip)"
    ]
    assert world.lines_after(IncrementalAlterConfigs(to_alter("preallocate", "true"))) == [
        "topics have got settings that have no effect here: orders (compression.type=gzip, preallocate=true)"
    ]


def test_what_has_an_effect_or_changes_nothing_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """No line for effective configs, defaults, validation, refusals, or unchanged values."""
    world = NotingBroker(caplog)
    default = CreatableTopicConfig("min.insync.replicas", "1")
    unknown = CreatableTopicConfig("min.insync", "1")

    assert (
        world.lines_after(
            create("a", config=SEGMENT),
            create("b", config=default),
            create("c", config=unknown),
            create("d", validate_only=True),
            create("orders"),
            IncrementalAlterConfigs(to_alter("preallocate", "true"), validate_only=True),
            AlterConfigs(to_alter("preallocate", "true", topic="unknown")),
        )
        == []
    )
    assert len(world.lines_after(AlterConfigs(to_alter("preallocate", "true")))) == 1
    assert world.lines_after(AlterConfigs(to_alter("preallocate", "maybe"))) == []


def test_many_topics_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Five are named, the others counted."""
    (line,) = NotingBroker(caplog).lines_after(create(*(f"t{number}" for number in range(9))))

    assert line.endswith("t4 (min.insync.replicas=2) and 4 more")


def test_the_settings_that_apply_are_those_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configs that a topic's log reads are exactly those without a warning."""
    topics = TopicRegistry()
    topics.ensure("orders", 1)
    read: set[str] = set()
    data = TopicData(Config(), ManualClock(), topics)
    text = data._text
    monkeypatch.setattr(data, "_text", lambda topic, name: read.add(name) or text(topic, name))
    (topic,) = topics
    data.settings_of(topic)

    applied = {name for name, definition in TOPIC_DEFINITIONS.items() if definition.has_effect}
    assert read == applied - {ALLOWS_DEAD_LETTERS}  # which those look at who send records there
