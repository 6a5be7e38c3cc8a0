"""Settings of a consumer under Kafka's keys, validated.

An attribute is the key with underscores for dots: ``session.timeout.ms`` is ``MemberConfig.session_timeout_ms``.
Defaults and bounds are those of the Java consumer of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from attrs import field, fields, frozen

from groupcoord.config import key_of, read_properties
from groupcoord.config.settings import INT32_MAX, INT64_MAX, Flag, Kind, Names, Number, Text
from groupcoord.errors import ConfigError

ASSIGNOR_CLASSES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
"""Protocol names of assignors by the class names of the Java consumer. Both are accepted."""

_REFUSED = {
    "classic": {"group_remote_assignor": "the members assign by themselves"},
    "consumer": {
        "session_timeout_ms": "the group's session time-out is the coordinator's ('group.consumer.session.timeout.ms')",
        "heartbeat_interval_ms": "the coordinator sets the interval ('group.consumer.heartbeat.interval.ms')",
        "partition_assignment_strategy": "the coordinator assigns ('group.remote.assignor' may choose how)",
    },
}
"""Settings that the Java consumer refuses with a group protocol, and the reasons, by protocol."""


@frozen
class _OptionalText(Text):
    may_be_empty: bool = True

    def check(self, key: str, value: object) -> None:
        if value is not None:
            super().check(key, value)
        if value == "" and not self.may_be_empty:
            raise ConfigError(f"setting {key!r} must not be empty")


@frozen
class _AssignorNames(Names):
    """Names of assignors, which the converter of the field parses."""

    def parse(self, key: str, raw: Any) -> Any:
        return raw


def _setting(default: Any, kind: Kind, **traits: Any) -> Any:
    return field(default=default, metadata={"kind": kind}, **traits)


def _number(default: int, at_least: int = 0, at_most: int = INT32_MAX) -> Any:
    return _setting(default, Number(at_least, at_most))


def _to_names(value: Any) -> Any:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        return value  # _AssignorNames reports it
    stripped = tuple(name.strip() if isinstance(name, str) else name for name in names)
    return tuple(ASSIGNOR_CLASSES.get(name, name) for name in stripped)


@frozen
class MemberConfig:
    """Settings of a consumer that concern its group.

    A consumer without ``group_id`` can assign itself partitions, but neither subscribe nor commit.

    Raises:
        ConfigError: a value has the wrong type, is out of bounds, or contradicts another one.
    """

    group_id: str | None = _setting(None, _OptionalText())
    group_instance_id: str | None = _setting(None, _OptionalText(may_be_empty=False))
    client_id: str = _setting("", Text())
    client_rack: str = _setting("", Text())
    session_timeout_ms: int = _number(45_000, -INT32_MAX - 1)
    heartbeat_interval_ms: int = _number(3_000, -INT32_MAX - 1)
    max_poll_interval_ms: int = _number(300_000, 1)
    partition_assignment_strategy: tuple[str, ...] = _setting(
        ("range", "cooperative-sticky"), _AssignorNames(may_be_empty=True), converter=_to_names
    )
    enable_auto_commit: bool = _setting(True, Flag())
    auto_commit_interval_ms: int = _number(5_000)
    retry_backoff_ms: int = _number(100, at_most=INT64_MAX)
    retry_backoff_max_ms: int = _number(1_000, at_most=INT64_MAX)
    request_timeout_ms: int = _number(30_000)
    default_api_timeout_ms: int = _number(60_000)
    exclude_internal_topics: bool = _setting(True, Flag())
    group_protocol: str = _setting("classic", Text())
    group_remote_assignor: str | None = _setting(None, _OptionalText(may_be_empty=False))

    def __attrs_post_init__(self) -> None:
        for attribute in fields(MemberConfig):
            attribute.metadata["kind"].check(key_of(attribute.name), getattr(self, attribute.name))
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"setting 'heartbeat.interval.ms' ({self.heartbeat_interval_ms}) must be lower than "
                f"'session.timeout.ms' ({self.session_timeout_ms})"
            )
        if self.group_protocol.lower() not in _REFUSED:
            raise ConfigError(
                f"setting 'group.protocol' can only be 'classic' or 'consumer', not {self.group_protocol!r}"
            )
        # from_properties also checks keys that were given with their default.
        given = [a.name for a in fields(MemberConfig) if getattr(self, a.name) != a.default]
        self._refuse(self.group_protocol, given)

    @property
    def is_consumer_protocol(self) -> bool:
        """True if the coordinator assigns (KIP-848)."""
        return self.group_protocol.lower() == "consumer"

    @staticmethod
    def _refuse(protocol: str, names: Iterable[str]) -> None:
        refused = _REFUSED.get(protocol.lower(), {})
        for name in names:
            if name in refused:
                raise ConfigError(
                    f"setting {key_of(name)!r} can't be set with 'group.protocol' {protocol.lower()!r}: {refused[name]}"
                )

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> MemberConfig:
        """Return a configuration from keys of this class and values, as in ``consumer.properties``.

        Args:
            properties: keys with Kafka's dots or with underscores; values as text or in their own type.

        Raises:
            ConfigError: a key is unknown, given in both spellings or not used by the protocol, or its value is invalid.
        """
        parsers = {a.name: partial(_parse, a.metadata["kind"]) for a in fields(cls)}
        values = read_properties(properties, parsers)
        config = cls(**values)
        cls._refuse(config.group_protocol, values)
        return config

    def to_properties(self) -> dict[str, Any]:
        """Return all settings of the protocol under Kafka's keys."""
        refused = _REFUSED[self.group_protocol.lower()]
        names = [attribute.name for attribute in fields(MemberConfig) if attribute.name not in refused]
        return {key_of(name): getattr(self, name) for name in names}


def _parse(kind: Kind, key: str, raw: Any) -> Any:
    return kind.parse(key, raw.strip()) if isinstance(raw, str) else raw
