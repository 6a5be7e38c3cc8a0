"""What Kafka 4.4's log cleaner made of random histories, and what compaction makes of the same files: batch by batch.

``compacted_histories.py`` has recorded them: plain, compressed, idempotent and transactional producers, tombstones,
headers, aborted transactions, and three passes over each log, of which the later ones drop what has had its time.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from groupcoord.storage.compaction.cleaner import CleanerCheckpoint
from groupcoord.storage.log.settings import TopicLogSettings
from tests.tables import as_one_test
from tests.topic_logs.batches import TOPIC
from tests.topic_logs.compacted_histories import DELETE_RETENTION_MS, Files, Phase, content, load
from tests.topic_logs.disk import Disk

RECORDED = Path(__file__).with_name("compacted_histories.json.xz")
SETTINGS = evolve(
    TopicLogSettings(), is_compacted=True, min_cleanable_ratio=0.0, delete_retention_ms=DELETE_RETENTION_MS
)


def differences(phase: Phase, path: Path) -> list[str]:
    """Compact a cleaner's input, and return the differences from its output."""
    folder = path / f"{TOPIC.name}-0"
    folder.mkdir(parents=True)
    for name, data in phase.before.items():
        (folder / name).write_bytes(data)
    if phase.first_dirty:
        CleanerCheckpoint(path).note((TOPIC.name, 0), phase.first_dirty)
    disk = Disk(path)
    disk.log()
    while disk.logs.compact_some(lambda: [(TOPIC, SETTINGS)], phase.now_ms, 50):
        pass
    ours: Files = {
        file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.suffix in (".log", ".txnindex")
    }
    disk.logs.close()
    return compared(content(ours), content(phase.after))


def compared(ours: dict[str, list[object]], theirs: dict[str, list[object]]) -> list[str]:
    """Return lines about what differs."""
    found = [f"{name}: only one has it" for name in sorted(ours.keys() ^ theirs.keys())]
    for name in sorted(ours.keys() & theirs.keys()):
        left, right = ours[name], theirs[name]
        found += [f"{name} ours:   {entry}" for entry in left if entry not in right]
        found += [f"{name} theirs: {entry}" for entry in right if entry not in left]
        if not found and left != right:
            found.append(f"{name}: another order")
    return found


@as_one_test
@pytest.mark.parametrize("phase", [phase for history in load(RECORDED) for phase in history])
def test_what_kafka_left(phase: Phase, tmp_path: Path) -> None:
    """The same batches in the same segments, and the same aborted transactions."""
    assert differences(phase, tmp_path) == []
