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
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pandas.util import hash_array  # type: ignore[import-untyped]
from pyarrow import dataset

from tests.processes import descendants

ROOT = Path(__file__).parents[2]
SAMPLE_EVERY_S = 0.5
SAID_ROWS_MAX = 5
_PR_SET_CHILD_SUBREAPER = 36
_MIB_KIB = 1_024

HASH_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
Hashes = NDArray[np.uint64]


class Cost(NamedTuple):
    """What one run took.

    Attributes:
        cpu_s: of all its processes.
        peak_bytes: the most that they held together.
    """

    cpu_s: float
    peak_bytes: int


def analyze(tree: Path, log: str, out: Path, options: list[str]) -> Cost:
    """Run the command of a source tree in processes of its own, and return what it took.

    Raises:
        subprocess.CalledProcessError: it failed.
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

    Rows are compared by the columns that both have, by their hashes: so a table of any length fits into memory.
    """
    names = {path.name for folder in (one, other) for path in (folder / "tables").iterdir()}
    for name in sorted(names):
        tables = [_table(folder / "tables" / name) for folder in (one, other)]
        fields = [_types(table) for table in tables]
        both = sorted(fields[0].keys() & fields[1].keys())
        for folder, own, others in ((one, fields[0], fields[1]), (other, fields[1], fields[0])):
            if alone := sorted(own.keys() - others.keys()):
                yield f"{name}: columns only in {folder}: {', '.join(alone)}"
        for column in both:
            if fields[0][column] != fields[1][column]:
                yield f"{name}: {column} is {fields[0][column]} and {fields[1][column]}"
        yield from _rows_apart(name, [one, other], tables, both)
    summaries = [json.loads((folder / "summary.json").read_text("utf-8")) for folder in (one, other)]
    for found in summaries:
        del found["made_ms"]
    for name in sorted(summaries[0].keys() | summaries[1].keys()):
        if summaries[0].get(name) != summaries[1].get(name):
            yield f"summary.json: {name}: {_parting(summaries[0].get(name), summaries[1].get(name))}"


def _types(table: Any) -> dict[str, Any]:
    return {} if table is None else {field.name: field.type for field in table.schema}


def _table(folder: Path) -> Any:
    """Return the data set of a table's files; None if there are none."""
    files = sorted(str(path) for path in folder.rglob("*.parquet"))
    partitioning = dataset.partitioning(flavor="hive")
    return dataset.dataset(files, partitioning=partitioning, partition_base_dir=str(folder)) if files else None


def _rows_apart(name: str, folders: list[Path], tables: list[Any], columns: list[str]) -> Iterator[str]:
    """Yield how many rows are only in one table, and the first of them."""
    hashes = [np.unique(_hashes(table, columns), return_counts=True) for table in tables]
    for own, others in ((0, 1), (1, 0)):
        values, counts = hashes[own]
        places = np.searchsorted(hashes[others][0], values)
        found = np.append(hashes[others][0], np.uint64(0))[places] == values
        missing = counts - np.where(found, np.append(hashes[others][1], 0)[places], 0)
        if (rows := int(missing[missing > 0].sum())) > 0:
            yield f"{name}: {rows} rows only in {folders[own]}"
            wanted = values[missing > 0][:SAID_ROWS_MAX]
            yield from (f"  {row}" for row in _with_hashes(tables[own], columns, wanted))


def _with_hashes(table: Any, columns: list[str], wanted: Hashes) -> Iterator[Any]:
    for batch in table.to_batches(columns=columns):
        for index in np.flatnonzero(np.isin(_row_hashes(batch, columns), wanted)):
            yield batch.slice(int(index), 1).to_pylist()[0]


def _hashes(table: Any, columns: list[str]) -> Hashes:
    if table is None:
        return np.empty(0, np.uint64)
    found = [_row_hashes(batch, columns) for batch in table.to_batches(columns=columns)]
    return np.concatenate([*found, np.empty(0, np.uint64)])


def _row_hashes(batch: Any, columns: list[str]) -> Hashes:
    found = np.zeros(batch.num_rows, np.uint64)
    for name in columns:
        column = batch.column(name)
        of_values = _number_hashes(column) if pa.types.is_integer(column.type) else _other_hashes(column)
        of_values[column.is_null().to_numpy(zero_copy_only=False)] = 0
        found = found * HASH_FACTOR + of_values
    return found


def _number_hashes(column: Any) -> Hashes:
    found: Hashes = hash_array(column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))
    return found


def _other_hashes(column: Any) -> Hashes:
    if pa.types.is_nested(column.type):
        column = pa.array(map(repr, column.to_pylist()), pa.string())
    codes = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    values = np.array([repr(value) for value in codes.dictionary.to_pylist()], object)
    of_values = np.append(hash_array(values, categorize=False), np.uint64(0))
    found: Hashes = of_values[codes.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return found


def _parting(one: Any, other: Any) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            if one.get(name) != other.get(name):
                return f"{name}: {_parting(one.get(name), other.get(name))}"
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            if left != right:
                return f"{number}: {_parting(left, right)}"
    return f"{one!r:.200} and {other!r:.200}"


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
