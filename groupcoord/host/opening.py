"""Storage of a server: a data directory or memory, opened from the settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from attrs import asdict, evolve, frozen

from groupcoord.broker.cluster.nodes import Administered
from groupcoord.broker.configs.definitions import GroupConfigs
from groupcoord.broker.json_file import Place
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import METADATA_TOPIC, TopicError, TopicRegistry, usual_configs
from groupcoord.broker.transactions.log import ProducerIds
from groupcoord.broker.transactions.requests import API_KEYS as NO_TRANSACTION_KEYS
from groupcoord.clock import Clock
from groupcoord.config import Config, GroupType
from groupcoord.core.log.records import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from groupcoord.errors import GroupcoordError
from groupcoord.host.process import descriptor_limit
from groupcoord.log_store import AbandonableStore, ListingStore, LogStore, MemoryLogStore, close_store
from groupcoord.storage.files import BROKER_FILE

if TYPE_CHECKING:
    from groupcoord.broker.broker import Broker
    from groupcoord.broker.cluster.nodes import Nodes
    from groupcoord.broker.records.topic_data import NodeData
    from groupcoord.broker.security.security import Security
    from groupcoord.core.messages import Node
    from groupcoord.storage.data_directory import DataDirectory, FoundTopic

B = TypeVar("B", bound="Broker")

OFFSETS_PARTITIONS_KEY = "offsets.topic.num.partitions"
PRODUCER_ID_BESIDE_A_BROKER = 2**40
"""First producer id in a Kafka broker's directory: the broker has assigned lower ones and will continue with them."""

WORKERS_FOLDER = "workers"
"""Folder in which earlier versions kept the partitions of ``serve --workers``, which does not exist any more."""

FOR_WORKERS = (
    "it was written by --workers, which there is no more: "
    "start the version that wrote it once without --workers, which gathers its partitions"
)

OPEN_FILES_SHARE, OPEN_FILES_MAX = 4, 1_024
"""Divisor of the file descriptor limit, and upper bound, for open topic logs."""

logger = logging.getLogger("groupcoord.host")


@frozen
class Storage:
    """Storage of a server, on disk or in memory."""

    config: Config
    log_store: LogStore
    topics: TopicRegistry
    group_configs: GroupConfigs
    administered: Administered
    producer_ids: ProducerIds
    data: TopicData
    security: Security

    def __attrs_post_init__(self) -> None:
        """Register the log store for readers of ``__consumer_offsets``."""
        self.data.serve_offsets(self.log_store)

    def broker(
        self, make_broker: Callable[..., B], *, clock: Clock, node: Node, nodes: Nodes, data: TopicData | NodeData
    ) -> B:
        own = asdict(self, recurse=False) | {"data": data}
        return make_broker(**own, clock=clock, node=node, nodes=nodes)

    def close(self) -> None:
        self.data.close()
        close_store(self.log_store)

    def abandon(self) -> None:
        """Close files as a killed process does."""
        if isinstance(self.log_store, AbandonableStore):
            self.log_store.abandon()
        self.data.all_logs.abandon()


def open_log_store(data_dir: Path | None, config: Config) -> LogStore:
    """Return the log store in a data directory, or one in memory.

    Raises:
        LogDirectoryError: the directory can't be used, for example because another process has it open.
    """
    if data_dir is None:
        return MemoryLogStore()
    from groupcoord.storage.errors import LogDirectoryError
    from groupcoord.storage.stores.segments import CompactionSettings, SegmentLogStore

    # Before the lock, so that the refused directory stays as it is.
    if (data_dir / WORKERS_FOLDER).is_dir():
        raise LogDirectoryError(data_dir, FOR_WORKERS)
    return SegmentLogStore(
        data_dir,
        segment_bytes=config.offsets_topic_segment_bytes,
        # 0 and 1 are the same: no batch is that small.
        batch_bytes_max=max(config.message_max_bytes, 1),
        flush_interval_messages=config.log_flush_interval_messages,
        flush_interval_ms=config.log_flush_interval_ms,
        compaction=CompactionSettings(
            min_cleanable_ratio=config.log_cleaner_min_cleanable_ratio,
            delete_retention_ms=config.log_cleaner_delete_retention_ms,
            min_compaction_lag_ms=config.log_cleaner_min_compaction_lag_ms,
            dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        ),
    )


def open_topic_directory(data_dir: Path | None, config: Config, topics: TopicRegistry) -> DataDirectory | None:
    """Return the directory of topics and transactions, and add the topics that a broker has created there.

    Raises:
        OSError: the directory can't be read.
    """
    if data_dir is None:
        return None
    from groupcoord.storage.data_directory import DataDirectory

    directory = DataDirectory(data_dir, descriptors_max=min(descriptor_limit() // OPEN_FILES_SHARE, OPEN_FILES_MAX))
    # The log store owns the offsets topic; the metadata topic is Kafka's own.
    known = {topic.name for topic in topics} | {OFFSETS_TOPIC, METADATA_TOPIC}
    _adopt_topics(directory.find_topics(known), data_dir, config, topics)
    return directory


def _adopt_topics(found: Iterable[FoundTopic], data_dir: Path, config: Config, topics: TopicRegistry) -> None:
    with topics.edit() as edit:
        for name, topic_id, partition_count in found:
            is_wanted = config.records_enable or name == TRANSACTIONS_TOPIC
            try:
                # Without records, only transactions are kept, and other folders are left alone.
                if is_wanted:
                    edit.create(name, partition_count, topic_id, usual_configs(name, config))
            except TopicError as error:
                logger.error("%s: the folders of topic %r are left alone: %s", data_dir, name, error)


class OffsetsPartitionsError(GroupcoordError):
    """``offsets.topic.num.partitions`` is not the number of log partitions that exist."""


def keep_offsets_partitions(topics: TopicRegistry, found: Sequence[int], config: Config, *, is_set: bool) -> Config:
    """Return a configuration with the existing number of log partitions: with another one, offsets would not be found.

    ``is_set``: the user has set ``offsets.topic.num.partitions``, so that another number is an error.
    """
    wanted = config.offsets_topic_num_partitions
    known = topics.get(OFFSETS_TOPIC)
    if known is None:
        if found and found[-1] >= wanted:
            raise OffsetsPartitionsError(
                f"there is a log partition {found[-1]}, but {OFFSETS_PARTITIONS_KEY} is {wanted}"
            )
        return config
    if is_set and known.partition_count != wanted:
        raise OffsetsPartitionsError(
            f"{OFFSETS_PARTITIONS_KEY} is {known.partition_count} here and can't become {wanted}"
        )
    return evolve(config, offsets_topic_num_partitions=known.partition_count)


def open_storage(
    data_dir: Path | None,
    config: Config,
    clock: Clock,
    security: Security,
    create_topics: Callable[[TopicRegistry], object],
    *,
    is_set: bool = False,
) -> Storage:
    """Return the storage of a server in a data directory, or one in memory.

    ``create_topics`` adds topics to those of the directory; ``is_set`` is as for :func:`keep_offsets_partitions`.

    Raises:
        GroupcoordError: the directory can't be used, or what is in it.
        OSError: a file can't be read or written.
    """
    with ExitStack() as stack:
        store = open_log_store(data_dir, config)
        stack.callback(close_store, store)
        topics = TopicRegistry(data_dir)
        found = sorted(store.partitions()) if isinstance(store, ListingStore) else []
        config = keep_offsets_partitions(topics, found, config, is_set=is_set)
        directory = open_topic_directory(data_dir, config, topics)
        create_topics(topics)
        administered, producer_ids = Administered(data_dir), open_producer_ids(data_dir)
        data = TopicData(config, clock, topics, directory)
        group_configs = GroupConfigs(config, data_dir)
        storage = Storage(config, store, topics, group_configs, administered, producer_ids, data, security)
        stack.pop_all()
    return storage


def open_cluster_storage(
    place: Place, topics: TopicRegistry, config: Config, clock: Clock, security: Security
) -> Storage:
    """Return the storage of a cluster node: its documents and log are shared.

    Raises:
        GroupcoordError: a document is malformed.
    """
    from groupcoord.cluster.slot_store import SlotStore

    administered = Administered(place)
    administered.features.left_out = frozenset((GroupType.SHARE,))
    administered.features.left_out_keys = NO_TRANSACTION_KEYS
    # Only the logs of groups are replicated.
    config = evolve(config, records_enable=False)
    data = TopicData(config, clock, topics)
    group_configs = GroupConfigs(config, place)
    return Storage(config, SlotStore(), topics, group_configs, administered, ProducerIds(), data, security)


def open_producer_ids(data_dir: Path | None) -> ProducerIds:
    """Return the source of producer ids in the directory that :func:`open_log_store` has locked.

    Raises:
        ProducerIdsFileError: the file can't be read or is malformed.
        NoProducerIdError: it can't be written.
    """
    producer_ids = ProducerIds(data_dir)
    if data_dir is not None and not producer_ids.is_known and (data_dir / BROKER_FILE).exists():
        producer_ids.begin_at(PRODUCER_ID_BESIDE_A_BROKER)
    return producer_ids
