"""What ``analyze --follow`` costs where a log grows by a number of records each second, and whether it keeps up.

    python -m tests.bench.following [--rate 100000] [--seconds 120] [--groups 100000] [--partitions 10] [--json]

Time is this process's CPU time plus its waits between looks, as on an idle core, whatever else the machine does: a
process of its own lets the log grow by what the rate gives for it. Each group commits all its partitions in turn.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from itertools import cycle
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import BinaryIO

from groupcoord.analysis.pipeline.following import LocalFollowing, Progress

from .spark_logs import STARTED_MS, Group

LOG_PARTITIONS = 50
_MIB_KIB, _MS_PER_S = 1_024, 1_000


class GrowingLog:
    """A log directory to which groups write in turn.

    Args:
        folder: the directory; log partitions are folders in it.
        groups: the number of groups; group *n* is in log partition *n* modulo 50.
        partitions: the number of partitions that each group commits.
    """

    def __init__(self, folder: Path, groups: int, partitions: int) -> None:
        random = Random(1)
        self._groups = cycle([(number % LOG_PARTITIONS, Group(number, random, partitions)) for number in range(groups)])
        self._files: list[BinaryIO] = []
        self._ends = [0] * LOG_PARTITIONS
        self.now_ms = STARTED_MS
        for number in range(min(groups, LOG_PARTITIONS)):
            path = folder / f"__consumer_offsets-{number}" / f"{0:020d}.log"
            path.parent.mkdir(parents=True)
            self._files.append(path.open("wb"))

    def grow(self, records: int) -> int:
        """Append at least a number of records, whole commits, and return how many."""
        written = 0
        while written < records:
            number, group = next(self._groups)
            for data, count in group.batches(self._ends[number], self.now_ms):
                self._files[number].write(data)
                self._ends[number] += count
                written += count
        for file in self._files:
            file.flush()
        return written

    def close(self) -> None:
        for file in self._files:
            file.close()


def _write(folder: Path, groups: int, partitions: int, asked: Connection) -> None:
    """Append records and seconds from a pipe to a log; send back the number of records."""
    log = GrowingLog(folder, groups, partitions)
    while (wanted := asked.recv()) is not None:
        records, seconds = wanted
        log.now_ms += round(seconds * _MS_PER_S)
        asked.send(log.grow(records))
    log.close()


class CpuClock:
    """A clock that shows the CPU time of this process, and the time that it has waited."""

    def __init__(self) -> None:
        self.waited_s = 0.0

    def now_s(self) -> float:
        """Return seconds since the process began."""
        return time.process_time() + self.waited_s

    def now_ms(self) -> int:
        return STARTED_MS + round(self.now_s() * _MS_PER_S)


def measure(folder: Path, rate: int, seconds: float, groups: int, partitions: int) -> dict[str, float]:
    """Follow a log that holds one commit of each group at first and grows by a rate; return figures by name."""
    here, there = Pipe()
    writer = Process(target=_write, args=(folder / "log", groups, partitions, there), daemon=True)
    writer.start()

    def grow(records: int, seconds: float) -> int:
        here.send((records, seconds))
        return int(here.recv())

    written = grow(groups * (partitions + 1), 0.0)
    clock, updates = CpuClock(), [0.0]
    lengths: list[float] = []
    following = LocalFollowing([folder / "log"], folder / "out", clock=clock)
    begun_kib, first_s = _resident_kib(), clock.now_s()
    figures = {"first records": float(written)}

    def tell(progress: Progress) -> None:
        figures["rows"] = progress.rows
        figures["pages"] = figures.get("pages", 0) + (progress.report is not None)

    def is_stopped(wait_s: float) -> bool:
        nonlocal written, first_s
        if not lengths:
            figures["first update, s"] = clock.now_s() - first_s
            first_s = updates[-1] = clock.now_s()
            figures["resident behind it, MiB"] = _resident_kib() / _MIB_KIB
        clock.waited_s += wait_s
        lengths.append(clock.now_s() - updates[-1])
        updates.append(clock.now_s())
        if updates[-1] - first_s > seconds:
            return True
        written += grow(round(rate * lengths[-1]), lengths[-1])
        return False

    following.run(is_stopped, tell)
    here.send(None)
    writer.join()
    here.close()
    there.close()
    elapsed_s = updates[-1] - first_s
    figures |= {
        "seconds": elapsed_s,
        "records": written - figures["first records"],
        "waited, s": clock.waited_s,
        "longest between looks, s": max(lengths),
        "resident at first, MiB": begun_kib / _MIB_KIB,
        "most resident, MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MIB_KIB,
    }
    return figures


def _resident_kib() -> int:
    fields = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in fields if line.startswith("VmRSS"))


def main() -> None:
    parser = argparse.ArgumentParser(description="What following a log that grows costs.")
    parser.add_argument("--rate", type=int, default=100_000, help="records a second (default: 100,000)")
    parser.add_argument("--seconds", type=float, default=120.0, help="for so long the log grows (default: 120)")
    parser.add_argument("--groups", type=int, default=100_000, help="groups (default: 100,000)")
    parser.add_argument("--partitions", type=int, default=10, help="partitions that each commits (default: 10)")
    parser.add_argument("--json", action="store_true", help="print a line of JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), arguments.rate, arguments.seconds, arguments.groups, arguments.partitions)
    if arguments.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:28}{value:14,.1f}")


if __name__ == "__main__":
    main()
