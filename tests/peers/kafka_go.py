"""The tests of kafka-go: those of its packages' root, many of which need no broker."""

from __future__ import annotations

import re
from pathlib import Path

from tests.peers import registries
from tests.peers.running import run
from tests.peers.suite import Command, Suite, outcome_of_go

MODULE, VERSION = "github.com/segmentio/kafka-go", "v0.4.51"
PROGRAM = "kafka-go.test"
ADDRESS = "PEERS_BOOTSTRAP"

_WRITTEN_ADDRESS = re.compile(r'"(?:localhost|127\.0\.0\.1):9092"')
_ABOUT_ADDRESSES = "address_test.go"
_CONSTANT = re.compile(r"const (\([^)]*= peersBootstrap|\w+ = peersBootstrap)")
_ADDRESS_WITHOUT_PORT = 'newClient(TCP("localhost"))'
_VARIABLE = f"""package kafka

import "os"

var peersBootstrap = os.Getenv("{ADDRESS}")
"""


def build(folder: Path) -> Path:
    """Build the test program, with the address of its broker taken from the environment."""
    sources = folder / "sources"
    registries.go_module(MODULE, VERSION, sources)
    for path in sources.glob("*_test.go"):
        text = path.read_text("utf-8")
        if "package kafka\n" in text and path.name != _ABOUT_ADDRESSES:
            text = text.replace(_ADDRESS_WITHOUT_PORT, "newClient(TCP(peersBootstrap))")
            text = _WRITTEN_ADDRESS.sub("peersBootstrap", text)
            path.write_text(_CONSTANT.sub(r"var \1", text), "utf-8")
    (sources / "peers_test.go").write_text(_VARIABLE, "utf-8")
    registries.run(["go", "test", "-mod=mod", "-c", "-o", PROGRAM, "."], sources)
    return sources


def command(folder: Path, test: str, bootstrap: str) -> Command:
    """Run one test."""
    words = (str(folder / PROGRAM), "-test.v", "-test.timeout", f"{SUITE.timeout_s - 5:.0f}s", "-test.run", f"^{test}$")
    return Command(words, folder, {"KAFKA_VERSION": "4.4.0", ADDRESS: bootstrap})


SUITE = Suite("kafka-go", build, command, outcome_of_go, ("num.partitions=4",))

if __name__ == "__main__":
    run(SUITE)
