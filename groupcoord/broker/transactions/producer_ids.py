"""The ids that producers are given: each once, over all restarts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from groupcoord.broker.json_file import DataFileError, JsonFile
from groupcoord.errors import GroupcoordError

FILE_NAME = "producer-ids.json"
PRODUCER_ID_BLOCK = 1_000
"""So many ids are set aside with one write, as brokers do; those that a restart leaves over are not used."""


class ProducerIdsFileError(DataFileError):
    """The file can't be read or does not hold what it should; the message names the file and the reason."""


class NoProducerIdError(GroupcoordError):
    """No more ids can be set aside: the file can't be written."""


class ProducerIds:
    """Gives out ids. A broker keeps the first that wasn't set aside in its metadata; here it has a file.

    Args:
        directory: where the file lies or will lie; None: in memory.

    Raises:
        ProducerIdsFileError: the file is there but can't be read, or names no id.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._file = JsonFile(directory, FILE_NAME, "an id", ProducerIdsFileError)
        self._reserved = self._file.read(lambda content: int(content["next_producer_id"]))
        self._next = self._reserved

    @property
    def is_known(self) -> bool:
        """Whether an id was ever given out, or set aside."""
        return self._reserved is not None

    def begin_at(self, producer_id: int) -> None:
        """Give out no lower ids.

        Raises:
            NoProducerIdError: that can't be written.
        """
        self._reserve(producer_id)
        self._next = producer_id

    def take(self, first_unused: Callable[[], int]) -> int:
        """Return an id that nobody has.

        Args:
            first_unused: returns where to begin; called for the first of all.

        Raises:
            NoProducerIdError: none can be set aside.
        """
        producer_id = first_unused() if self._next is None else self._next
        if self._reserved is None or producer_id >= self._reserved:
            self._reserve(producer_id + PRODUCER_ID_BLOCK)
        self._next = producer_id + 1
        return producer_id

    def _reserve(self, end: int) -> None:
        try:
            self._file.write(lambda: {"next_producer_id": end})
        except OSError as error:
            raise NoProducerIdError(f"producer ids can't be set aside: {error}") from error
        self._reserved = end
