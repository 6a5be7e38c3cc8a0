"""librdkafka's own test-runner, out of the sources that the crate rdkafka-sys brings."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.peers import registries
from tests.peers.running import run
from tests.peers.suite import Command, Outcome, Suite

SETTINGS = ("num.partitions=4", f"records.memory.max.bytes={4 * 1024**3}")  # what all tests produce stays
CRATE, VERSION = "rdkafka-sys", "4.10.0"

_ROW = re.compile(r"^\|\S* (\S+) +\| +(PASSED|FAILED|SKIPPED) \|", re.MULTILINE)


def build(folder: Path) -> Path:
    """Build the libraries and the test-runner without what needs Kerberos."""
    registries.need("gcc", "g++", "make")
    sources = folder / "sources"
    registries.crate(CRATE, VERSION, sources)
    library = sources / "librdkafka"
    registries.run(["./configure", "--disable-gssapi"], library)
    registries.run(["make", f"-j{min(os.cpu_count() or 1, 2)}", "libs"], library)
    registries.run(["make", "-C", "tests", "test-runner"], library)
    return library / "tests"


def command(folder: Path, test: str, bootstrap: str) -> Command:
    """Run one test by its number; a time-out kills the whole runner, so there is one for each."""
    configuration = folder / f"peers-{bootstrap}.conf"
    lines = [f"bootstrap.servers={bootstrap}", "test.topic.prefix=rdkt", "test.topic.random=true", ""]
    configuration.write_text("\n".join(lines), "utf-8")
    library = folder.parent
    environment = {
        "RDKAFKA_TEST_CONF": str(configuration),
        "LD_LIBRARY_PATH": f"{library / 'src'}:{library / 'src-cpp'}",
        "BROKERS": bootstrap,
        "TESTS": test,
    }
    # Not -Q: it leaves out parts of tests without a word.
    return Command((str(folder / "test-runner"), "-L", "-p1", "-V", "4.0.0.0"), folder, environment)


def outcome(status: int, output: str) -> Outcome:
    """Read what became of a test from the runner's table."""
    found = {word for name, word in _ROW.findall(output) if name != "<MAIN>"}  # also of local tests, left out
    if status != 0 or "FAILED" in found or not found:
        return Outcome.FAILED
    return Outcome.PASSED if "PASSED" in found else Outcome.SKIPPED


SUITE = Suite("librdkafka", build, command, outcome, SETTINGS, timeout_s=150.0)

if __name__ == "__main__":
    run(SUITE)
