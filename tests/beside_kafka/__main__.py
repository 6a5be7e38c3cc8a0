"""``python -m tests.beside_kafka``: tell groupcoord the commands of histories, and sort what came of them.

A PATH is a file of histories, one a line. Without any, those beside this file are taken. With ``--seeds A-B`` they are
made meanwhile: one process runs Kafka's own classes for all of them. ``--share`` and ``--streams`` make those
of share and of streams groups.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import define, field

from tests.beside_kafka.comparison import Tally
from tests.beside_kafka.histories import ARCHIVES, Known, Verdict, follow, read
from tests.beside_kafka.oracle import Oracle
from tests.beside_kafka.share_story import ShareStory
from tests.beside_kafka.story import RandomStory
from tests.beside_kafka.streams_story import StreamsStory

EXAMPLES = 3
SHOWN = 600
TELLING_EVERY = 1_000


@define
class Summary:
    """Results of many histories."""

    histories: int = 0
    commands: int = 0
    compared: int = 0
    tally: Tally = field(factory=Tally)
    unknown: dict[str, list[Verdict]] = field(factory=lambda: defaultdict(list))
    known: dict[Known, int] = field(factory=lambda: defaultdict(int))
    began_s: float = field(factory=time.monotonic)

    def add(self, history: dict[str, Any], verdict: Verdict) -> None:
        """Count in one history."""
        self.histories += 1
        self.commands += len(history["steps"]) - 1
        self.compared += verdict.steps
        self.tally.add(verdict.tally)
        if verdict.known is not None:
            self.known[verdict.known] += 1
        elif verdict.difference is not None:
            self.unknown[verdict.difference.what].append(verdict)

    def examples(self) -> Iterator[str]:
        """Yield lines about what differs, and about what ended early."""
        for what, verdicts in sorted(self.unknown.items(), key=lambda entry: -len(entry[1])):
            yield f"{len(verdicts)} times {what}"
            yield from map(_described, verdicts[:EXAMPLES])
        for reason, count in sorted(self.known.items(), key=lambda entry: -entry[1]):
            yield f"{count} end early: {reason.value}"

    def __str__(self) -> str:
        differing = sum(map(len, self.unknown.values()))
        tally = self.tally
        return (
            f"{self.histories} histories, {self.compared} of {self.commands} commands, "
            f"{tally.answers} answers ({tally.equal_answers} equal in bytes), "
            f"{tally.appends} appends ({tally.equal_appends} equal in bytes): "
            f"{differing} differ ({time.monotonic() - self.began_s:.1f} s)"
        )


def main(words: list[str] | None = None) -> int:
    """Run with the options of the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.beside_kafka", description=__doc__)
    parser.add_argument("paths", metavar="PATH", nargs="*", type=Path, default=[*ARCHIVES])
    parser.add_argument("--seeds", metavar="A-B", help="make the histories of these seeds, the last one included")
    parser.add_argument("--share", action="store_true", help="make histories of share groups")
    parser.add_argument("--streams", action="store_true", help="make histories of streams groups")
    command = os.environ.get("KAFKA_ORACLE")
    parser.add_argument("--oracle", metavar="COMMAND", default=command, help="runs Kafka's classes (KAFKA_ORACLE)")
    parser.add_argument("--keep", metavar="FILE", type=Path, help="write the histories there that differ")
    options = parser.parse_args(words)
    histories: Iterator[dict[str, Any]]
    if options.seeds is None:
        histories = (history for path in options.paths for history in read(path))
    elif options.oracle is None:
        parser.error("--seeds needs --oracle")
    else:
        first, _, last = options.seeds.partition("-")
        kind = ShareStory if options.share else StreamsStory if options.streams else RandomStory
        histories = _made(kind, options.oracle, range(int(first), int(last or first) + 1))
    summary = Summary()
    for history in histories:
        verdict = follow(history)
        summary.add(history, verdict)
        if options.keep is not None and verdict.difference is not None and verdict.known is None:
            with options.keep.open("a", encoding="utf-8") as kept:
                kept.write(json.dumps(history) + "\n")
        if summary.histories % TELLING_EVERY == 0:
            print(summary, file=sys.stderr, flush=True)
    print("".join(f"{line}\n" for line in summary.examples()) + str(summary))
    return 1 if summary.unknown else 0


def _made(kind: type[RandomStory], command: str, seeds: range) -> Iterator[dict[str, Any]]:
    with Oracle(command) as oracle:
        for seed in seeds:
            yield kind(oracle, seed).run()


def _described(verdict: Verdict) -> str:
    assert verdict.difference is not None
    kafka, here = str(verdict.difference.kafka)[:SHOWN], str(verdict.difference.here)[:SHOWN]
    return f"    {verdict.name} after {verdict.steps} steps\n        Kafka: {kafka}\n        here:  {here}"


if __name__ == "__main__":
    sys.exit(main())
