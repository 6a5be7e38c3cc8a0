"""The settings that groups have of their own; the coordinator asks for them."""

from __future__ import annotations

from typing import TypedDict

from groupcoord.broker.configs.definitions import Configs
from groupcoord.broker.configs.group_definitions import group_settings
from groupcoord.broker.configs.kept import KeptConfigs
from groupcoord.broker.json_file import DataFileError, JsonFile, Place
from groupcoord.config import Config
from groupcoord.config.group_settings import (
    ConsumerGroupSettings,
    SettingsOfConsumerGroup,
    SettingsOfStreamsGroup,
    ShareGroupSettings,
    StreamsGroupSettings,
)

FILE_NAME = "group-configs.json"


class GroupConfigFileError(DataFileError):
    """The file of groups' settings can't be read or does not hold what it should; the message names file and reason."""


class SettingsOfGroups(TypedDict):
    """Where a group coordinator learns what holds for a group, of each kind."""

    consumer_group_settings: SettingsOfConsumerGroup
    streams_group_settings: SettingsOfStreamsGroup


class GroupConfigs(KeptConfigs):
    """What groups have of their own settings (KIP-848). A group need not exist to have some.

    Args:
        config: the broker's settings, which hold for all others.
        place: where ``group-configs.json`` lies or will lie; None keeps everything in memory.

    Raises:
        GroupConfigFileError: the file is there but can't be read or does not hold settings of groups.
    """

    def __init__(self, config: Config, place: Place | None = None) -> None:
        self._config = config
        self._usual = ConsumerGroupSettings.of(config)
        self._settings: dict[str, ConsumerGroupSettings] = {}
        self._usual_share = ShareGroupSettings.of(config)
        self._share_settings: dict[str, ShareGroupSettings] = {}
        self._usual_streams = StreamsGroupSettings.of(config)
        self._streams_settings: dict[str, StreamsGroupSettings] = {}
        super().__init__(JsonFile(place, FILE_NAME, "settings of groups", GroupConfigFileError), "groups")

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        """Return what holds for a consumer group: what the coordinator asks."""
        return self._settings.get(group_id, self._usual)

    def share_settings_of(self, group_id: str) -> ShareGroupSettings:
        """Return what holds for a share group."""
        return self._share_settings.get(group_id, self._usual_share)

    def streams_settings_of(self, group_id: str) -> StreamsGroupSettings:
        """Return what holds for a streams group."""
        return self._streams_settings.get(group_id, self._usual_streams)

    def for_coordinator(self) -> SettingsOfGroups:
        """Return what a group coordinator asks for settings of groups, by its argument."""
        return {"consumer_group_settings": self.settings_of, "streams_group_settings": self.streams_settings_of}

    def _set(self, own: dict[str, Configs]) -> None:
        before = self._own
        super()._set(own)
        for group_id in before.keys() - own.keys():
            for settings in (self._settings, self._share_settings, self._streams_settings):
                settings.pop(group_id)
        for group_id, configs in own.items():
            if before.get(group_id) is not configs:
                self._settings[group_id] = group_settings(ConsumerGroupSettings, configs, self._config)
                self._share_settings[group_id] = group_settings(ShareGroupSettings, configs, self._config)
                self._streams_settings[group_id] = group_settings(StreamsGroupSettings, configs, self._config)
