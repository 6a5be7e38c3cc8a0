"""Which kinds of groups there are, and their settings: the broker's, and those that a group may have of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from attrs import frozen

from groupcoord.config.config import Config, GroupType
from groupcoord.config.settings import INT64_MAX

_OF_ALL = ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
SHARE_SETTINGS_WITH_BOUNDS = (
    *_OF_ALL,
    *("delivery_count_limit", "record_lock_duration_ms", "partition_max_record_locks"),
)
"""The settings of a share group that brokers have as well, with the lowest and the highest that a group may have."""

SETTINGS_WITH_BOUNDS: Mapping[str, tuple[str, ...]] = {
    "consumer": _OF_ALL,
    "share": SHARE_SETTINGS_WITH_BOUNDS,
    "streams": (*_OF_ALL, "num_standby_replicas", "num_warmup_replicas", "task_offset_interval_ms"),
}
"""By kind of group: which settings of its own a group may have only between two of the broker's, or beyond one."""

Bounds = Mapping[str, tuple[Any, Any]]
"""The lowest and the highest value of settings, by attribute; None: any."""


def bounds_of(kind: str, config: Config) -> Bounds:
    """Return what values the settings of groups of a kind may have (``group.consumer.min.session.timeout.ms`` …)."""

    def bound(least_or_most: str, name: str) -> int | None:
        value: int | None = getattr(config, f"group_{kind}_{least_or_most}_{name.removeprefix('num_')}", None)
        return value

    return {name: (bound("min", name), bound("max", name)) for name in SETTINGS_WITH_BOUNDS[kind]}


def _usual(kind: str, config: Config, names: Iterable[str]) -> dict[str, Any]:
    """Return what the broker has for groups of a kind (``group.consumer.session.timeout.ms`` …), by attribute."""
    return {name: getattr(config, f"group_{kind}_{name}") for name in names}


def _within(bounds: Bounds, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group's own settings; what the bounds no longer allow becomes the bound."""
    return {name: _clamped(value, *bounds[name]) if name in bounds else value for name, value in own.items()}


def _clamped(value: int, lowest: int | None, highest: int | None) -> int:
    value = value if lowest is None else max(value, lowest)
    return value if highest is None else min(value, highest)


def served_protocols(config: Config) -> frozenset[GroupType]:
    """Return the kinds of groups whose requests are served (``group.coordinator.rebalance.protocols``).

    Share groups are always served, as the feature ``share.version`` says and not that setting (Kafka 4.2).
    """
    return frozenset((*config.group_coordinator_rebalance_protocols, GroupType.SHARE))


class ConsumerGroupSettings(NamedTuple):
    """What holds for the members of one consumer group (KIP-848).

    Attributes:
        session_timeout_ms: after how long a member that is silent is put out.
        heartbeat_interval_ms: how often members are told to send a heartbeat.
        assignment_interval_ms: the least time between two assignments.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int

    @classmethod
    def of(cls, config: Config, own: Mapping[str, int] = MappingProxyType({})) -> ConsumerGroupSettings:
        """Return the settings of a group.

        Args:
            config: has a value for each, and the lowest and highest that a group may have.
            own: the group's own by attribute; what the bounds no longer allow becomes the bound.
        """
        return cls(**_usual("consumer", config, cls._fields))._replace(**_within(bounds_of("consumer", config), own))


SettingsOfConsumerGroup = Callable[[str], ConsumerGroupSettings]
"""Returns what holds for a consumer group, by its id. Called at each heartbeat: it should be quick."""


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
    _int64(total_ns // 1_000_000_000)
    return total_ns // 1_000_000


def _whole(digits: str) -> int:
    """Return the value of digits with or without a sign; those of large numbers are not all looked at."""
    significant = digits.lstrip("+-").lstrip("0")
    value = int(significant or "0") if len(significant) <= _INT64_DIGITS else INT64_MAX + 1
    return -value if digits.startswith("-") else value


def _int64(value: int) -> int:
    if not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise ValueError("too long a duration")
    return value


@frozen
class AutoOffsetReset:
    """Where a share group without a start offset begins: a value of ``share.auto.offset.reset`` (KIP-932).

    Attributes:
        text: ``earliest``, ``latest`` or ``by_duration:PnDTnHnMn.nS``.
        duration_ms: how long before now the group begins; None if not by duration.
    """

    text: str
    duration_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> AutoOffsetReset:
        """Return the value that a text stands for, by the rules of Kafka's ``ShareGroupAutoOffsetResetStrategy``.

        Raises:
            ValueError: it stands for none.
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


class ShareGroupSettings(NamedTuple):
    """What holds for one share group (KIP-932).

    Attributes:
        session_timeout_ms, heartbeat_interval_ms, assignment_interval_ms: see :class:`ConsumerGroupSettings`.
        delivery_count_limit: how often a record is delivered at most.
        record_lock_duration_ms: how long a member has a record to itself.
        partition_max_record_locks: so many records are looked at, from the first one on that isn't finished.
        auto_offset_reset: where a group begins that has no start offset.
        isolation_level: ``read_committed`` or ``read_uncommitted``.
        renew_acknowledge_enable: whether members may renew their locks (KIP-1222).
        dead_letter_topic: where records go that are given up (KIP-1191); empty: nowhere.
        copies_dead_letters: whether they go there with key and value.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    delivery_count_limit: int
    record_lock_duration_ms: int
    partition_max_record_locks: int
    auto_offset_reset: AutoOffsetReset = LATEST
    isolation_level: str = "read_uncommitted"
    renew_acknowledge_enable: bool = True
    dead_letter_topic: str = ""
    copies_dead_letters: bool = False

    @classmethod
    def of(cls, config: Config, own: Mapping[str, Any] = MappingProxyType({})) -> ShareGroupSettings:
        """Return the settings of a group; see :meth:`ConsumerGroupSettings.of`."""
        usual = cls(**_usual("share", config, SHARE_SETTINGS_WITH_BOUNDS))
        return usual._replace(**_within(bounds_of("share", config), own))


class StreamsGroupSettings(NamedTuple):
    """What holds for one streams group (KIP-1071).

    Attributes:
        session_timeout_ms, heartbeat_interval_ms, assignment_interval_ms: see :class:`ConsumerGroupSettings`.
        num_standby_replicas: how many members keep the state of a task besides the one that runs it.
        initial_rebalance_delay_ms: how long a group that was empty waits for more members.
        assignor_name: who assigns tasks.
        rack_aware_assignment_tags: by which tags of clients standby tasks are to be spread.
        task_offset_interval_ms: how often members are to tell how far they are with tasks.
        num_warmup_replicas: how many tasks may be prepared elsewhere at a time, before they move.
        acceptable_recovery_lag: how far behind a task may be to be taken for caught up.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    num_standby_replicas: int
    initial_rebalance_delay_ms: int
    assignor_name: str
    rack_aware_assignment_tags: tuple[str, ...]
    task_offset_interval_ms: int
    num_warmup_replicas: int
    acceptable_recovery_lag: int

    @classmethod
    def of(cls, config: Config, own: Mapping[str, Any] = MappingProxyType({})) -> StreamsGroupSettings:
        """Return the settings of a group; see :meth:`ConsumerGroupSettings.of`."""
        names = [name for name in cls._fields if name != "assignor_name"]
        usual = cls(**_usual("streams", config, names), assignor_name=config.group_streams_assignors[0])
        return usual._replace(**_within(bounds_of("streams", config), own))


SettingsOfStreamsGroup = Callable[[str], StreamsGroupSettings]
"""Returns what holds for a streams group, by its id. Called at each heartbeat: it should be quick."""
