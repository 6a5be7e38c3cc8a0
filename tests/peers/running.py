"""Runner of ``python -m tests.peers.SUITE``: build, serve, run each test, and compare with Apache Kafka."""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from attrs import evolve

from tests.host.serving import serve
from tests.peers.attempts import Attempt, attempt
from tests.peers.expectations import FOLDER, Expectation, read_expectations, write_expectations
from tests.peers.registries import default_cache
from tests.peers.suite import Outcome, Suite, UnavailableError

BUILT = "built"


def run(suite: Suite) -> NoReturn:
    """Run a suite as a command, whose server ends with it, also when interrupted."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main(suite))


def main(suite: Suite, arguments: Sequence[str] | None = None) -> int:
    """Run a suite with the options of the command line; return the exit status: 1 if a required test fails."""
    options = _parse(suite, arguments)
    comments, expectations = read_expectations(FOLDER / f"{suite.name}.txt")
    wanted = [expected for expected in expectations if not options.test or expected.test in options.test]
    try:
        folder = built(suite, options.cache)
    except UnavailableError as error:
        print(f"{suite.name}: skipped, {error}")
        return 0
    outputs = options.cache / suite.name / "outputs" / (options.bootstrap or "here")
    outputs.mkdir(parents=True, exist_ok=True)
    attempts = []
    with served(suite, options.bootstrap) as bootstrap:
        for expected in wanted:
            made = attempt(suite, folder, expected.test, bootstrap, outputs / f"{expected.test.replace('/', '_')}.txt")
            attempts.append(made)
            print(describe(expected, made), flush=True)
    if options.record:
        write_expectations(FOLDER / f"{suite.name}.txt", comments, recorded(expectations, attempts))
    fell_short = short(wanted, attempts)
    print(f"{suite.name}: {summarize(wanted, attempts)}; outputs in {outputs}")
    return 1 if fell_short else 0


def _parse(suite: Suite, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=f"Run the tests of {suite.name} against groupcoord serve, and compare with Apache Kafka 4.4.0."
    )
    parser.add_argument("test", nargs="*", help="which tests; all by default")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a broker that runs already, set up as it must be")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where sources are kept and built")
    parser.add_argument(
        "--record", action="store_true", help="the broker is Apache Kafka: note what becomes of the tests there"
    )
    options = parser.parse_args(arguments)
    if options.record and options.bootstrap is None:
        parser.error("--record needs the --bootstrap of an Apache Kafka")
    return options


def built(suite: Suite, cache: Path) -> Path:
    """Return the folder that a suite's tests are run in, built if it isn't yet, or if its source has changed since.

    Raises:
        UnavailableError: it can't be built here.
    """
    folder = cache / suite.name
    note = folder / BUILT
    is_old = suite.source is not None and note.exists() and note.stat().st_mtime < suite.source.stat().st_mtime
    if note.exists() and not is_old:
        return Path(note.read_text("utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{suite.name}: is fetched and built in {folder}", flush=True)
    place = suite.build(folder)
    note.write_text(str(place), "utf-8")
    return place


@contextlib.contextmanager
def served(suite: Suite, bootstrap: str | None) -> Iterator[str]:
    """Give the address of a server: the one that runs, or one of this checkout."""
    if bootstrap is not None:
        yield bootstrap
        return
    settings = [word for setting in suite.settings for word in ("--set", setting)]
    with serve("--log-level", "error", *settings) as server:
        yield f"127.0.0.1:{server.port}"


def short(expectations: Iterable[Expectation], attempts: Iterable[Attempt]) -> list[str]:
    """Return the tests that pass on Kafka, not here, and for no reason that is known."""
    outcomes = {made.test: made.outcome for made in attempts}
    return [
        expected.test
        for expected in expectations
        if expected.on_kafka is Outcome.PASSED
        and expected.reason is None
        and outcomes[expected.test] is not Outcome.PASSED
    ]


def describe(expected: Expectation, made: Attempt) -> str:
    """Return a test's line of the table."""
    line = (
        f"{expected.test:<48} on Kafka {expected.on_kafka.value:<8}{expected.seconds:>3} s  "
        f"here {made.outcome.value:<8}{made.seconds:>6.1f} s"
    )
    if expected.on_kafka is not Outcome.PASSED or made.outcome is Outcome.PASSED:
        return line
    return f"{line}  {expected.reason or 'has to pass'}"


def summarize(expectations: Sequence[Expectation], attempts: Sequence[Attempt]) -> str:
    """Return the counts of both sides, and how much of what passes on Kafka passes here."""
    on_kafka = Counter(expected.on_kafka for expected in expectations)
    here = Counter(made.outcome for made in attempts)
    passing = {expected.test for expected in expectations if expected.on_kafka is Outcome.PASSED}
    both = sum(made.outcome is Outcome.PASSED and made.test in passing for made in attempts)
    counts = [
        f"{name} {', '.join(f'{found[outcome]} {outcome.value}' for outcome in Outcome)}"
        for name, found in (("on Kafka", on_kafka), ("here", here))
    ]
    return f"{'; '.join(counts)}; of the {len(passing)} that pass on Kafka, {both} pass here"


def recorded(expectations: Iterable[Expectation], attempts: Iterable[Attempt]) -> list[Expectation]:
    """Return expectations updated by the outcomes of tests."""
    by_test = {made.test: made for made in attempts}
    return [
        evolve(expected, on_kafka=made.outcome, seconds=math.ceil(made.seconds))
        if (made := by_test.get(expected.test)) is not None
        else expected
        for expected in expectations
    ]
