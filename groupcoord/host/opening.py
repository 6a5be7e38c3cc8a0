"""What a host keeps things in: on disk below one data directory, or in memory."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from groupcoord.broker.configs.administered import Administered
from groupcoord.broker.configs.groups import GroupConfigs
from groupcoord.broker.records.topic_data import TopicData
from groupcoord.broker.topics.registry import TopicError, TopicRegistry
from groupcoord.broker.transactions.log import NEXT_PRODUCER_ID, FileTransactionLog, MemoryTransactionLog
from groupcoord.config import Config
from groupcoord.core.topic_names import INTERNAL_TOPICS
from groupcoord.host.descriptors import descriptor_limit
from groupcoord.log_store import AbandonableStore, ClosableStore, LogStore, MemoryLogStore
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
    transaction_log: MemoryTransactionLog
    data: TopicData
    security: Security

    def __attrs_post_init__(self) -> None:
        """Know from the start which leaders the logs of ``__consumer_offsets`` have had."""
        self.data.serve_offsets(self.log_store)

    def close(self) -> None:
        """Close everything."""
        self.data.close()
        if isinstance(self.log_store, ClosableStore):
            self.log_store.close()
        self.transaction_log.close()

    def abandon(self) -> None:
        """Let go of files as a process does that is killed. What is kept in memory is left as a disk would be."""
        if isinstance(self.log_store, AbandonableStore):
            self.log_store.abandon()
        if self.data.logs is not None:
            self.data.logs.abandon()
        self.transaction_log.close()


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
    """Return where what topics hold is kept, and let the topics be that a broker has made there.

    Args:
        data_dir: the directory, of which :func:`open_log_store` has the lock; None: in memory.
        config: says whether topics hold anything.
        topics: those that are known; others that are found are added.

    Raises:
        OSError: the directory can't be read.
    """
    if data_dir is None or not config.records_enable:
        return None
    from groupcoord.storage.data_directory import DataDirectory

    directory = DataDirectory(data_dir, descriptors_max=min(descriptor_limit() // OPEN_FILES_SHARE, OPEN_FILES_MAX))
    known = {topic.name for topic in topics} | INTERNAL_TOPICS | {METADATA_TOPIC}
    with topics.edit() as edit:
        for name, topic_id, partition_count in directory.find_topics(known):
            try:
                edit.create(name, partition_count, topic_id)
            except TopicError as error:
                logger.error("%s: the folders of topic %r are left alone: %s", data_dir, name, error)
    return directory


def open_transaction_log(data_dir: Path | None) -> MemoryTransactionLog:
    """Return the transaction log that belongs to :func:`open_log_store`.

    Raises:
        TransactionLogError: the file does not hold what it should.
    """
    if data_dir is None:
        return MemoryTransactionLog()
    log = FileTransactionLog(data_dir)
    if NEXT_PRODUCER_ID not in log.entries and (data_dir / BROKER_FILE).exists():
        log.put(NEXT_PRODUCER_ID, PRODUCER_ID_BESIDE_A_BROKER)
    return log
