"""Apply the seeded bugs one at a time and see that the suite notices each.

    python -m tests.mutants.run [NAME-PART] [--of ROOM] [--jobs N]

A copy of the project is mutated, never the checkout itself. Prints a line for each mutant: what noticed it first, and
after how long. Exit status 1 if one survives. What the time limit ends counts as noticed, and is counted again by
itself: on a machine that is busy it may be the machine's fault.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tests.mutants.assignors import ASSIGNOR_MUTANTS
from tests.mutants.broker import BROKER_MUTANTS
from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.cluster import CLUSTER_MUTANTS
from tests.mutants.consumer_groups import CONSUMER_GROUP_MUTANTS
from tests.mutants.museum import MUSEUM_MUTANTS
from tests.mutants.owners import OWNER_MUTANTS
from tests.mutants.rarely_met import RARELY_MET_MUTANTS
from tests.mutants.share_groups import SHARE_GROUP_MUTANTS
from tests.mutants.share_leaders import SHARE_LEADER_MUTANTS
from tests.mutants.streams_groups import STREAMS_GROUP_MUTANTS

ROOT = Path(__file__).parents[2]
OF_CONSUMER_GROUPS = CONSUMER_GROUP_MUTANTS + RARELY_MET_MUTANTS
ROOMS = {
    "catalogue": MUTANTS,
    "museum": MUSEUM_MUTANTS,
    "consumer": OF_CONSUMER_GROUPS,
    "owners": OWNER_MUTANTS,
    "cluster": CLUSTER_MUTANTS,
    "broker": BROKER_MUTANTS,
    "share": SHARE_GROUP_MUTANTS + SHARE_LEADER_MUTANTS,
    "streams": STREAMS_GROUP_MUTANTS,
    "assignors": ASSIGNOR_MUTANTS,
}
ALL_MUTANTS = tuple(chain.from_iterable(ROOMS.values()))
SUITES = ("tests/core", "tests/conformance/test_packaged.py", "tests/laws")
SUITES_OF_CONSUMER_GROUPS = (
    "tests/core/consumer",
    "tests/core/test_consumer_front.py",
    "tests/scripts",
    "tests/conformance/test_packaged.py",
    "tests/conformance/test_histories.py",
    "tests/testing/test_machine.py",
    "tests/laws",
)
SUITES_OF_OWNERS = (
    "tests/laws/test_owners.py",
    "tests/storage/sql/test_owners.py",
    "tests/aio/test_ownership.py",
    "tests/sim/test_owners.py",
)
SUITES_OF_STREAMS_GROUPS = (
    "tests/core/test_streams_front.py",
    "tests/core/streams",
    "tests/testing/test_machine.py",
    "tests/sim/test_streams_applications.py",
    "tests/conformance/test_packaged.py",
    "tests/beside_kafka/test_histories.py",
)
SUITES_OF_SHARE_GROUPS = (
    "tests/core/share",
    "tests/core/share_state",
    "tests/conformance/test_packaged.py",
    "tests/beside_kafka/test_histories.py",
    "tests/broker/test_share_consumers.py",
    "tests/testing/test_machine.py",
    "tests/sim/test_share_workers.py",
)
SUITES_OF_SHARE_LEADERS = (
    "tests/core/share_partition",
    "tests/broker/test_share_consumers.py",
    "tests/broker/test_dead_letters.py",
    "tests/broker/test_letters.py",
    "tests/broker/test_share_lag.py",
    "tests/testing/test_share_words.py",
    "tests/conformance/test_packaged.py",
    "tests/laws/test_share_machine.py",
    "tests/sim/test_share_workers.py",
)
SUITES_OF_ASSIGNORS = (
    "tests/core/share/test_simple_assignor.py",
    "tests/core/streams",
    "tests/conformance/test_packaged.py",
    "tests/beside_kafka/test_histories.py",
)
SUITES_OF_MEMBERS = ("tests/member", "tests/sim")
SUITES_OF_THE_BROKER = ("tests/conformance/test_packaged.py", "tests/broker", "tests/host")
"""In this order, so that what notices a bug soonest comes first."""
SUITES_OF = {
    SHARE_GROUP_MUTANTS: SUITES_OF_SHARE_GROUPS,
    SHARE_LEADER_MUTANTS: SUITES_OF_SHARE_LEADERS,
    STREAMS_GROUP_MUTANTS: SUITES_OF_STREAMS_GROUPS,
    ASSIGNOR_MUTANTS: SUITES_OF_ASSIGNORS,
    BROKER_MUTANTS: SUITES_OF_THE_BROKER,
    CLUSTER_MUTANTS: ("tests/cluster", "tests/sim/test_replicas.py"),
    OWNER_MUTANTS: SUITES_OF_OWNERS,
}
TIMEOUT_S = 300
TIME_LIMIT = "the time limit"
MEMORY_KIB = 4_000_000
"""A bug that eats all memory fails a test, and not the machine."""


class Result(NamedTuple):
    """What became of a mutant: the test that noticed it (None: it survived), and the time it took."""

    mutant: Mutant
    noticed_by: str | None
    duration_s: float


def apply(mutant: Mutant, root: Path) -> None:
    """Write the bug into a copy of the project.

    Raises:
        ValueError: its text does not stand exactly once in the file.
    """
    path = root / "groupcoord" / "core" / mutant.file
    source = path.read_text()
    if source.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name!r}: its text stands {source.count(mutant.old)} times in {mutant.file}")
    path.write_text(source.replace(mutant.old, mutant.new))


NO_MUTANT = Mutant("the suite without a bug", "classic/states.py", "class GroupState(Enum):", "class GroupState(Enum):")


def suites_of(mutant: Mutant) -> tuple[str, ...]:
    """Return the parts of the suite that are to notice a bug of its kind."""
    for mutants, suites in SUITES_OF.items():
        if mutant in mutants:
            return suites
    if mutant.file.startswith("../member/"):
        return SUITES_OF_MEMBERS
    is_of_consumer_groups = mutant in OF_CONSUMER_GROUPS or mutant.file.startswith(("consumer/", "modern/"))
    return SUITES_OF_CONSUMER_GROUPS if is_of_consumer_groups else SUITES


def try_mutant(mutant: Mutant, *suites: str) -> Result:
    """Run the suite on a copy of the project that has this bug.

    Args:
        mutant: the bug.
        suites: the parts that are to notice it; without any, all that are there for its kind, one after the other.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        root = Path(directory)
        for name in ("groupcoord", "tests"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", root)
        apply(mutant, root)
        # One by one: most are noticed by the first, and need not wait until the tests of all are collected.
        for suite in suites or suites_of(mutant):
            noticed_by = _noticed_by(suite, root, start + TIMEOUT_S - time.monotonic())
            if noticed_by is not None:
                break
    return Result(mutant, noticed_by, time.monotonic() - start)


def _noticed_by(suite: str, root: Path, timeout_s: float) -> str | None:
    """Run a part of a mutated copy's suite; return the first test that fails."""
    command = ["sh", "-c", f'ulimit -v {MEMORY_KIB}; exec "$@"', "sh"]
    command += [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    command += ["--whole", "--hypothesis-profile=unshrunk", suite]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return TIME_LIMIT
    noticed = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    return None if run.returncode == 0 else noticed[1] if noticed else "a crash of the test run"


def main() -> int:
    """Run the mutants that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", nargs="?", default="", help="only mutants whose name contains this")
    parser.add_argument("--of", choices=ROOMS, help="only mutants of this room")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    room = ALL_MUTANTS if arguments.of is None else ROOMS[arguments.of]
    chosen = [mutant for mutant in room if arguments.part in mutant.name]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for baseline in pool.map(lambda suites: try_mutant(NO_MUTANT, *suites), dict.fromkeys(map(suites_of, chosen))):
            if baseline.noticed_by is not None:
                print(f"the suite fails without any bug: {baseline.noticed_by}")
                return 1
        verdicts = Counter(map(_tell, pool.map(try_mutant, chosen)))
    survivors, late = verdicts[None], verdicts[TIME_LIMIT]
    print(f"{len(chosen) - survivors} noticed, {late} of them by {TIME_LIMIT}, {survivors} survived")
    return 1 if survivors or not chosen else 0


def _tell(result: Result) -> str | None:
    """Print a line about a mutant; return what noticed it."""
    verdict = f"noticed by {result.noticed_by}" if result.noticed_by else "SURVIVED"
    print(f"{result.duration_s:6.1f} s  {result.mutant.name}: {verdict}", flush=True)
    return result.noticed_by


if __name__ == "__main__":
    sys.exit(main())
