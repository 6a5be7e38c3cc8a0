"""The storage of ``groupcoord serve``: a data directory, memory, or a log that nodes share."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from groupcoord.broker.configs.administered import Administered
from groupcoord.broker.configs.groups import GroupConfigs
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.security.security import Security
from groupcoord.broker.topics.internal import ensure_internal_topic
from groupcoord.broker.topics.registry import TopicError, TopicRegistry
from groupcoord.clock import Clock
from groupcoord.config import Config
from groupcoord.core.log.records import OFFSETS_TOPIC
from groupcoord.host.opening import (
    Storage,
    open_cluster_storage,
    open_log_store,
    open_producer_ids,
    open_topic_directory,
)
from groupcoord.log_store import ListingStore, LogStore, close_store

if TYPE_CHECKING:
    from groupcoord.cluster.documents import SlotDocuments
    from groupcoord.storage.data_directory import DataDirectory

FAILURE, USAGE_ERROR = 1, 2
OFFSETS_PARTITIONS_KEY = "offsets.topic.num.partitions"


class StartError(Exception):
    """The server can't start as asked. The message is one line for the user."""

    def __init__(self, message: str, exit_status: int = FAILURE) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class Opening:
    """Opens what the server keeps its data in: on disk anew in each of its lives, in memory once.

    Args:
        data_dir: where it is on disk; None: in memory.
        config: the settings.
        is_set: the number of offsets partitions is among those that were given.
        topics: those that shall exist.
        clock: where time comes from.
        security: who may connect.

    Attributes:
        clock, data_dir: as given.
    """

    def __init__(
        self,
        data_dir: Path | None,
        config: Config,
        is_set: bool,
        topics: list[tuple[str, int]],
        clock: Clock,
        security: Security,
    ) -> None:
        self.data_dir = data_dir
        self._config = config
        self._is_set = is_set
        self._topics = topics
        self.clock = clock
        self._security = security
        self._in_memory: Storage | None = None

    def storage(self) -> Storage:
        """Return it.

        Raises:
            StartError: it can't be used as asked.
        """
        if self._in_memory is not None:
            return self._in_memory
        data_dir = self.data_dir
        with ExitStack() as stack:
            store = _open_store(data_dir, self._config)
            stack.callback(close_store, store)
            registry, directory, config = _open_topics(data_dir, store, self._config, self._is_set, self._topics)
            storage = Storage(
                config,
                store,
                registry,
                GroupConfigs(config, data_dir),
                Administered(data_dir),
                open_producer_ids(data_dir),
                TopicData(config, self.clock, registry, directory),
                self._security,
            )
            stack.pop_all()
        if data_dir is None:
            self._in_memory = storage
        return storage

    def for_cluster(self, documents: SlotDocuments) -> Storage:
        """Return what a node keeps its data in that shares a log with others; the first one makes the topics.

        Args:
            documents: what all nodes must know; open.

        Raises:
            StartError: it can't be used as asked.
        """
        registry = TopicRegistry(documents)
        while True:
            refusals = documents.refusals
            registry.reload()
            config = _keep_offsets_partitions(registry, (), self._config, self._is_set)
            try:
                with registry.edit() as edit:
                    ensure_internal_topic(edit, OFFSETS_TOPIC, config)
                _ensure_topics(registry, "the cluster", self._topics)
            except (OSError, StartError) as error:
                if documents.refusals == refusals:
                    raise StartError(str(error)) from None
            else:
                return open_cluster_storage(documents, registry, config, self.clock, self._security)


def _open_store(data_dir: Path | None, config: Config) -> LogStore:
    from groupcoord.storage.errors import LogDirectoryError

    try:
        return open_log_store(data_dir, config)
    except LogDirectoryError as error:
        raise StartError(str(error)) from None


def _open_topics(
    data_dir: Path | None, store: LogStore, config: Config, is_set: bool, topics: list[tuple[str, int]]
) -> tuple[TopicRegistry, DataDirectory | None, Config]:
    """Read the topics, add those of the command line, and settle how many partitions the offsets topic has."""
    try:
        registry = TopicRegistry(data_dir)
        found = sorted(store.partitions()) if isinstance(store, ListingStore) else []
        config = _keep_offsets_partitions(registry, found, config, is_set)
        directory = open_topic_directory(data_dir, config, registry)
    except OSError as error:
        raise StartError(f"{data_dir}: {error.strerror or error}") from None
    _ensure_topics(registry, data_dir, topics)
    return registry, directory, config


def _ensure_topics(registry: TopicRegistry, where: object, topics: list[tuple[str, int]]) -> None:
    """Have the topics of the command line."""
    try:
        for name, partition_count in topics:
            registry.ensure(name, partition_count)
    except TopicError as error:
        raise StartError(f"--topic {name}:{partition_count}: {error}") from None
    except OSError as error:
        raise StartError(f"{where}: {error.strerror or error}") from None


def _keep_offsets_partitions(registry: TopicRegistry, found: Sequence[int], config: Config, is_set: bool) -> Config:
    # The number decides which log partition a group lives in: with another one its offsets would not be found.
    wanted = config.offsets_topic_num_partitions
    known = registry.get(OFFSETS_TOPIC)
    if known is None:
        if found and found[-1] >= wanted:
            raise StartError(f"there is a log partition {found[-1]}, but {OFFSETS_PARTITIONS_KEY} is {wanted}")
        return config
    if known.partition_count == wanted:
        return config
    if is_set:
        raise StartError(f"{OFFSETS_PARTITIONS_KEY} is {known.partition_count} here and can't become {wanted}")
    return evolve(config, offsets_topic_num_partitions=known.partition_count)
