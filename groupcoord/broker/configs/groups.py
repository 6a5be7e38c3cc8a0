"""Group configs as Apache Kafka 4.4 defines them (``GroupConfig``), and those that groups override (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypedDict, TypeVar

from attrs import fields

from groupcoord.broker.configs.definitions import Configs, Definition, Definitions, KeptConfigs, by_name, checked_values
from groupcoord.broker.json_file import DataFileError, JsonFile, Place
from groupcoord.config import SETTINGS, Config, key_of
from groupcoord.config.group_settings import (
    ConsumerGroupSettings,
    GroupSettings,
    SettingsOfConsumerGroup,
    SettingsOfStreamsGroup,
    ShareGroupSettings,
    StreamsGroupSettings,
    bounds_of,
    settings_of_groups,
)
from groupcoord.config.settings import trim
from groupcoord.errors import ConfigError

SettingsT = TypeVar("SettingsT", bound=GroupSettings)


class _Bounds(NamedTuple):
    """Bounds of group configs set by the broker; None where there is none."""

    at_least: int | None
    at_most: int | None

    def check(self, key: str, value: int) -> None:
        lowest, highest = self
        if (lowest is None or value >= lowest) and (highest is None or value <= highest):
            return
        # Kafka has a message for each combination of bounds.
        if lowest is not None and highest is not None:
            raise ConfigError(f"{key} must be in the range {lowest} to {highest} inclusive.")
        bound = f"greater than or equal to {lowest}" if highest is None else f"less than or equal to {highest}"
        raise ConfigError(f"{key} must be {bound}")


def _definitions(settings: type[GroupSettings]) -> Iterator[tuple[Definition, str]]:
    """Yield config definitions, each with its attribute."""
    for attribute, declared in settings_of_groups(settings.GROUP_TYPE).items():
        key, is_internal = declared.key, declared.is_internal
        yield Definition(key[6:], declared.kind, declared.default, key, is_internal=is_internal), attribute
    for attribute, own in settings.own_settings().items():
        if own is not None:
            of_broker = SETTINGS.get(own.broker_key.replace(".", "_"))
            default = getattr(fields(settings), attribute).default if of_broker is None else of_broker.default
            yield Definition(own.key, own.kind, default, own.broker_key), attribute


_TAGS = "streams.rack.aware.assignment.tags"
_TYPES: tuple[type[GroupSettings], ...] = (ConsumerGroupSettings, ShareGroupSettings, StreamsGroupSettings)

GROUP_DEFINITIONS: Definitions = by_name(
    *(definition for settings in _TYPES for definition, _ in _definitions(settings))
)
_ATTRIBUTES: dict[type[GroupSettings], dict[str, str]] = {
    settings: {definition.name: name for definition, name in _definitions(settings) if name in settings.own_settings()}
    for settings in _TYPES
}


def checked_group_configs(own: Configs, config: Config) -> Configs:
    configs, values = checked_values(own, GROUP_DEFINITIONS, "group")
    for settings in _TYPES:
        # GroupConfig.validate checks bounds before relations between configs.
        for name, bounds in bounds_of(settings.GROUP_TYPE, config).items():
            key = key_of(f"{settings.GROUP_TYPE}_{name}")
            if key in values:
                _Bounds(*bounds).check(key, values[key])
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
    for group_type in (settings.GROUP_TYPE for settings in _TYPES):
        session, heartbeat = f"{group_type}.session.timeout.ms", f"{group_type}.heartbeat.interval.ms"
        session_ms, heartbeat_ms = (
            values.get(key, int(GROUP_DEFINITIONS[key].inherited(config)[0])) for key in (session, heartbeat)
        )
        if heartbeat_ms >= session_ms:
            raise ConfigError(f"{session} must be greater than {heartbeat}")
    for settings in _TYPES:
        group_settings(settings, configs, config)
    return configs


def group_settings(settings: type[SettingsT], own: Configs, config: Config) -> SettingsT:
    """Return the settings of a group with these overrides."""
    attributes = _ATTRIBUTES[settings].items()
    return settings.of(
        config, {name: GROUP_DEFINITIONS[key].kind.parse(key, own[key]) for key, name in attributes if key in own}
    )


FILE_NAME = "group-configs.json"


class GroupConfigFileError(DataFileError):
    """Unreadable or malformed file of group configs."""


class SettingsOfGroups(TypedDict):
    """Arguments of a group coordinator."""

    consumer_group_settings: SettingsOfConsumerGroup
    streams_group_settings: SettingsOfStreamsGroup


class GroupConfigs(KeptConfigs):
    """Overrides of group configs (KIP-848). A group need not exist.

    Args:
        config: the broker's settings, which are the defaults.
        place: the location of ``group-configs.json``; None for memory.

    Raises:
        GroupConfigFileError: the file has invalid content.
    """

    def __init__(self, config: Config, place: Place | None = None) -> None:
        self._config = config
        self._usual = ConsumerGroupSettings.of(config)
        self._settings: dict[str, ConsumerGroupSettings] = {}
        self._usual_share = ShareGroupSettings.of(config)
        self._share_settings: dict[str, ShareGroupSettings] = {}
        self._usual_streams = StreamsGroupSettings.of(config)
        self._streams_settings: dict[str, StreamsGroupSettings] = {}
        # Reads the file, and calls `_set`.
        super().__init__(JsonFile(place, FILE_NAME, "settings of groups", GroupConfigFileError), "groups")

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        """Return the settings of a consumer group."""
        return self._settings.get(group_id, self._usual)

    def share_settings_of(self, group_id: str) -> ShareGroupSettings:
        """Return the settings of a share group."""
        return self._share_settings.get(group_id, self._usual_share)

    def streams_settings_of(self, group_id: str) -> StreamsGroupSettings:
        """Return the settings of a streams group."""
        return self._streams_settings.get(group_id, self._usual_streams)

    def for_coordinator(self) -> SettingsOfGroups:
        """Return the group settings as arguments of a coordinator."""
        return {"consumer_group_settings": self.settings_of, "streams_group_settings": self.streams_settings_of}

    def _set(self, own: dict[str, Configs]) -> None:
        before = self._own
        super()._set(own)
        for group_id in before.keys() - own.keys():
            for settings in (self._settings, self._share_settings, self._streams_settings):
                settings.pop(group_id)
        # Computed once, since every heartbeat reads them.
        for group_id, configs in own.items():
            # A changed group has a new mapping, so identity is enough.
            if before.get(group_id) is not configs:
                self._settings[group_id] = group_settings(ConsumerGroupSettings, configs, self._config)
                self._share_settings[group_id] = group_settings(ShareGroupSettings, configs, self._config)
                self._streams_settings[group_id] = group_settings(StreamsGroupSettings, configs, self._config)
