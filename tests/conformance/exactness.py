"""``python -m tests.conformance.exactness PATH…``: replay histories to the millisecond, and sort what differs.

A history is a transcript: what several clients do at random, and what Kafka answered. Nothing is granted here: every
answer comes at its very millisecond, and not before. A PATH is a transcript, a folder of them, or an archive (``.xz``)
with one per line. Without any, those in the archives beside this file are replayed: Kafka 4.4.0's own classes answered
them, in one process and in virtual time, over a log of one partition. One archive is of classic groups; the other is of
consumer groups (KIP-848) and of groups with both kinds of members, and of these it has such as don't hang on the ids of
topics and members, by which Kafka's assignors walk them.
"""

from __future__ import annotations

import argparse
import lzma
import re
import sys
import time
from collections import defaultdict
from pathlib import Path

from groupcoord.conformance import InProcessTarget, Report, Transcript, load_transcripts, parse_transcript, run
from groupcoord.conformance.report import Failure
from groupcoord.conformance.targets import Tolerance
from groupcoord.conformance.transcript import Send

ARCHIVE = Path(__file__).with_name("histories.jsonl.xz")
CONSUMER_ARCHIVE = Path(__file__).with_name("consumer_histories.jsonl.xz")
EXACT = Tolerance(late_factor=1, late_ms=0, early_factor=1, early_ms=0, only_joins=False)
EXAMPLES = 5


def load_histories(path: Path = ARCHIVE) -> list[Transcript]:
    """Return the histories of an archive, or the transcripts of a file or folder.

    Raises:
        TranscriptError: one is malformed, or there is none.
    """
    if path.suffix != ".xz":
        return load_transcripts(path)
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [parse_transcript(line, f"{path.name}:{number}") for number, line in enumerate(lines, 1)]


def replay_exactly(histories: list[Transcript]) -> Report:
    return run(histories, InProcessTarget(tolerance=EXACT))


def kind_of(failure: Failure) -> str:
    """Return the request and the place of a difference, without what is particular to one history."""
    action = failure.action.split(" on ")[0]
    if failure.difference is None:
        return f"{action}: {re.sub('[0-9]+', 'N', failure.message.splitlines()[0])}"
    return f"{action}: {re.sub('[0-9]+', 'N', failure.difference.path)}"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.exactness", description=__doc__)
    parser.add_argument("paths", metavar="PATH", nargs="*", type=Path, default=[ARCHIVE, CONSUMER_ARCHIVE])
    began_s = time.monotonic()
    histories = [history for path in parser.parse_args(words).paths for history in load_histories(path)]
    different: dict[str, list[str]] = defaultdict(list)
    for outcome in replay_exactly(histories).outcomes:
        if outcome.failure is not None:
            different[kind_of(outcome.failure)].append(f"{outcome.transcript} at step {outcome.failure.step}")
    for kind, where in sorted(different.items(), key=lambda entry: -len(entry[1])):
        print(f"{len(where)} times {kind}")
        print("".join(f"    {name}\n" for name in where[:EXAMPLES]), end="")
    requests = sum(isinstance(step, Send) for history in histories for step in history.steps)
    count = sum(map(len, different.values()))
    print(f"{len(histories)} histories, {requests} requests: {count} differ ({time.monotonic() - began_s:.1f} s)")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
