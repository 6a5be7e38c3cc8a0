"""``python -m tests.beside_kafka PATH…``: tell groupcoord the commands of histories, and sort what came of them.

A PATH is a file of histories, one a line. Without any, those beside this file are taken.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path

from tests.beside_kafka.comparison import Tally
from tests.beside_kafka.histories import ARCHIVE, Verdict, follow, read

EXAMPLES = 3
SHOWN = 600


def main(words: list[str] | None = None) -> int:
    """Run as told on the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.beside_kafka", description=__doc__)
    parser.add_argument("paths", metavar="PATH", nargs="*", type=Path, default=[ARCHIVE])
    began_s, tally, steps = time.monotonic(), Tally(), 0
    unknown: dict[str, list[Verdict]] = defaultdict(list)
    known: dict[str, int] = defaultdict(int)
    verdicts = [follow(history) for path in parser.parse_args(words).paths for history in read(path)]
    for verdict in verdicts:
        tally.add(verdict.tally)
        steps += verdict.steps
        if verdict.known is not None:
            known[verdict.known.value] += 1
        elif verdict.difference is not None:
            unknown[verdict.difference.what].append(verdict)
    for what, examples in sorted(unknown.items(), key=lambda entry: -len(entry[1])):
        print(f"{len(examples)} times {what}")
        print("".join(map(_described, examples[:EXAMPLES])), end="")
    for reason, count in sorted(known.items(), key=lambda entry: -entry[1]):
        print(f"{count} end early: {reason}")
    count = sum(map(len, unknown.values()))
    print(
        f"{len(verdicts)} histories, {steps} commands, {tally.answers} answers ({tally.equal_answers} equal in bytes), "
        f"{tally.appends} appends ({tally.equal_appends} equal in bytes): "
        f"{count} differ ({time.monotonic() - began_s:.1f} s)"
    )
    return 1 if unknown else 0


def _described(verdict: Verdict) -> str:
    assert verdict.difference is not None
    kafka, here = str(verdict.difference.kafka)[:SHOWN], str(verdict.difference.here)[:SHOWN]
    return f"    {verdict.name} after {verdict.steps} steps\n        Kafka: {kafka}\n        here:  {here}\n"


if __name__ == "__main__":
    sys.exit(main())
