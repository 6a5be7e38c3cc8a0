"""The settings that groups can have of their own, as Apache Kafka 4.4 defines them (``GroupConfig``).

They apply to the groups of their kind.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from attrs import fields_dict, frozen

from groupcoord.broker.configs.definitions import Configs, Definition, Definitions, FreeText, by_name, checked_values
from groupcoord.config import Config, key_of, kind_of
from groupcoord.config.group_settings import (
    SETTINGS_WITH_BOUNDS,
    SHARE_SETTINGS_WITH_BOUNDS,
    ConsumerGroupSettings,
    ShareGroupSettings,
    StreamsGroupSettings,
    bounds_of,
)
from groupcoord.config.settings import INT32_MAX, Choice, Flag, Kind, Number
from groupcoord.errors import ConfigError
from groupcoord.wire.config_messages import ConfigType


@frozen
class OffsetReset:
    """Where a share group begins: ``earliest``, ``latest``, or a time ago (KIP-932): a kind of setting."""

    _PATTERN = re.compile(
        r"earliest|latest|by_duration:P(?=.)(?:\d+D)?(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d{1,9})?S)?)?",
        re.IGNORECASE,
    )
    config_type: ConfigType = ConfigType.STRING

    def parse(self, key: str, raw: Any) -> Any:
        """See :class:`~groupcoord.config.settings.Kind`."""
        return raw.strip() if isinstance(raw, str) else raw

    def check(self, key: str, value: object) -> None:
        """See :class:`~groupcoord.config.settings.Kind`."""
        if not isinstance(value, str) or not self._PATTERN.fullmatch(value):
            raise ConfigError(
                f"Invalid value `{value}` for configuration {key}. The value must be either 'earliest', 'latest' or of "
                "the format 'by_duration:<PnDTnHnMn.nS>'."
            )

    def text(self, value: str) -> str:
        """See :class:`~groupcoord.config.settings.Kind`."""
        return value


@frozen
class FirstName(FreeText):
    """One name, by default the first of the broker's list: a kind of setting."""

    def text(self, value: str | tuple[str, ...]) -> str:
        """See :class:`~groupcoord.config.settings.Kind`."""
        return value if isinstance(value, str) else value[0]


class _Bounds(NamedTuple):
    """What values the broker lets groups have."""

    at_least: int | None
    at_most: int | None

    def check(self, key: str, value: int) -> None:
        lowest, highest = self
        if (lowest is None or value >= lowest) and (highest is None or value <= highest):
            return
        if lowest is not None and highest is not None:
            raise ConfigError(f"{key} must be in the range {lowest} to {highest} inclusive.")
        bound = f"greater than or equal to {lowest}" if highest is None else f"less than or equal to {highest}"
        raise ConfigError(f"{key} must be {bound}")


def _of_config(name: str, *, is_internal: bool = False) -> Definition:
    """Return the setting of a group that has the broker's setting's kind and default."""
    attribute = f"group_{name}"
    default = fields_dict(Config)[attribute].default
    return Definition(key_of(name), kind_of(attribute), default, key_of(attribute), is_internal=is_internal)


def _of_broker(name: str, kind: Kind, default: Any, *, is_internal: bool = False) -> Definition:
    return Definition(name, kind, default, f"group.{name}", is_internal=is_internal)


def _plain(name: str, kind: Kind, default: Any) -> Definition:
    """Return the setting of a group that brokers call the same."""
    return Definition(name, kind, default, name)


def _int(at_least: int, at_most: int = INT32_MAX) -> Number:
    return Number(at_least, at_most)


_CONSUMER = (
    *(_of_config(f"consumer_{name}") for name in ConsumerGroupSettings._fields),
    _of_config("consumer_assignor_offload_enable", is_internal=True),
)
_SHARE = (
    _plain("errors.deadletterqueue.copy.record.enable", Flag(), False),
    _plain("errors.deadletterqueue.topic.name", FreeText(), ""),
    _of_config("share_assignor_offload_enable", is_internal=True),
    _plain("share.auto.offset.reset", OffsetReset(), "latest"),
    _plain("share.isolation.level", Choice(("read_committed", "read_uncommitted")), "read_uncommitted"),
    _plain("share.renew.acknowledge.enable", Flag(), True),
    *(_of_config(f"share_{name}") for name in SHARE_SETTINGS_WITH_BOUNDS),
)
_TAGS = "streams.rack.aware.assignment.tags"
_INTERNAL = ("assignor_offload_enable", "task_offset_interval_ms", "num_warmup_replicas", "acceptable_recovery_lag")
_STREAMS = (
    *(
        _of_config(f"streams_{name}", is_internal=name in _INTERNAL)
        for name in (*StreamsGroupSettings._fields, "assignor_offload_enable")
        if name != "assignor_name"
    ),
    Definition("streams.assignor.name", FirstName(), ("sticky",), "group.streams.assignors"),
)

GROUP_DEFINITIONS: Definitions = by_name(*_CONSUMER, *_SHARE, *_STREAMS)


def checked_group_configs(own: Configs, config: Config) -> Configs:
    """Return the settings that a group shall have, all of them, as they are told.

    Raises:
        ConfigError: it can't have them.
    """
    told, values = checked_values(own, GROUP_DEFINITIONS, "group")
    of_config = {
        key_of(f"{kind}_{name}"): _Bounds(*bounds)
        for kind in SETTINGS_WITH_BOUNDS
        for name, bounds in bounds_of(kind, config).items()
    }
    for key, bounds in of_config.items():
        if key in values:
            bounds.check(key, values[key])
    assignors = config.group_streams_assignors
    assignor = values.get("streams.assignor.name", assignors[0])
    if assignor not in assignors:
        known = ", ".join(assignors)
        raise ConfigError(
            f"streams.assignor.name '{assignor}' is not a registered task assignor. "
            f"Registered assignors are: [{known}]."
        )
    if values.get("errors.deadletterqueue.topic.name", "").startswith("__"):
        raise ConfigError("errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'")
    tags = [tag.strip() for tag in own.get(_TAGS, "").split(",")]
    if len(set(tags)) < len(tags):
        raise ConfigError(f"{_TAGS} must not contain duplicate tag keys.")
    for kind in SETTINGS_WITH_BOUNDS:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        session_ms, heartbeat_ms = (
            values.get(key, int(GROUP_DEFINITIONS[key].inherited(config)[0])) for key in (session, heartbeat)
        )
        if heartbeat_ms >= session_ms:
            raise ConfigError(f"{session} must be greater than {heartbeat}")
    return told


def consumer_group_settings(own: Configs, config: Config) -> ConsumerGroupSettings:
    """Return what holds for a group with these settings of its own."""
    names = {key_of(f"consumer_{name}"): name for name in ConsumerGroupSettings._fields}
    return ConsumerGroupSettings.of(config, {names[key]: int(text) for key, text in own.items() if key in names})


_SHARE_ATTRIBUTES = {
    **{key_of(f"share_{name}"): name for name in SHARE_SETTINGS_WITH_BOUNDS},
    "share.auto.offset.reset": "auto_offset_reset",
    "share.isolation.level": "isolation_level",
    "share.renew.acknowledge.enable": "renew_acknowledge_enable",
    "errors.deadletterqueue.topic.name": "dead_letter_topic",
    "errors.deadletterqueue.copy.record.enable": "copies_dead_letters",
}


def share_group_settings(own: Configs, config: Config) -> ShareGroupSettings:
    """Return what holds for a share group with these settings of its own."""
    values = {
        attribute: GROUP_DEFINITIONS[key].kind.parse(key, own[key])
        for key, attribute in _SHARE_ATTRIBUTES.items()
        if key in own
    }
    return ShareGroupSettings.of(config, values)


def streams_group_settings(own: Configs, config: Config) -> StreamsGroupSettings:
    """Return what holds for a streams group with these settings of its own."""
    values = {
        name: GROUP_DEFINITIONS[key].kind.parse(key, own[key])
        for name in StreamsGroupSettings._fields
        if (key := key_of(f"streams_{name}")) in own
    }
    return StreamsGroupSettings.of(config, values)
