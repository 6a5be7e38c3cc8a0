"""The integration tests of confluent-kafka's consumers, of its transactional producer, and of list_offsets.

No registry has them: the package's source distribution leaves its tests out. So the environment variable
``CONFLUENT_KAFKA_SOURCES`` names the folder of the sources; the library itself comes from its registry.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.peers import registries
from tests.peers.running import run
from tests.peers.suite import Command, Outcome, Suite, UnavailableError

NEEDED = ("confluent-kafka==2.15.0", "trivup", "pytest", "pytest-asyncio", "pytest-timeout")
SOURCES = "CONFLUENT_KAFKA_SOURCES"
PYTHON = Path("bin/python")


def build(folder: Path) -> Path:
    """Make an environment with the library."""
    if not (Path(os.environ.get(SOURCES, "")) / "tests" / "integration").is_dir():
        raise UnavailableError(f"no registry has its tests: {SOURCES} must name the folder of its sources")
    registries.run([sys.executable, "-m", "venv", "."], folder)
    registries.run([str(folder / PYTHON), "-m", "pip", "install", "-q", *NEEDED], folder)
    return folder


def command(folder: Path, test: str, bootstrap: str) -> Command:
    """Run one test, named ``consumer/test_x.py::test_y`` below the integration tests."""
    words = (str(folder / PYTHON), "-m", "pytest", "-p", "no:cacheprovider", "-rs", f"tests/integration/{test}")
    return Command(words, Path(os.environ[SOURCES]), {"BROKERS": bootstrap})


def outcome(status: int, output: str) -> Outcome:
    """Read what became of a test from pytest's last line."""
    summary = output.strip().splitlines()[-1] if output.strip() else ""
    if status == 0 and " passed" in summary:
        return Outcome.PASSED
    return Outcome.SKIPPED if status == 0 and " skipped" in summary else Outcome.FAILED


SUITE = Suite("confluent-kafka", build, command, outcome, ("num.partitions=4",))

if __name__ == "__main__":
    run(SUITE)
