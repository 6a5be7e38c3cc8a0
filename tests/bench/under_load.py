"""CPU that requests cost servers under load, side by side: groupcoord, other versions of it, and a real broker.

    python -m tests.bench.under_load [--target NAME='COMMAND {port} {directory} {settings}'] … [--kafka SCRIPT]
                                     [--kfake] [--modes heartbeat,ramp,…] [--seconds 5] [--rounds 3]

All servers run at once, and each mode asks one after the other, again and again, through the generator in
``tests/bench/loadgen`` (Go, built first). CPU is that of the server's process, all threads, kernel included; printed
are medians of the rounds, and ratios to the last server: only those of one run mean anything. ``--kafka`` is a program
that runs a broker in the foreground when given a port, a folder and settings, each behind ``--set``. ``--kfake`` adds
franz-go's broker for tests (``tests/bench/kfake``, Go, built first), which holds its records in memory; its answers to
what the other modes than heartbeat, produce and consume ask are not what these expect.

The modes: heartbeats of consumer, share, streams and classic groups, commits of ten partitions by classic members and
by members of consumer groups, without metadata and with 40 characters, by 400 groups of one member on 16 connections;
batches of 100 records of 1 KiB and single small ones, produced with ``acks=1`` to one partition for each of 16
connections, and consumed from where they were just written; ``share``: 100 records of 1 KiB that a share consumer takes
and accepts, two requests that count as one; and ``ramp``: a thousand members of one consumer group, which join within
ten seconds and live as clients do until each has one of a thousand partitions and all have the same epoch.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.storage.real_broker import ask, connected, started, wait_for_groups

LOADGEN, KFAKE = (Path(__file__).resolve().parent / name for name in ("loadgen", "kfake"))
OWN = f"{Path(sys.executable).with_name('groupcoord')} serve --port {{port}} --data-dir {{directory}} {{settings}}"
SETTINGS = "--set group.initial.rebalance.delay.ms=0 --set group.streams.initial.rebalance.delay.ms=0"
TOPICS = {"t": 1_000, "few": 10}

MODES: dict[str, tuple[str, ...]] = {
    "heartbeat": ("-mode", "heartbeat"),
    "share-heartbeat": ("-mode", "heartbeat", "-protocol", "share"),
    "streams-heartbeat": ("-mode", "heartbeat", "-protocol", "streams"),
    "classic-heartbeat": ("-mode", "heartbeat", "-protocol", "classic"),
    "commit": ("-mode", "commit"),
    "commit-metadata": ("-mode", "commit", "-metadata", "40"),
    "classic-commit": ("-mode", "commit", "-protocol", "classic"),
    "classic-commit-metadata": ("-mode", "commit", "-protocol", "classic", "-metadata", "40"),
    "produce": ("-mode", "produce"),
    "produce-single": ("-mode", "produce", "-records", "1", "-size", "100"),
    "consume": ("-mode", "consume"),
    "consume-single": ("-mode", "consume", "-records", "1", "-size", "100"),
    "share": ("-mode", "share"),
    "ramp": ("-mode", "ramp", "-seconds", "10"),
}
"""What the generator is told; in each mode but ``ramp`` its figure is microseconds for a request."""


class Server:
    """Server in a separate process. Args: command: with ``{port}``, ``{directory}`` and ``{settings}``. directory: its
    data directory.
    """

    def __init__(self, command: str, directory: Path) -> None:
        self.port = free_port()
        log = directory / "server.log"
        filled = command.format(port=self.port, directory=directory / "data", settings=SETTINGS)
        self._process = started(shlex.split(filled), log)
        try:
            peer = connected(self._process, self.port, log)
            topics = [
                {
                    "name": name,
                    "num_partitions": count,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
                for name, count in TOPICS.items()
            ]
            created = ask(peer, "CreateTopics", 7, {"topics": topics, "timeout": 60_000})
            assert all(topic["error_code"] == "NONE" for topic in created["topics"]), created
            wait_for_groups(peer, ["group"])
            peer.close()
        except BaseException:
            self.end()
            raise

    def measured(self, loadgen: Path, arguments: Sequence[str], prefix: str) -> dict[str, Any]:
        target = ["-address", f"127.0.0.1:{self.port}", "-process", str(self._process.pid), "-prefix", prefix]
        done = subprocess.run([str(loadgen), *target, *arguments], check=True, capture_output=True, timeout=300)
        figures: dict[str, Any] = json.loads(done.stdout)
        assert figures["refused"] == 0, figures
        return figures

    def end(self) -> None:
        self._process.kill()
        self._process.wait(60)


def build(source: Path, folder: Path) -> Path:
    """Build a program of ours that is written in Go, and return it."""
    program = folder / source.name
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=source, check=True)
    return program


@contextmanager
def running(targets: dict[str, str], directory: Path) -> Iterator[dict[str, Server]]:
    """Run all servers at once, each in its folder, and end them."""
    servers: dict[str, Server] = {}
    try:
        for target, command in targets.items():
            if target == KFAKE.name:
                command = f"{shlex.quote(str(build(KFAKE, directory)))} -port {{port}}"
            (own := directory / f"{target}-data").mkdir()
            servers[target] = Server(command, own)
        yield servers
    finally:
        for server in servers.values():
            server.end()


def compare(targets: dict[str, str], modes: Sequence[str], seconds: float, rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="groupcoord-load-", ignore_cleanup_errors=True) as name:
        loadgen = build(LOADGEN, Path(name))
        with running(targets, Path(name)) as servers:
            for mode in modes:
                found: dict[str, list[dict[str, Any]]] = {target: [] for target in targets}
                # The first round makes servers warm, and a JVM compile.
                for number in range(rounds + 1):
                    for target, server in servers.items():
                        arguments = ("-seconds", str(seconds), *MODES[mode])
                        figures = server.measured(loadgen, arguments, f"{mode}-{number}-")
                        found[target] += [figures] * (number > 0)
                report(mode, found)


def report(mode: str, found: dict[str, list[dict[str, Any]]]) -> None:
    median = {target: statistics.median(figures["cpu"] for figures in all_of) for target, all_of in found.items()}
    base = list(median)[-1]
    unit = "s of CPU" if mode == "ramp" else "µs of CPU for a request"
    for target, cpu in median.items():
        requests = statistics.median(figures["requests"] for figures in found[target])
        per_second = statistics.median(figures["per_second"] for figures in found[target])
        print(
            f"{mode:24} {target:12} {cpu:8.2f} {unit}: {cpu / median[base]:5.2f} x {base} "
            f"({requests:,.0f} requests, {per_second:,.0f} a second)",
            flush=True,
        )


def targets_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the command of each server by its name; the last is what the others are compared with."""
    targets = {"groupcoord": OWN} | dict(target.split("=", 1) for target in options.target)
    if options.kfake:
        targets[KFAKE.name] = ""  # built when it is run
    if options.kafka is not None:
        targets["kafka"] = f"{shlex.quote(str(options.kafka))} {{port}} {{directory}} {{settings}}"
    return targets


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.under_load",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--kafka", type=Path, metavar="SCRIPT")
    parser.add_argument("--kfake", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    compare(targets_of(options), options.modes.split(","), options.seconds, options.rounds)


if __name__ == "__main__":
    main()
