"""The lists of tests in ``expected/``: what becomes of each on Apache Kafka 4.4.0, and which may fail here, and why.

A line for each test, and lines that begin with ``#``::

    TestGroupETL       passed  34 s
    TestShareGroup     passed   5 s  here: share groups aren't served
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from attrs import frozen

from tests.peers.suite import Outcome

FOLDER = Path(__file__).parent / "expected"

_LINE = re.compile(r"(\S+) +(passed|failed|skipped) +(\d+) s(?: +here: (.+))?")


@frozen
class Expectation:
    """What is known of one test.

    Attributes:
        test: its name.
        on_kafka: what becomes of it on Apache Kafka.
        seconds: how long it takes there, rounded up.
        reason: why it may fail here; None if it has to pass if it does on Kafka.
    """

    test: str
    on_kafka: Outcome
    seconds: int
    reason: str | None = None


def read_expectations(path: Path) -> tuple[list[str], list[Expectation]]:
    """Return the comments at the top of a list, and the list.

    Raises:
        ValueError: a line isn't as it should be.
    """
    comments, expectations = [], []
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("#"):
            comments.append(line)
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"{path}: {line!r} is none of a list of tests")
        test, outcome, seconds, reason = found.groups()
        expectations.append(Expectation(test, Outcome(outcome), int(seconds), reason))
    return comments, expectations


def write_expectations(path: Path, comments: Iterable[str], expectations: Iterable[Expectation]) -> None:
    """Write a list that :func:`read_expectations` reads."""
    expectations = list(expectations)
    width = max(len(expectation.test) for expectation in expectations)
    lines = [*comments]
    for expectation in expectations:
        line = f"{expectation.test:<{width}}  {expectation.on_kafka.value:<7}  {expectation.seconds:>3} s"
        lines.append(line if expectation.reason is None else f"{line}  here: {expectation.reason}")
    path.write_text("\n".join([*lines, ""]), "utf-8")
