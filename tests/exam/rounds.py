"""A right program of each protocol passes the whole exam, again and again: the measure of the exam itself.

``python -m tests.exam.rounds [--rounds 10] [--jobs 2] [--only REGEX] [PROGRAM…]`` plays rounds, tells each failure
with its story, and ends with status 1 if there was one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from groupcoord.testing.exams import Plan, Result, examine
from groupcoord.testing.exams.examination import in_lines

HERE = Path(__file__).parent
ARGUMENTS = ("{bootstrap}", "{group}", "{topic}", "{output}", "{instance}", "{protocol}")


def of_worker(name: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, str(HERE / name), *words, *ARGUMENTS)


RIGHT: dict[str, Plan] = {
    "classic": Plan(of_worker("worker.py")),
    "consumer": Plan(of_worker("worker.py"), protocol="consumer"),
    "share": Plan(of_worker("queue_worker.py"), protocol="share"),
    "exactly-once": Plan(of_worker("transactional_worker.py"), declared="exactly-once"),
    "logged-in": Plan(of_worker("worker.py"), protocol="consumer", security_protocol="SASL_SSL"),
}
"""Programs that are right, and what they are examined for."""


def play_rounds(names: Sequence[str], rounds: int, jobs: int, only: Sequence[str] = ()) -> Iterator[tuple[str, Result]]:
    """Examine correct programs repeatedly; yield each result with the program's name."""
    for _ in range(rounds):
        for name in names:
            for result in examine(RIGHT[name], only, jobs=jobs):
                yield name, result


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.exam.rounds")
    parser.add_argument("program", nargs="*", default=list(RIGHT), help=f"of {', '.join(RIGHT)}")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", action="append", default=[])
    given = parser.parse_args(arguments)
    start_s, counts = time.monotonic(), dict.fromkeys(given.program, (0, 0))
    for name, result in play_rounds(given.program, given.rounds, given.jobs, given.only):
        passed, failed = counts[name]
        counts[name] = (passed + result.is_passed, failed + (not result.is_passed))
        if not result.is_passed:
            load = os.getloadavg()[0]
            print(f"{name}: FAILED {result.scenario.name} ({result.seconds:.0f} s, load {load:.1f})", flush=True)
            print(*in_lines(result), sep="\n", flush=True)
    for name, (passed, failed) in counts.items():
        print(f"{name}: {passed} passed, {failed} failed")
    print(f"{time.monotonic() - start_s:.0f} s, {given.rounds} rounds, {given.jobs} at the same time")
    return int(any(failed for _, failed in counts.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
