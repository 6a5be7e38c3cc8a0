"""The settings that groups have of their own, kept in one file of the data directory; the coordinator asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from groupcoord.broker.configs.definitions import NO_CONFIGS, Configs, consumer_group_settings
from groupcoord.broker.json_file import DataFileError, JsonFile
from groupcoord.config import Config
from groupcoord.config.group_settings import ConsumerGroupSettings

FILE_NAME = "group-configs.json"


class GroupConfigFileError(DataFileError):
    """The file of groups' settings can't be read or does not hold what it should; the message names file and reason."""


class GroupConfigs:
    """What groups have of their own settings (KIP-848). A group need not exist to have some.

    Args:
        config: the broker's settings, which hold for all others.
        directory: where ``group-configs.json`` lies or will lie; None keeps everything in memory.

    Raises:
        GroupConfigFileError: the file is there but can't be read or does not hold settings of groups.
    """

    def __init__(self, config: Config, directory: Path | None = None) -> None:
        self._config = config
        self._file = JsonFile(directory, FILE_NAME, "settings of groups", GroupConfigFileError)
        self._own: dict[str, Configs] = {}
        self._usual = ConsumerGroupSettings.of(config)
        self._settings: dict[str, ConsumerGroupSettings] = {}
        self._file.read(lambda content: self._set(content["groups"]))

    def group_ids(self) -> list[str]:
        """Return the groups that have some."""
        return list(self._own)

    def own(self, group_id: str) -> Configs:
        """Return the settings that a group has of its own, as text, by name."""
        return self._own.get(group_id, NO_CONFIGS)

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        """Return what holds for a group: what the coordinator asks."""
        return self._settings.get(group_id, self._usual)

    def replace(self, changed: Mapping[str, Configs]) -> None:
        """Give groups all the settings of their own that they shall have, together.

        Args:
            changed: group id → its settings, which were checked; empty: none.

        Raises:
            OSError: the file can't be written; nothing has changed then.
        """
        own = {group_id: configs for group_id, configs in {**self._own, **changed}.items() if configs}
        if own != self._own:
            self._file.write(lambda: {"groups": {group_id: dict(configs) for group_id, configs in own.items()}})
            self._set(own)

    def _set(self, own: dict[str, Configs]) -> None:
        self._own = own
        self._settings = {group_id: consumer_group_settings(configs, self._config) for group_id, configs in own.items()}
