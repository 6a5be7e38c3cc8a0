"""Test suites of other clients: the lists of what may fail, and, marked slow, the suites themselves."""

from __future__ import annotations

import pytest

from tests.docs.markdown import DOCS, table_rows
from tests.peers import confluent_kafka, followers, franz_go, kafka_go, librdkafka
from tests.peers.expectations import FOLDER, read_expectations
from tests.peers.running import main
from tests.peers.suite import Outcome, Suite

SUITES = (franz_go.SUITE, kafka_go.SUITE, librdkafka.SUITE, confluent_kafka.SUITE, followers.SUITE)

PASSES_AT_LEAST = 0.95


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
