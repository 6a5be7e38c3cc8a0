"""Settings of a consumer under Kafka's keys, validated.

An attribute is the key with underscores for dots: ``session.timeout.ms`` is ``MemberConfig.session_timeout_ms``.
Defaults and bounds are those of the Java consumer of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from attrs import Attribute, field, fields, frozen

from groupcoord.config import key_of, read_properties
from groupcoord.config.settings import INT32_MAX, INT64_MAX, check_number
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
        "heartbeat_interval_ms": "the coordinator says when to beat ('group.consumer.heartbeat.interval.ms')",
        "partition_assignment_strategy": "the coordinator assigns ('group.remote.assignor' may choose how)",
    },
}
"""Settings that the Java consumer refuses with a group protocol, and the reasons, by protocol."""


def _number(default: int, *, at_least: int | None = None, at_most: int = INT32_MAX) -> Any:
    lowest = -at_most - 1 if at_least is None else at_least
    return field(default=default, metadata={"kind": int, "at_least": lowest, "at_most": at_most})


def _text(default: str | None, *, may_be_empty: bool = True) -> Any:
    return field(default=default, metadata={"kind": str, "may_be_empty": may_be_empty, "default": default})


def _flag(default: bool) -> Any:
    return field(default=default, metadata={"kind": bool})


def _names(default: tuple[str, ...]) -> Any:
    return field(default=default, converter=_to_names, metadata={"kind": tuple})


def _to_names(value: Any) -> Any:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        return value  # _validate reports it
    stripped = tuple(name.strip() if isinstance(name, str) else name for name in names)
    return tuple(ASSIGNOR_CLASSES.get(name, name) for name in stripped)


@frozen
class MemberConfig:
    """Settings of a consumer that concern its group.

    A consumer without ``group_id`` can assign itself partitions, but neither subscribe nor commit.

    Raises:
        ConfigError: a value has the wrong type, is out of bounds, or contradicts another one.
    """

    group_id: str | None = _text(None)
    group_instance_id: str | None = _text(None, may_be_empty=False)
    client_id: str = _text("")
    client_rack: str = _text("")
    session_timeout_ms: int = _number(45_000)
    heartbeat_interval_ms: int = _number(3_000)
    max_poll_interval_ms: int = _number(300_000, at_least=1)
    partition_assignment_strategy: tuple[str, ...] = _names(("range", "cooperative-sticky"))
    enable_auto_commit: bool = _flag(True)
    auto_commit_interval_ms: int = _number(5_000, at_least=0)
    retry_backoff_ms: int = _number(100, at_least=0, at_most=INT64_MAX)
    retry_backoff_max_ms: int = _number(1_000, at_least=0, at_most=INT64_MAX)
    request_timeout_ms: int = _number(30_000, at_least=0)
    default_api_timeout_ms: int = _number(60_000, at_least=0)
    exclude_internal_topics: bool = _flag(True)
    group_protocol: str = _text("classic")
    group_remote_assignor: str | None = _text(None, may_be_empty=False)

    def __attrs_post_init__(self) -> None:
        for attribute in fields(MemberConfig):
            _validate(attribute, getattr(self, attribute.name))
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"setting 'heartbeat.interval.ms' ({self.heartbeat_interval_ms}) must be lower than "
                f"'session.timeout.ms' ({self.session_timeout_ms})"
            )
        if self.group_protocol.lower() not in _REFUSED:
            raise ConfigError(
                f"setting 'group.protocol' can only be 'classic' or 'consumer', not {self.group_protocol!r}"
            )
        # An attribute does not show whether it was given with its default; from_properties checks those keys, too.
        given = [a.name for a in fields(MemberConfig) if getattr(self, a.name) != a.default]
        self._refuse(self.group_protocol, given)

    @property
    def is_consumer_protocol(self) -> bool:
        """True if the coordinator assigns (KIP-848)."""
        return self.group_protocol.lower() == "consumer"

    @staticmethod
    def _refuse(protocol: str, names: Iterable[str]) -> None:
        """Raise ConfigError if one of these settings can't be used with the protocol."""
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
        parsers = {a.name: partial(_parse, kind=a.metadata["kind"]) for a in fields(cls)}
        values = read_properties(properties, parsers)
        config = cls(**values)
        cls._refuse(config.group_protocol, values)
        return config

    def to_properties(self) -> dict[str, Any]:
        """Return all settings of the protocol under Kafka's keys."""
        refused = _REFUSED[self.group_protocol.lower()]
        names = [attribute.name for attribute in fields(MemberConfig) if attribute.name not in refused]
        return {key_of(name): getattr(self, name) for name in names}


def _parse(key: str, raw: Any, kind: type) -> Any:
    if not isinstance(raw, str):
        return raw
    text = raw.strip()
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"setting {key!r} must be a whole number, not {raw!r}") from None
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"setting {key!r} must be true or false, not {raw!r}")
        return text.lower() == "true"
    return text


def _validate(attribute: Attribute[Any], value: object) -> None:
    key, rules = key_of(attribute.name), attribute.metadata
    kind = rules["kind"]
    if kind is int:
        check_number(key, value, rules["at_least"], rules["at_most"])
    elif kind is bool:
        if not isinstance(value, bool):
            raise ConfigError(f"setting {key!r} must be true or false, not {value!r}")
    elif kind is str:
        if not isinstance(value, str) and not (value is None and rules["default"] is None):
            raise ConfigError(f"setting {key!r} must be text, not {value!r}")
        if value == "" and not rules["may_be_empty"]:
            raise ConfigError(f"setting {key!r} must not be empty")
    elif not isinstance(value, tuple) or not all(isinstance(name, str) and name for name in value):
        raise ConfigError(f"setting {key!r} must be a list of names, not {value!r}")
    elif len(set(value)) < len(value):
        raise ConfigError(f"setting {key!r} names an assignor twice: {', '.join(value)}")
