"""Settings: Kafka's keys, defaults and bounds."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord import Config, ConfigError
from groupcoord.config import MigrationPolicy, key_of
from tests.tables import as_one_test

INT32, INT64 = 2**31 - 1, 2**63 - 1

BOUNDS = {
    "group.min.session.timeout.ms": (6_000, -INT32 - 1, INT32),
    "group.max.session.timeout.ms": (1_800_000, -INT32 - 1, INT32),
    "group.initial.rebalance.delay.ms": (3_000, -INT32 - 1, INT32),
    "group.max.size": (INT32, 1, INT32),
    "offset.metadata.max.bytes": (4_096, -INT32 - 1, INT32),
    "offsets.topic.num.partitions": (50, 1, INT32),
    "offsets.commit.timeout.ms": (5_000, 1, INT32),
    "offsets.retention.minutes": (10_080, 1, INT32),
    "offsets.retention.check.interval.ms": (600_000, 1, INT64),
}
NUMBERS = sorted(key for key, value in Config().to_properties().items() if not isinstance(value, str))

KAFKAS_OWN = {
    "group.consumer.assignment.interval.ms": 1_000,
    "group.consumer.assignor.offload.enable": "true",
    "group.consumer.assignors": "uniform,range",
    "group.consumer.heartbeat.interval.ms": 5_000,
    "group.consumer.max.assignment.interval.ms": 15_000,
    "group.consumer.max.heartbeat.interval.ms": 15_000,
    "group.consumer.max.session.timeout.ms": 60_000,
    "group.consumer.max.size": INT32,
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.min.assignment.interval.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 5_000,
    "group.consumer.min.session.timeout.ms": 45_000,
    "group.consumer.regex.refresh.interval.ms": 600_000,
    "group.consumer.session.timeout.ms": 45_000,
    "group.coordinator.rebalance.protocols": "classic,consumer,streams",
}


@as_one_test
@pytest.mark.parametrize(("key", "bounds"), BOUNDS.items())
def test_defaults_and_bounds(key: str, bounds: tuple[int, int, int]) -> None:
    """Defaults and bounds are Kafka's; the bounds are inclusive, and what is beyond names key, bound and value."""
    default, lowest, highest = bounds
    assert Config().to_properties()[key] == default
    for value in (lowest, highest):
        assert Config.from_properties({key: value}).to_properties()[key] == value
    with pytest.raises(ConfigError, match=f"'{key}' must be at least {lowest}, not {lowest - 1}"):
        Config.from_properties({key: lowest - 1})
    with pytest.raises(ConfigError, match=f"'{key}' must be at most {highest}, not {highest + 1}"):
        Config.from_properties({key: str(highest + 1)})


@as_one_test
@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("value", ["", "abc", "1.5", "1e3", "0x10", None, [1]])
def test_no_number(key: str, value: object) -> None:
    """Anything but a number, or a whole one, is refused for each such setting, and the message has the key."""
    with pytest.raises(ConfigError, match=f"^setting '{key}' must be a"):
        Config.from_properties({key: value})


@pytest.mark.parametrize("value", [True, 1.5, "1", None])
def test_wrong_types(value: object) -> None:
    with pytest.raises(ConfigError, match=r"'group\.max\.size' must be a whole number, not"):
        Config(group_max_size=value)
    if value != 1.5:
        with pytest.raises(ConfigError, match=r"ratio' must be a number, not"):
            Config(log_cleaner_min_cleanable_ratio=value)


@as_one_test
@pytest.mark.parametrize("key", ["group.max.size", "group_max_size", " group.max.size "])
@pytest.mark.parametrize("value", [7, "7", " 7 "])
def test_spellings(key: str, value: str | int) -> None:
    """Keys may have dots or underscores, values may be text; blanks around them do not matter."""
    assert Config.from_properties({key: value}).group_max_size == 7


def test_both_spellings() -> None:
    with pytest.raises(ConfigError, match=r"'group\.max\.size' is given twice"):
        Config.from_properties({"group.max.size": 1, "group_max_size": 1})


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("group.max.sise", r"unknown setting 'group\.max\.sise'; did you mean 'group\.max\.size'\?"),
        ("offset.retention.minutes", r"did you mean 'offsets\.retention\.minutes'\?"),
        ("zzz", r"unknown setting 'zzz'$"),
    ],
)
def test_unknown_keys(key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config.from_properties({key: 1})


def test_there_and_back() -> None:
    config = Config(
        group_max_size=7,
        group_consumer_assignors=("range", "mine"),
        group_consumer_migration_policy=MigrationPolicy.DOWNGRADE,
        group_consumer_assignor_offload_enable=False,
    )
    assert Config.from_properties(config.to_properties()) == config
    assert key_of("group_max_size") == "group.max.size"


def test_consumer_groups_have_the_defaults_of_kafka() -> None:
    """Every setting of KIP-848 groups is there, with the default that a broker of Kafka 4.4 has."""
    assert KAFKAS_OWN.items() <= Config().to_properties().items()


@as_one_test
@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("group.coordinator.rebalance.protocols", " classic , consumer ", ("classic", "consumer")),
        ("group.coordinator.rebalance.protocols", "classic,classic", ("classic",)),
        ("group.consumer.assignors", "range,range", ("range",)),
        ("group.consumer.assignors", "mine,uniform", ("mine", "uniform")),
        ("group.consumer.assignors", "org.apache.kafka.coordinator.group.assignor.RangeAssignor", ("range",)),
        ("group.consumer.migration.policy", " UpGrade", MigrationPolicy.UPGRADE),
        ("group.consumer.assignor.offload.enable", "FALSE", False),
        ("group.consumer.regex.refresh.interval.ms", "10000", 10_000),
    ],
)
def test_texts(key: str, text: str, value: object) -> None:
    """Lists have commas, a name that is listed twice counts once; letters of policies and flags may have any case."""
    assert getattr(Config.from_properties({key: text}), key.replace(".", "_")) == value


@as_one_test
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"group.coordinator.rebalance.protocols": "consumer"}, "can't leave out 'classic'"),
        ({"group.coordinator.rebalance.protocols": ""}, "must be a list of some of classic, consumer, share, streams"),
        ({"group.coordinator.rebalance.protocols": "Classic,CONSUMER"}, "not 'Classic,CONSUMER'"),
        ({"group.coordinator.rebalance.protocols": ["classic"]}, r"not \['classic'\]"),
        ({"group.consumer.assignors": ""}, "must be a list of names, not ''"),
        ({"group.consumer.assignors": "range,,uniform"}, "must be a list of names, not 'range,,uniform'"),
        ({"group.consumer.migration.policy": ""}, "must be one of disabled, upgrade, downgrade, bidirectional, not ''"),
        ({"group.consumer.migration.policy": 1}, "must be one of disabled, upgrade, downgrade, bidirectional, not 1"),
        ({"group.consumer.assignor.offload.enable": "maybe"}, "must be true or false, not 'maybe'"),
        ({"group.consumer.regex.refresh.interval.ms": 9_999}, "must be at least 10000, not 9999"),
        ({"group.consumer.session.timeout.ms": 0}, "must be at least 1, not 0"),
        ({"group.consumer.assignment.interval.ms": -1}, "must be at least 0, not -1"),
    ],
)
def test_refused_texts(properties: dict[str, str], message: str) -> None:
    """An invalid value is refused, with the valid ones. Classic groups are always served, as in Kafka."""
    with pytest.raises(ConfigError, match=message):
        Config.from_properties(properties)


@as_one_test
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"session.timeout.ms": 44_999}, r"min.session.timeout.ms' \(45000\) must not be above .* \(44999\)"),
        ({"session.timeout.ms": 60_001}, r"session.timeout.ms' \(60001\) must not be above .* \(60000\)"),
        ({"min.session.timeout.ms": 60_001}, r"'group.consumer.max.session.timeout.ms' \(60000\)"),
        ({"heartbeat.interval.ms": 4_999}, r"'group.consumer.heartbeat.interval.ms' \(4999\)"),
        ({"heartbeat.interval.ms": 15_001}, r"'group.consumer.max.heartbeat.interval.ms' \(15000\)"),
        ({"max.assignment.interval.ms": 500}, r"'group.consumer.assignment.interval.ms' \(1000\)"),
        ({"min.assignment.interval.ms": 2_000}, r"'group.consumer.assignment.interval.ms' \(1000\)"),
        (
            {"max.heartbeat.interval.ms": 100_000, "heartbeat.interval.ms": 45_000},
            r"heartbeat.interval.ms' \(45000\) must be lower than 'group.consumer.session.timeout.ms' \(45000\)",
        ),
    ],
)
def test_settings_that_do_not_go_together(properties: dict[str, int], message: str) -> None:
    """Values lie between their lowest and highest, and members send heartbeats before their session is over."""
    with pytest.raises(ConfigError, match=message):
        Config.from_properties({f"group.consumer.{key}": value for key, value in properties.items()})


def test_neighbours_that_go_together() -> None:
    """The bounds themselves are allowed, and a heartbeat just before the end of the session."""
    prefix = "group.consumer."
    Config.from_properties({prefix + "session.timeout.ms": 60_000, prefix + "heartbeat.interval.ms": 15_000})
    Config.from_properties({prefix + "max.heartbeat.interval.ms": 50_000, prefix + "heartbeat.interval.ms": 44_999})
    Config(group_consumer_assignment_interval_ms=0)


@pytest.mark.parametrize(
    "values",
    [
        {"group_consumer_migration_policy": "upgrade"},
        {"group_consumer_assignors": "range"},
        {"group_consumer_assignors": ("range", "range")},
        {"group_coordinator_rebalance_protocols": ("classic",)},
        {"group_consumer_assignor_offload_enable": "true"},
    ],
)
def test_texts_are_for_from_properties(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Config(**values)
