"""Why groups rebalanced, from a broker's own files: how often for which cause, and each rebalance with its evidence.

    pip install '.[wire]'
    python examples/rebalance_causes.py /var/lib/kafka/data

It needs no JVM. ``groupcoord dump --history`` prints the same and more.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from groupcoord.analysis.fold.history import REBALANCE, LogHistory
from groupcoord.records.salvage import SoundBatch, salvage_batches


def history_of(folder: Path) -> LogHistory:
    """Read the log partition in a folder ``__consumer_offsets-N``, oldest segment first."""
    history = LogHistory(int(folder.name.rpartition("-")[2]))
    for path in sorted(folder.glob("*.log")):
        history.begin_file()
        data = path.read_bytes()
        for found in salvage_batches(lambda start, size, data=data: data[start : start + size], len(data)):
            if isinstance(found, SoundBatch):
                history.add(found)
            else:
                print(f"{path}: {found.reason}, {found.size_bytes} bytes are passed over", file=sys.stderr)
    return history


def main(data_directory: Path) -> None:
    """Print the rebalances of every group."""
    causes: Counter[str] = Counter()
    for folder in sorted(data_directory.glob("__consumer_offsets-*")):
        for row in history_of(folder).rows():
            if row.kind == REBALANCE:
                seen = row.values
                causes[seen["cause"]] += 1
                print(
                    f"{row.group_id} {seen['from_generation']} -> {seen['to_generation']}: "
                    f"{seen['cause']} ({seen['confidence']:.0%}), {seen['evidence']}"
                )
    print(", ".join(f"{cause} {count}" for cause, count in causes.most_common()) or "no rebalance")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
