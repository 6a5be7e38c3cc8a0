"""Programs that follow ``__consumer_offsets`` and ``__transaction_state``, with the clients that such programs have.

Burrow and kminion themselves are not to be had from the registry of Go's modules; what they read is read here by the
clients that they use (sarama, franz-go), and their lag is worked out as they do it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.peers import registries
from tests.peers.running import run
from tests.peers.suite import Command, Suite, outcome_of_go

PROGRAM = "followers.test"
SOURCE = Path(__file__).with_name("followers_test.go")
MODULES = (
    "github.com/IBM/sarama@v1.61.1",
    "github.com/twmb/franz-go@v1.22.3",
    "github.com/twmb/franz-go/pkg/kadm@v1.19.0",
    "github.com/twmb/franz-go/pkg/kmsg@v1.15.1",
)


def build(folder: Path) -> Path:
    """Build the test program."""
    registries.need("go")
    shutil.copy(SOURCE, folder)
    folder.joinpath("go.mod").unlink(missing_ok=True)
    for words in (["mod", "init", "followers"], ["get", *MODULES], ["test", "-mod=mod", "-c", "-o", PROGRAM, "."]):
        registries.run(["go", *words], folder)
    return folder


def command(folder: Path, test: str, bootstrap: str) -> Command:
    """Run one test."""
    words = (str(folder / PROGRAM), "-test.v", "-test.run", f"^{test}$")
    return Command(words, folder, {"BOOTSTRAP": bootstrap})


SUITE = Suite("followers", build, command, outcome_of_go, source=SOURCE)

if __name__ == "__main__":
    run(SUITE)
