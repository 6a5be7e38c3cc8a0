"""Settings of groups: the broker's default for each type, and overrides of single groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

from attrs import field, fields, frozen

from groupcoord.config.config import SETTINGS, Config, GroupType, Setting
from groupcoord.config.settings import INT64_MAX, Choice, Flag, Kind, Text, trim
from groupcoord.errors import ConfigError

Bounds = Mapping[str, tuple[int | None, int | None]]
"""The lowest and the highest value of settings, by attribute; None: any."""


def settings_of_groups(group_type: GroupType) -> dict[str, Setting]:
    """Return the broker's settings that groups of a type may override, by name without the type's prefix."""
    prefix = f"group_{group_type}_"
    return {name.removeprefix(prefix): each for name, each in SETTINGS.items() if each.group_type == group_type}


def bounds_of(group_type: GroupType, config: Config) -> Bounds:
    """Return the bounds of overrides in groups of a type (``group.consumer.min.session.timeout.ms`` …)."""

    def value(name: str | None) -> int | None:
        return None if name is None else int(getattr(config, name))

    settings = settings_of_groups(group_type).items()
    return {name: (value(each.lowest), value(each.highest)) for name, each in settings if each.lowest or each.highest}


def _clamped(value: Any, lowest: int | None, highest: int | None) -> Any:
    value = value if lowest is None else max(value, lowest)
    return value if highest is None else min(value, highest)


def served_protocols(config: Config) -> frozenset[GroupType]:
    """Return the types of groups whose requests are served.

    Share groups are always served: they depend on the feature ``share.version`` instead (Kafka 4.2).
    """
    return frozenset((*config.group_coordinator_rebalance_protocols, GroupType.SHARE))


class OwnSetting(NamedTuple):
    """Declaration of a group setting that brokers lack, or have under another name (``broker_key``)."""

    key: str
    kind: Kind
    broker_key: str


def _own(key: str, kind: Kind, default: Any, broker_key: str = "") -> Any:
    return field(default=default, metadata={"own": OwnSetting(key, kind, broker_key or key)})


@frozen
class GroupSettings:
    """Settings of one group, by the last part of their keys: ``consumer.session.timeout.ms`` is ``session_timeout_ms``.

    A field holds the group's override, or else the value of :class:`Config` for the type, or else its default here.
    """

    GROUP_TYPE: ClassVar[GroupType]

    session_timeout_ms: int
    """After how long a silent member is removed."""
    heartbeat_interval_ms: int
    """Interval at which members send heartbeats."""
    assignment_interval_ms: int
    """The least time between two assignments."""

    @classmethod
    def of(cls, config: Config, own: Mapping[str, Any] = MappingProxyType({})) -> Self:
        """Return the settings of a group; a value of ``own`` that the bounds no longer allow becomes the bound."""
        names = cls.own_settings()
        usual = {n: getattr(config, each.name) for n, each in settings_of_groups(cls.GROUP_TYPE).items() if n in names}
        bounds = bounds_of(cls.GROUP_TYPE, config)
        return cls(**{**usual, **{n: _clamped(each, *bounds.get(n, (None, None))) for n, each in own.items()}})

    @classmethod
    def own_settings(cls) -> dict[str, OwnSetting | None]:
        """Return the settings of groups of this type by attribute; None: declared by :class:`Config`."""
        return {attribute.name: attribute.metadata.get("own") for attribute in fields(cls)}


@frozen
class ConsumerGroupSettings(GroupSettings):
    """Settings of one consumer group (KIP-848)."""

    GROUP_TYPE = GroupType.CONSUMER


SettingsOfConsumerGroup = Callable[[str], ConsumerGroupSettings]
"""Returns the settings of a consumer group, for each heartbeat."""


_DURATION = re.compile(
    r"(?P<sign>[+-]?)P(?:([+-]?[0-9]+)D)?(?:(T)(?:([+-]?[0-9]+)H)?(?:([+-]?[0-9]+)M)?"
    r"(?:([+-]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_INT64_DIGITS = 19


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds, rounded down, of a duration as ``java.time.Duration.parse`` reads it (``P1DT2H3M4.5S``).

    Raises:
        ValueError: it is no duration, or a part or a sum of parts has more seconds than 64 bits hold.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"not a duration: {text!r}")
    sign, days, time, hours, minutes, seconds, fraction = found.groups()
    parts = days, hours, minutes, seconds
    if parts == (None,) * 4 or (time == "T" and parts[1:] == (None,) * 3):
        raise ValueError(f"a duration without parts: {text!r}")
    nanos = int((fraction or "").ljust(9, "0"))
    nanos = -nanos if seconds is not None and seconds.startswith("-") else nanos
    total_s = 0
    for part, unit_s in zip(reversed(parts), (1, 60, 3_600, 86_400), strict=True):
        total_s = _int64(total_s + _int64(_int64(_whole(part or "0")) * unit_s))
    total_ns = (total_s * 1_000_000_000 + nanos) * (-1 if sign == "-" else 1)
    _int64(total_ns // 1_000_000_000)  # Java holds the seconds in 64 bits
    return total_ns // 1_000_000


def _whole(digits: str) -> int:
    significant = digits.lstrip("+-").lstrip("0")
    value = int(significant or "0") if len(significant) <= _INT64_DIGITS else INT64_MAX + 1
    return -value if digits.startswith("-") else value


def _int64(value: int) -> int:
    if not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise ValueError("too long a duration")
    return value


@frozen
class AutoOffsetReset:
    """Initial start offset of a share group: a value of ``share.auto.offset.reset`` (KIP-932).

    Attributes:
        text: ``earliest``, ``latest`` or ``by_duration:PnDTnHnMn.nS``.
        duration_ms: age of the first record to read; None unless by duration.
    """

    text: str
    duration_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> AutoOffsetReset:
        """Return the value of a text, by the rules of Kafka's ``ShareGroupAutoOffsetResetStrategy``.

        Raises:
            ValueError: invalid value.
        """
        if text in ("earliest", "latest"):
            return cls(text)
        strategy, colon, duration = text.partition(":")
        if strategy != "by_duration" or not colon:
            raise ValueError(f"not a strategy: {text!r}")
        duration_ms = parse_duration_ms(duration)
        if duration_ms < 0:
            raise ValueError(f"a negative duration: {text!r}")
        return cls(text, duration_ms)


EARLIEST = AutoOffsetReset("earliest")
LATEST = AutoOffsetReset("latest")


class OffsetReset(Text):
    """Type of a setting: an :class:`AutoOffsetReset`."""

    def parse(self, key: str, raw: Any) -> Any:
        try:
            return AutoOffsetReset.parse(trim(raw)) if isinstance(raw, str) else raw
        except ValueError:
            raise ConfigError(
                f"Invalid value `{raw}` for configuration {key}. The value must be either 'earliest', 'latest' or of "
                "the format 'by_duration:<PnDTnHnMn.nS>'."
            ) from None

    def check(self, key: str, value: object) -> None:
        if not isinstance(value, AutoOffsetReset):
            raise ConfigError(f"setting {key!r} must be text, not {value!r}")

    def text(self, value: AutoOffsetReset) -> str:
        return value.text


class FirstName(Text):
    """One name, by default the first of the broker's list."""

    def parse(self, key: str, raw: Any) -> Any:
        return trim(raw) if isinstance(raw, str) else raw

    def text(self, value: str | tuple[str, ...]) -> str:
        return value if isinstance(value, str) else value[0]


@frozen
class ShareGroupSettings(GroupSettings):
    """Settings of one share group (KIP-932)."""

    GROUP_TYPE = GroupType.SHARE

    delivery_count_limit: int
    """Most deliveries of a record."""
    record_lock_duration_ms: int
    """Time that a member holds a record before it is released."""
    partition_max_record_locks: int
    """Most records of a partition in flight, counted from the first unfinished one."""
    auto_offset_reset: AutoOffsetReset = _own("share.auto.offset.reset", OffsetReset(), LATEST)  # noqa: RUF009
    """Start of a group that has no start offset."""
    isolation_level: str = _own(
        "share.isolation.level", Choice(("read_committed", "read_uncommitted")), "read_uncommitted"
    )
    """``read_committed`` or ``read_uncommitted``."""
    renew_acknowledge_enable: bool = _own("share.renew.acknowledge.enable", Flag(), True)
    """True if members may renew their locks (KIP-1222)."""
    dead_letter_topic: str = _own("errors.deadletterqueue.topic.name", Text(), "")
    """The topic that receives records that the group gave up (KIP-1191); empty: none."""
    copies_dead_letters: bool = _own("errors.deadletterqueue.copy.record.enable", Flag(), False)
    """True if the dead letter topic receives keys and values."""


@frozen
class StreamsGroupSettings(GroupSettings):
    """Settings of one streams group (KIP-1071)."""

    GROUP_TYPE = GroupType.STREAMS

    num_standby_replicas: int
    """Standby tasks of each task with state."""
    initial_rebalance_delay_ms: int
    """Time that a group that was empty waits for more members."""
    rack_aware_assignment_tags: tuple[str, ...]
    """Tags of clients by which standby tasks should be spread."""
    task_offset_interval_ms: int
    """Interval at which members report the offsets of their tasks."""
    num_warmup_replicas: int
    """Most tasks that are prepared at other members at a time, before they move."""
    acceptable_recovery_lag: int
    """Most offsets by which a task may lag and still count as caught up."""
    assignor_name: str = _own("streams.assignor.name", FirstName(), "sticky", "group.streams.assignors")
    """The assignor of its tasks."""

    @classmethod
    def of(cls, config: Config, own: Mapping[str, Any] = MappingProxyType({})) -> Self:
        return super().of(config, {"assignor_name": config.group_streams_assignors[0], **own})


SettingsOfStreamsGroup = Callable[[str], StreamsGroupSettings]
"""Returns the settings of a streams group, for each heartbeat."""
