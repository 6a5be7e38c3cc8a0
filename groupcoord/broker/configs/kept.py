"""Settings that things have of their own, kept in one file of the data directory."""

from __future__ import annotations

from collections.abc import Mapping

from groupcoord.broker.configs.definitions import NO_CONFIGS, Configs
from groupcoord.broker.json_file import JsonFile


class KeptConfigs:
    """The settings that things of one kind have of their own. A thing need not exist to have some.

    Args:
        file: where they are kept.
        kind: what the file calls the things.

    Raises:
        DataFileError: the file is there but can't be read or does not hold settings of such things.
    """

    def __init__(self, file: JsonFile, kind: str) -> None:
        self._file = file
        self._kind = kind
        self._own: dict[str, Configs] = {}
        self._file.read(lambda content: self._set(content[kind]))

    def reload(self) -> None:
        """Read the file again if another process has written it.

        Raises:
            DataFileError: it can't be read.
        """
        self._file.read_if_changed(lambda content: self._set(content[self._kind]))

    def names(self) -> list[str]:
        """Return the things that have some."""
        return list(self._own)

    def own(self, name: str) -> Configs:
        """Return the settings that a thing has of its own, as text, by name."""
        return self._own.get(name, NO_CONFIGS)

    def replace(self, changed: Mapping[str, Configs]) -> None:
        """Give things all the settings of their own that they shall have, together.

        Args:
            changed: name → its settings, which were checked; empty: none.

        Raises:
            OSError: the file can't be written; nothing has changed then.
        """
        own = {name: configs for name, configs in {**self._own, **changed}.items() if configs}
        if own != self._own:
            self._file.write(lambda: {self._kind: {name: dict(configs) for name, configs in own.items()}})
            self._set(own)

    def _set(self, own: dict[str, Configs]) -> None:
        self._own = own
