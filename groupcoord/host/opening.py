"""What a host keeps things in: on disk below one data directory, or in memory."""

from __future__ import annotations

from pathlib import Path

from groupcoord.config import Config
from groupcoord.host.transaction_log import FileTransactionLog, MemoryTransactionLog
from groupcoord.log_store import LogStore, MemoryLogStore


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


def open_transaction_log(data_dir: Path | None) -> MemoryTransactionLog:
    """Return the transaction log that belongs to :func:`open_log_store`.

    Raises:
        TransactionLogError: the file does not hold what it should.
    """
    return MemoryTransactionLog() if data_dir is None else FileTransactionLog(data_dir)
