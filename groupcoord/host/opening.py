"""What a host keeps things in: on disk below one data directory, or in memory."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from groupcoord.broker.configs.administered import Administered
from groupcoord.broker.configs.definitions import NO_CONFIGS, transactions_topic_configs
from groupcoord.broker.configs.groups import GroupConfigs
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import TopicError, TopicRegistry
from groupcoord.broker.transactions.producer_ids import ProducerIds
from groupcoord.config import Config
from groupcoord.core.records import OFFSETS_TOPIC
from groupcoord.core.topic_names import TRANSACTIONS_TOPIC
from groupcoord.host.descriptors import descriptor_limit
from groupcoord.log_store import AbandonableStore, LogStore, MemoryLogStore, close_store
from groupcoord.storage.log_directory import BROKER_FILE

if TYPE_CHECKING:
    from groupcoord.broker.security.security import Security
    from groupcoord.storage.data_directory import DataDirectory

METADATA_TOPIC = "__cluster_metadata"
"""What a broker keeps for itself in a folder like those of topics."""

PRODUCER_ID_BESIDE_A_BROKER = 2**40
"""The first in a broker's directory: the broker has given out lower ones, and will go on to when it is back."""

OPEN_FILES_SHARE, OPEN_FILES_MAX = 4, 1_024
"""What topics hold may have so large a part of the file descriptors open, and not more than so many."""

logger = logging.getLogger("groupcoord.host")


@frozen
class Storage:
    """What a server keeps its data in, on disk or in memory."""

    config: Config
    log_store: LogStore
    topics: TopicRegistry
    group_configs: GroupConfigs
    administered: Administered
    producer_ids: ProducerIds
    data: TopicData
    security: Security

    def __attrs_post_init__(self) -> None:
        """Know from the start which leaders the logs of ``__consumer_offsets`` have had."""
        self.data.serve_offsets(self.log_store)

    def close(self) -> None:
        """Close everything."""
        self.data.close()
        close_store(self.log_store)

    def abandon(self) -> None:
        """Let go of files as a process does that is killed. What is kept in memory is left as a disk would be."""
        if isinstance(self.log_store, AbandonableStore):
            self.log_store.abandon()
        self.data.all_logs.abandon()


def open_log_store(data_dir: Path | None, config: Config) -> LogStore:
    """Return the log store for a data directory, or one in memory.

    Args:
        data_dir: the directory, made if need be; None: keep everything in memory.
        config: says how large segments and batches are, and when to flush and to compact.

    Raises:
        LogDirectoryError: the directory can't be used, for example since another process has it open.
    """
    if data_dir is None:
        return MemoryLogStore()
    from groupcoord.storage.compaction import CompactionSettings
    from groupcoord.storage.segment_store import SegmentLogStore

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
    """Return where what topics hold, and transactions, are kept, and let the topics be that a broker has made there.

    Args:
        data_dir: the directory, of which :func:`open_log_store` has the lock; None: in memory.
        config: says whether topics of clients hold anything.
        topics: those that are known; others that are found are added.

    Raises:
        OSError: the directory can't be read.
    """
    if data_dir is None:
        return None
    from groupcoord.storage.data_directory import DataDirectory

    directory = DataDirectory(data_dir, descriptors_max=min(descriptor_limit() // OPEN_FILES_SHARE, OPEN_FILES_MAX))
    known = {topic.name for topic in topics} | {OFFSETS_TOPIC, METADATA_TOPIC}
    with topics.edit() as edit:
        for name, topic_id, partition_count in directory.find_topics(known):
            is_wanted = config.records_enable or name == TRANSACTIONS_TOPIC
            configs = transactions_topic_configs(config) if name == TRANSACTIONS_TOPIC else NO_CONFIGS
            try:
                if is_wanted:
                    edit.create(name, partition_count, topic_id, configs)
            except TopicError as error:
                logger.error("%s: the folders of topic %r are left alone: %s", data_dir, name, error)
    return directory


def open_producer_ids(data_dir: Path | None) -> ProducerIds:
    """Return what gives ids to producers, and belongs to :func:`open_log_store`.

    Raises:
        ProducerIdsFileError: the file can't be read, or does not hold what it should.
        NoProducerIdError: it can't be written.
    """
    producer_ids = ProducerIds(data_dir)
    if data_dir is not None and not producer_ids.is_known and (data_dir / BROKER_FILE).exists():
        producer_ids.begin_at(PRODUCER_ID_BESIDE_A_BROKER)
    return producer_ids
