"""Mutation testing with cosmic-ray: random small changes of a room, each of which its tests should notice.

    python -m tests.mutation [--room core] [--sample 200] [--seed N]

Changes a copy of the checkout, one place at a time: a random place first, then one of the operators that fit it. A
test run that exceeds its limits has noticed the mutant. Prints the diff of each survivor.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome

from tests.samples import IS_SEEDED, SEED

ROOT = Path(__file__).parents[1]
HISTORIES = ("tests/beside_kafka/test_histories.py tests/testing/test_machine.py", "tests/conformance")
LAWS = "tests/laws tests/exploring"
ROOMS = {
    "core": (("core",), ("tests/scripts", "tests/core", *HISTORIES, LAWS)),
    "coordinator": (("coordinator", "laws"), ("tests/aio tests/core", LAWS, *HISTORIES, "tests/sim")),
    "broker": (("broker", "storage"), ("tests/topic_logs tests/storage", HISTORIES[1], "tests/broker", "tests/host")),
}
"""The folders of each room, and the tests that notice a mutant there, the cheapest first."""
CPU_LIMIT_S, MEMORY_LIMIT_KIB, TIME_LIMIT_S = 300, 6_000_000, 3_600
PYTEST = "-m pytest -x -q -n 0 --no-header --tb=no --hypothesis-profile=unshrunk"


def annotations(source: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield the begin and end of each type annotation: what is changed there changes nothing."""
    for node in ast.walk(ast.parse(source)):
        for found in filter(None, (getattr(node, "annotation", None), getattr(node, "returns", None))):
            yield (found.lineno, found.col_offset), (found.end_lineno, found.end_col_offset)


def mutations_of(file: Path) -> dict[tuple[str, Any, Any], list[MutationSpec]]:
    source = file.read_text("utf-8")
    nodes, passed_over = list(ast_nodes(get_ast(source))), list(annotations(source))
    found: dict[tuple[str, Any, Any], list[MutationSpec]] = defaultdict(list)
    for name in plugins.operator_names():
        if plugins.get_operator(name).arguments():
            continue
        operator = plugins.get_operator(name)()
        positions = [position for node in nodes for position in operator.mutation_positions(node)]
        for number, (start, end) in enumerate(positions):
            if not any(first <= start and end <= last for first, last in passed_over):
                found[str(file), start, end].append(MutationSpec(file, name, number, start, end))
    return found


def main() -> int:
    """Try the mutations that the arguments ask for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--room", choices=ROOMS, default="core")
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=SEED if IS_SEEDED else random.SystemRandom().randrange(10**9))
    arguments = parser.parse_args()
    print(f"room {arguments.room}, seed {arguments.seed}", flush=True)
    folders, suites = ROOMS[arguments.room]
    limits = f"export PYTHONHASHSEED=0; ulimit -t {CPU_LIMIT_S}; ulimit -v {MEMORY_LIMIT_KIB}"
    script = " && ".join([limits, *(f"{sys.executable} {PYTEST} {suite}" for suite in suites)])
    with tempfile.TemporaryDirectory(prefix="mutation-") as directory:
        shutil.copytree(ROOT, directory, ignore=shutil.ignore_patterns(".*", "__pycache__"), dirs_exist_ok=True)
        os.chdir(directory)
        os.environ["PYTHONPATH"] = directory
        subprocess.run(["sh", "-c", script], check=True)  # compiles all, and passes as long as nothing is changed
        files = sorted(file for folder in folders for file in Path("groupcoord", folder).rglob("*.py"))
        by_place = {place: specs for file in files for place, specs in mutations_of(file).items()}
        chance = random.Random(arguments.seed)
        places = chance.sample(sorted(by_place), min(arguments.sample, len(by_place)))
        survivors = 0
        for number, place in enumerate(places, 1):
            result = mutate_and_test([chance.choice(by_place[place])], f"sh -c {shlex.quote(script)}", TIME_LIMIT_S)
            assert result.worker_outcome is WorkerOutcome.NORMAL, result.output
            survives = result.test_outcome is TestOutcome.SURVIVED
            survivors += survives
            print(f"{number}: {place[0]}:{place[1][0]}", result.diff if survives else "is noticed", flush=True)
    print(f"{len(places) - survivors} of {len(places)} are noticed, seed {arguments.seed}")
    return 0 if survivors <= 0.08 * len(places) else 1


if __name__ == "__main__":
    sys.exit(main())
