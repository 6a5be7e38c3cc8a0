"""Load of log partitions by group."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from groupcoord.analysis.decode.files import find_segments, log_tasks
from groupcoord.analysis.decode.rows import RowSettings
from groupcoord.analysis.fold.records import COUNTED_COLUMNS, LoadFold, partition_load
from groupcoord.core.log.records import OffsetCommitRecord, OffsetTombstone
from groupcoord.records.codec import encode_record

from .small_log import GROUP, TOPIC, Log, commit


def test_load_is_counted_by_log_partition(tmp_path: Path) -> None:
    """Records, keys that are superseded, the hottest group and the bytes of a small log, worked out by hand."""
    log = Log(tmp_path, 7)
    log.add(commit(0, 1), commit(1, 1)).add(commit(0, 2)).add(OffsetTombstone(GROUP, TOPIC, 1))
    log.add(OffsetCommitRecord("another", TOPIC, 0, 1)).add(commit(0, 3, 9), producer_id=9).end(9, committed=True)
    Log(tmp_path, 8)
    path = tmp_path / "__consumer_offsets-7" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + b"torn")
    fold = LoadFold()
    for task in log_tasks(find_segments([str(tmp_path)])):
        for batch in task.rows(RowSettings(COUNTED_COLUMNS)):
            fold.add(pa.Table.from_batches([batch]))
    (load,) = partition_load(fold.keys())
    key, value = encode_record(commit(0, 1))
    assert value is not None

    assert {name: load[name] for name in ("log_partition", "records", "commits", "tombstones", "control_records")} == {
        "log_partition": 7,
        "records": 7,
        "commits": 5,
        "tombstones": 1,
        "control_records": 1,
    }
    assert (load["groups"], load["hottest_group"], load["hottest_group_records"]) == (2, GROUP, 5)
    assert load["hottest_group_share"] == pytest.approx(5 / 7)
    assert (load["live_keys"], load["superseded_records"]) == (2, 3)
    assert load["superseded_bytes"] == 3 * (len(key) + len(value))
    assert (load["file_bytes"], load["corrupt_bytes"]) == (path.stat().st_size, 4)
    assert (load["first_timestamp_ms"], load["last_timestamp_ms"]) == (1_000, 1_006)
