"""Settings: Kafka's keys, defaults and bounds."""

from __future__ import annotations

import pytest
from attrs.exceptions import FrozenInstanceError

from groupcoord import Config, ConfigError
from groupcoord.config import key_of

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


@pytest.mark.parametrize("key", sorted(Config().to_properties()))
@pytest.mark.parametrize("value", ["", "abc", "1.5", "1e3", "0x10", None, [1]])
def test_no_number(key: str, value: object) -> None:
    """What is no number, or no whole one, is refused for every setting, and the message names the key."""
    with pytest.raises(ConfigError, match=f"^setting '{key}' must be a"):
        Config.from_properties({key: value})


@pytest.mark.parametrize("value", [True, 1.5, "1", None])
def test_wrong_types(value: object) -> None:
    """The constructor takes numbers only."""
    with pytest.raises(ConfigError, match=r"'group\.max\.size' must be a whole number, not"):
        Config(group_max_size=value)


@pytest.mark.parametrize("key", ["group.max.size", "group_max_size", " group.max.size "])
@pytest.mark.parametrize("value", [7, "7", " 7 "])
def test_spellings(key: str, value: str | int) -> None:
    """Keys may have dots or underscores, values may be text; blanks around them do not matter."""
    assert Config.from_properties({key: value}).group_max_size == 7


def test_both_spellings() -> None:
    """One setting under two spellings is refused."""
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
    """An unknown key is refused, with the nearest known one if there is one."""
    with pytest.raises(ConfigError, match=message):
        Config.from_properties({key: 1})


def test_there_and_back() -> None:
    """All settings of a configuration make the same one again."""
    config = Config(group_max_size=7, offsets_retention_minutes=8)
    assert Config.from_properties(config.to_properties()) == config
    assert key_of("group_max_size") == "group.max.size"


def test_a_configuration_is_fixed() -> None:
    """Settings do not change under a running coordinator."""
    with pytest.raises(FrozenInstanceError):
        Config().group_max_size = 1
