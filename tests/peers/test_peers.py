"""How suites of others are run and judged; and, marked slow, the suites themselves."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import DOCS, table_rows
from tests.peers import confluent_kafka, followers, franz_go, kafka_go, librdkafka
from tests.peers.attempts import Attempt, attempt
from tests.peers.expectations import FOLDER, Expectation, read_expectations, write_expectations
from tests.peers.running import built, main, recorded, short, summarize
from tests.peers.suite import Command, Outcome, Suite, UnavailableError, outcome_of_go

SUITES = (franz_go.SUITE, kafka_go.SUITE, librdkafka.SUITE, confluent_kafka.SUITE, followers.SUITE)

PASSES_AT_LEAST = 0.95


def scripted(script: str, timeout_s: float = 20.0) -> Suite:
    """Return a suite whose tests are a Python script that is told the test's name and the server's address."""

    def command(folder: Path, test: str, bootstrap: str) -> Command:
        return Command((sys.executable, "-c", script, test, bootstrap), folder)

    return Suite("scripted", lambda folder: folder, command, outcome_of_go, timeout_s=timeout_s)


def test_a_test_is_told_the_server_and_judged_by_what_it_says(tmp_path: Path) -> None:
    """A test passes if its process ends well and says so, and everything that it says is kept."""
    suite = scripted("import sys; print('--- PASS:' if sys.argv[2] == 'here:1' else '--- FAIL:', sys.argv[1])")

    made = attempt(suite, tmp_path, "TestOne", "here:1", tmp_path / "one.txt")

    assert made.outcome is Outcome.PASSED
    assert made.output.read_text() == "--- PASS: TestOne\n"


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("print('--- SKIP: TestOne')", Outcome.SKIPPED),
        ("print('--- FAIL: TestOne'); raise SystemExit(1)", Outcome.FAILED),
        ("print('testing: warning: no tests to run')", Outcome.FAILED),
    ],
)
def test_what_go_says_of_a_test(tmp_path: Path, script: str, outcome: Outcome) -> None:
    """A test that isn't there has failed, since nothing was shown by it; one that is skipped is neither."""
    assert attempt(scripted(script), tmp_path, "TestOne", "here:1", tmp_path / "one.txt").outcome is outcome


def test_a_test_that_takes_too_long_is_killed_and_has_failed(tmp_path: Path) -> None:
    """Nothing hangs, whatever a test does."""
    suite = scripted("print('--- PASS: TestOne', flush=True); import time; time.sleep(600)", timeout_s=0.5)

    assert attempt(suite, tmp_path, "TestOne", "here:1", tmp_path / "one.txt").outcome is Outcome.FAILED


def test_lists_are_read_as_they_are_written(tmp_path: Path) -> None:
    """What is recorded is what is expected from then on, with its comments and reasons."""
    expectations = [
        Expectation("TestOne", Outcome.PASSED, 3),
        Expectation("consumer/test_x.py::test_two", Outcome.FAILED, 100, "a reason"),
    ]
    write_expectations(tmp_path / "list.txt", ["# A comment."], expectations)

    assert read_expectations(tmp_path / "list.txt") == (["# A comment."], expectations)


def test_a_test_falls_short_that_passes_on_kafka_and_not_here() -> None:
    """What fails on Kafka may fail here, and so may what has a reason."""
    expectations = [
        Expectation("passes", Outcome.PASSED, 1),
        Expectation("must pass", Outcome.PASSED, 1),
        Expectation("has a reason", Outcome.PASSED, 1, "a reason"),
        Expectation("fails there", Outcome.FAILED, 1),
    ]
    attempts = [
        Attempt(expected.test, Outcome.PASSED if expected.test == "passes" else Outcome.FAILED, 1.0, Path("x"))
        for expected in expectations
    ]

    assert short(expectations, attempts) == ["must pass"]
    assert summarize(expectations, attempts).endswith("of the 3 that pass on Kafka, 1 pass here")


def test_a_record_changes_the_tests_that_were_run() -> None:
    """Running some tests against Kafka leaves what is known of the others."""
    expectations = [Expectation("one", Outcome.FAILED, 9, "a reason"), Expectation("two", Outcome.PASSED, 1)]

    assert recorded(expectations, [Attempt("one", Outcome.PASSED, 1.2, Path("x"))]) == [
        Expectation("one", Outcome.PASSED, 2, "a reason"),
        Expectation("two", Outcome.PASSED, 1),
    ]


def test_a_suite_that_can_not_be_built_is_skipped_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a toolchain or a registry is missing, nothing fails."""

    def build(folder: Path) -> Path:
        raise UnavailableError("there is no go here")

    suite = Suite("franz-go", build, franz_go.command, outcome_of_go)

    assert main(suite, ["--cache", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "franz-go: skipped, there is no go here"


def test_a_suite_is_built_once(tmp_path: Path) -> None:
    """What was built is used again, until its source changes."""
    times, source = [], tmp_path / "source"
    source.touch()

    def build(folder: Path) -> Path:
        times.append(folder)
        return folder / "sources"

    suite = Suite("scripted", build, franz_go.command, outcome_of_go, source=source)

    assert [built(suite, tmp_path) for _ in range(2)] == [tmp_path / "scripted" / "sources"] * 2
    assert len(times) == 1
    os.utime(source, (2**31, 2**31))
    built(suite, tmp_path)
    assert len(times) == 2


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_few_tests_have_a_reason_to_fail(suite: Suite) -> None:
    """Of the tests that pass on Kafka and aren't about share groups, at least 95 of 100 have to pass here."""
    _, expectations = read_expectations(FOLDER / f"{suite.name}.txt")
    passing = [expected for expected in expectations if expected.on_kafka is Outcome.PASSED]

    assert sum(expected.reason is None for expected in passing) >= PASSES_AT_LEAST * len(passing)


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_what_may_fail_is_on_the_page_of_gaps(suite: Suite) -> None:
    """The page names each test that passes on Kafka and not here, and no other test of that suite."""
    _, expectations = read_expectations(FOLDER / f"{suite.name}.txt")
    rows = [row for row in table_rows(DOCS / "gaps.md", "Test suites of other clients") if row[0] == suite.name]
    named = {test for row in rows for test in row[1].split(", ")}

    assert named == {expected.test for expected in expectations if expected.reason is not None}


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_what_passes_on_kafka_passes_here(suite: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    """Every test that passes on Apache Kafka passes here, unless a reason is written down."""
    status = main(suite, [])

    assert status == 0, capsys.readouterr().out
