"""A log of groups with every trouble, and what is known of the groups of a log."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord.analysis.decode.parquet import ResultDirectory
from groupcoord.analysis.decode.schema import KIND_RECORD, RECORDS
from groupcoord.analysis.fold.commits import CommitFacts, CommitFold, commits
from groupcoord.analysis.fold.histories import feed_history
from groupcoord.analysis.fold.history import KINDS, LogHistory
from groupcoord.analysis.fold.records import decode_records, read_back
from groupcoord.analysis.options import Thresholds
from groupcoord.analysis.pipeline.sources import LogSource
from groupcoord.analysis.rules.groups import Row
from groupcoord.core.log.records import OffsetCommitRecord

from ..fold.small_log import Log


class Known(NamedTuple):
    """State of the groups of a log partition."""

    histories: dict[str, list[Row]]
    facts: CommitFacts
    current: pa.Table


def fold_log(folder: Path, out: Path, limits: Thresholds | None = None) -> Known:
    """Decode the only log partition of a folder, and fold it."""
    results = ResultDirectory(out)
    decoded = decode_records(LogSource([folder]).tasks(), results, lambda done, total: None)
    (partition,) = decoded.partitions
    fold, history = CommitFold(limits), LogHistory(partition.number)
    for span in decoded.spans(partition):
        history.add_span(*span)
    for records in read_back(results, partition, RECORDS.names, [KIND_RECORD]):
        feed_history(history, records.filter(pc.field("problem").is_null()))
        fold.add(commits(records, partition.markers()))
    found: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    for row in history.rows():
        found[row.kind].append({"group_id": row.group_id, "log_partition": row.log_partition} | row.values)
    facts = fold.facts()
    return Known(found, facts, facts.current_offsets())


def write_troubled(folder: Path) -> None:
    log = Log(folder)
    log.generation(0, "stormy", 1, a1=[0], b1=[1])
    for number in range(2, 9):
        members = {"a1": [0]} if number % 2 == 0 else {"a1": [0], f"b{number}": [1]}
        log.generation(number * 1_000, "stormy", number, **members)
    log.commit(8_500, "stormy", 100).commit(9_000, "stormy", 60).commit(9_500, "stormy", 70)
    log.generation(10_000, "double", 1, a1=[0, 1], b1=[1])
    for step in range(5):
        log.commit(11_000 + step, "double", 5)
    for step in range(5):
        log.commit(11_000 + step, "double", 5 + step, partition=1)
    for step in range(7):
        log.commit(590_000 + step, "busy", step)
    # The member that leaves at the end was there a second before, as a commit shows.
    log.generation(20_000, "quiet", 1, a1=[0], b1=[1]).commit(49_000, "quiet", 1, partition=1)
    log.generation(50_000, "quiet", 2, a1=[0, 1])
    log.generation(500_000, "emptied", 1, a1=[0]).commit(500_005, "emptied", 1).generation(530_000, "emptied", 2)
    log.generation(500_000, "live", 1, a1=[0]).commit(500_005, "live", 1)
    log.add(OffsetCommitRecord("live", "former", 0, 1, commit_timestamp_ms=500_007), at_ms=500_007)
    own_expiry = OffsetCommitRecord("simple", "t", 0, 1, commit_timestamp_ms=500_008, expire_timestamp_ms=700_000)
    log.add(own_expiry, at_ms=500_008)
    log.commit(595_000, "open", 1).commit(595_500, "open", 2, producer_id=7)
    log.commit(600_000, "last", 1)
