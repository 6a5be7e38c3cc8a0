"""What ``groupcoord analyze`` costs beside another source tree, in turn, and whether both write the same tables.

    python -m tests.bench.analyses LOG --beside FOLDER [--rounds 3] [OPTION...]

Further options are those of ``groupcoord analyze``. CPU time is that of all processes (Python, Java, Python workers),
peak memory what all of them hold together, shared pages counted once. Tables are compared row by row,
whatever their order, by the columns that both trees write (others are named), and ``summary.json`` but for the time
when it was made. It runs on Linux.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pyarrow as pa
from pyarrow import dataset

from tests.processes import descendants

ROOT = Path(__file__).parents[2]
SAMPLE_EVERY_S = 0.5
SAID_ROWS_MAX = 5
_PR_SET_CHILD_SUBREAPER = 36
_MIB_KIB = 1_024


class Cost(NamedTuple):
    """Cost of one run. Attributes: cpu_s: of all its processes. peak_bytes: their largest memory together."""

    cpu_s: float
    peak_bytes: int


def analyze(tree: Path, log: str, out: Path, options: list[str]) -> Cost:
    """Run the command of a source tree in new processes, and return its cost. Raises: subprocess.CalledProcessError: it
    failed.
    """
    # What outlives its parent becomes a child of this process, so that its time is counted too.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = _children_s()
    command = [sys.executable, "-m", "groupcoord", "analyze", log, "--out", str(out), *options]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    peak_bytes = 0
    with open(out.with_suffix(".txt"), "w+b") as said:
        process = subprocess.Popen(command, cwd=tree, env=environment, stdout=said, stderr=said)
        while process.poll() is None:
            peak_bytes = max(peak_bytes, sum(map(_held_bytes, descendants(process.pid))))
            time.sleep(SAMPLE_EVERY_S)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    if process.returncode:
        sys.stderr.write(out.with_suffix(".txt").read_text("utf-8"))
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(_children_s() - before, peak_bytes)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _held_bytes(process: int) -> int:
    """Return the memory of a process, its part of what it shares with others; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * _MIB_KIB for line in lines if line.startswith("Pss:")), 0)


def differences(one: Path, other: Path) -> Iterator[str]:
    """Yield in words how the results in two directories differ.

    Rows are compared by the columns that both have.
    """
    names = {path.name for folder in (one, other) for path in (folder / "tables").iterdir()}
    for name in sorted(names):
        tables = [_table(folder / "tables" / name) for folder in (one, other)]
        both = sorted(set(tables[0].column_names) & set(tables[1].column_names))
        if apart := sorted(set(tables[0].column_names) ^ set(tables[1].column_names)):
            yield f"{name}: columns only in one: {', '.join(apart)}"
        yield from (
            f"{name}: {column} is {types[0]} and {types[1]}"
            for column in both
            if len(set(types := [table.schema.field(column).type for table in tables])) > 1
        )
        rows = [Counter(map(repr, table.select(both).to_pylist())) for table in tables]
        for folder, missing in ((one, rows[0] - rows[1]), (other, rows[1] - rows[0])):
            if missing:
                yield f"{name}: {missing.total()} rows only in {folder}"
                yield from (f"  {row}" for row in islice(missing, SAID_ROWS_MAX))
    summaries = [json.loads((folder / "summary.json").read_text("utf-8")) for folder in (one, other)]
    for name in sorted(summaries[0].keys() | summaries[1].keys()):
        of_one, of_other = (summary.get(name) for summary in summaries)
        if name != "made_ms" and of_one != of_other:
            yield f"summary.json: {name}: {of_one!r:.200} and {of_other!r:.200}"


def _table(folder: Path) -> pa.Table:
    files = sorted(str(path) for path in folder.rglob("*.parquet"))
    partitioning = dataset.partitioning(flavor="hive")
    return dataset.dataset(files, partitioning=partitioning, partition_base_dir=str(folder)).to_table()


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time and memory of groupcoord analyze beside another tree.")
    parser.add_argument("log", help="what to analyze")
    parser.add_argument("--beside", type=Path, required=True, metavar="FOLDER", help="the other source tree")
    parser.add_argument("--rounds", type=int, default=3, help="how often each (default: 3)")
    arguments, options = parser.parse_known_args()
    log = os.path.abspath(arguments.log)
    trees = {"beside": arguments.beside.resolve(), "this": ROOT}
    costs: dict[str, list[Cost]] = {name: [] for name in trees}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(arguments.rounds):
            for name, tree in trees.items():
                cost = analyze(tree, log, Path(directory, f"{name}-{number}"), options)
                costs[name].append(cost)
                print(f"{name:8}{cost.cpu_s:8.1f} CPU s{cost.peak_bytes / 2**20:8,.0f} MiB", flush=True)
        for said in differences(Path(directory, "beside-0"), Path(directory, "this-0")):
            print(said)
    of_beside, of_this = [median(cost.cpu_s for cost in costs[name]) for name in trees]
    print(f"{of_this / of_beside:.2f} of the CPU time")


if __name__ == "__main__":
    main()
