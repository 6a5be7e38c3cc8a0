"""The settings that groups can have of their own, as Apache Kafka 4.4 defines them (``GroupConfig``).

They apply to the groups of their kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from attrs import fields_dict, frozen

from groupcoord.broker.configs.definitions import Configs, Definition, Definitions, FreeText, by_name, checked_values
from groupcoord.config import Config, key_of, kind_of
from groupcoord.config.group_settings import (
    LATEST,
    SETTINGS_WITH_BOUNDS,
    SHARE_SETTINGS_WITH_BOUNDS,
    AutoOffsetReset,
    ConsumerGroupSettings,
    ShareGroupSettings,
    StreamsGroupSettings,
    bounds_of,
)
from groupcoord.config.settings import INT32_MAX, Choice, Flag, Kind, Number, trim
from groupcoord.errors import ConfigError
from groupcoord.wire.config_messages import ConfigType


@frozen
class OffsetReset:
    """Where a share group begins that has no start offset: a kind of setting."""

    config_type: ConfigType = ConfigType.STRING

    def parse(self, key: str, raw: Any) -> Any:
        """See :class:`~groupcoord.config.settings.Kind`."""
        try:
            return AutoOffsetReset.parse(trim(raw)) if isinstance(raw, str) else raw
        except ValueError:
            raise ConfigError(
                f"Invalid value `{raw}` for configuration {key}. The value must be either 'earliest', 'latest' or of "
                "the format 'by_duration:<PnDTnHnMn.nS>'."
            ) from None

    def check(self, key: str, value: object) -> None:
        """See :class:`~groupcoord.config.settings.Kind`."""
        if not isinstance(value, AutoOffsetReset):
            raise ConfigError(f"setting {key!r} must be text, not {value!r}")

    def text(self, value: AutoOffsetReset) -> str:
        """See :class:`~groupcoord.config.settings.Kind`."""
        return value.text


@frozen
class FirstName(FreeText):
    """One name, by default the first of the broker's list: a kind of setting."""

    def parse(self, key: str, raw: Any) -> Any:
        """See :class:`~groupcoord.config.settings.Kind`."""
        return trim(raw) if isinstance(raw, str) else raw

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
    _plain("share.auto.offset.reset", OffsetReset(), LATEST),
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
    tags = [trim(tag) for tag in own.get(_TAGS, "").split(",")]
    if len(set(tags)) < len(tags):
        raise ConfigError(f"{_TAGS} must not contain duplicate tag keys.")
    for kind in SETTINGS_WITH_BOUNDS:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        session_ms, heartbeat_ms = (
            values.get(key, int(GROUP_DEFINITIONS[key].inherited(config)[0])) for key in (session, heartbeat)
        )
        if heartbeat_ms >= session_ms:
            raise ConfigError(f"{session} must be greater than {heartbeat}")
    for parse in (consumer_group_settings, share_group_settings, streams_group_settings):
        parse(told, config)
    return told


_CONSUMER_ATTRIBUTES = {key_of(f"consumer_{name}"): name for name in ConsumerGroupSettings._fields}
_SHARE_ATTRIBUTES = {
    **{key_of(f"share_{name}"): name for name in SHARE_SETTINGS_WITH_BOUNDS},
    "share.auto.offset.reset": "auto_offset_reset",
    "share.isolation.level": "isolation_level",
    "share.renew.acknowledge.enable": "renew_acknowledge_enable",
    "errors.deadletterqueue.topic.name": "dead_letter_topic",
    "errors.deadletterqueue.copy.record.enable": "copies_dead_letters",
}
_STREAMS_ATTRIBUTES = {key_of(f"streams_{name}"): name for name in StreamsGroupSettings._fields}


def _values(own: Configs, attributes: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a group's own settings, by attribute.

    Raises:
        ConfigError: a text is no value of its setting.
    """
    return {
        attribute: GROUP_DEFINITIONS[key].kind.parse(key, own[key])
        for key, attribute in attributes.items()
        if key in own
    }


def consumer_group_settings(own: Configs, config: Config) -> ConsumerGroupSettings:
    """Return what holds for a group with these settings of its own."""
    return ConsumerGroupSettings.of(config, _values(own, _CONSUMER_ATTRIBUTES))


def share_group_settings(own: Configs, config: Config) -> ShareGroupSettings:
    """Return what holds for a share group with these settings of its own."""
    return ShareGroupSettings.of(config, _values(own, _SHARE_ATTRIBUTES))


def streams_group_settings(own: Configs, config: Config) -> StreamsGroupSettings:
    """Return what holds for a streams group with these settings of its own."""
    return StreamsGroupSettings.of(config, _values(own, _STREAMS_ATTRIBUTES))
