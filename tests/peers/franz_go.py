"""The tests of franz-go's client (``pkg/kgo``) that need a broker."""

from __future__ import annotations

from pathlib import Path

from tests.peers import registries
from tests.peers.running import run
from tests.peers.suite import Command, Suite, outcome_of_go

MODULE, VERSION = "github.com/twmb/franz-go", "v1.22.2"
RECORDS = 5_000
PROGRAM = "kgo.test"


def build(folder: Path) -> Path:
    """Build the test program; tests are run where its sources are."""
    sources = folder / "sources"
    registries.go_module(MODULE, VERSION, sources)
    registries.run(["go", "test", "-mod=mod", "-c", "-o", f"pkg/kgo/{PROGRAM}", "./pkg/kgo"], sources)
    return sources / "pkg" / "kgo"


def command(folder: Path, test: str, bootstrap: str) -> Command:
    """Run one test with few records, on a cluster of one node."""
    words = (str(folder / PROGRAM), "-test.v", "-test.timeout", f"{SUITE.timeout_s - 5:.0f}s", "-test.run", f"^{test}$")
    environment = {
        "KGO_SEEDS": bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_TEST_UNSAFE": "1",
        "KGO_LOG_LEVEL": "none",
    }
    return Command(words, folder, environment)


SUITE = Suite("franz-go", build, command, outcome_of_go)

if __name__ == "__main__":
    run(SUITE)
