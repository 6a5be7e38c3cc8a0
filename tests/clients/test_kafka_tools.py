"""Kafka's own tools print of the server what they print of Apache Kafka, command by command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.kafka_tools import (
    DIFFERENCES,
    differing,
    groupcoord,
    kafka,
    read_answers,
    read_commands,
    read_differences,
    run_all,
)
from tests.docs.markdown import DOCS
from tests.storage.real_broker import LIBS, needs_kafka

GAPS = DOCS / "gaps.md"

needs_java, needs_broker = needs_kafka
needs_tools = pytest.mark.skipif(
    not any(LIBS.glob("kafka-tools-4.*.jar")), reason=f"there is no kafka-tools of Kafka 4 in {LIBS}"
)


def test_every_command_has_an_answer_of_kafka() -> None:
    """Recorded are exactly the listed commands, in order, and each tool accepts some and refuses some."""
    answers = read_answers()
    assert [answer.command for answer in answers] == read_commands()
    assert {answer.status for answer in answers} == {0, 1}


def test_every_difference_is_of_some_command() -> None:
    """Each difference matches a command, and docs/gaps.md describes it."""
    commands, gaps = read_commands(), " ".join(GAPS.read_text("utf-8").replace("**", "").split())
    for entry in read_differences():
        assert any(entry.is_about(command) for command in commands), entry
        assert entry.kafka or entry.here, entry
        assert entry.gap in gaps, entry


@pytest.mark.slow
@needs_java
@needs_tools
def test_the_tools_print_the_same_of_the_server(tmp_path: Path) -> None:
    """But for the lines that ``tools/differences.toml`` permits, of which none is there in vain."""
    permitted = read_differences()
    with groupcoord(tmp_path) as bootstrap:
        pairs = list(zip(read_answers(), run_all(bootstrap, tmp_path), strict=True))
    told = [line for theirs, own in pairs for line in differing(theirs, own, permitted)]
    assert not told, f"neither like Kafka nor in {DIFFERENCES.name}:\n" + "\n".join(told)
    for entry in permitted:
        others = [other for other in permitted if other is not entry]
        assert any(differing(theirs, own, others) for theirs, own in pairs), f"nothing differs so: {entry}"


@pytest.mark.slow
@needs_java
@needs_tools
@needs_broker
def test_a_broker_makes_them_print_what_was_noted(tmp_path: Path) -> None:
    """So that what the server is held against is what Apache Kafka does, and not what it did once by chance."""
    with kafka(tmp_path) as bootstrap:
        again = list(run_all(bootstrap, tmp_path))
    told = [line for noted, now in zip(read_answers(), again, strict=True) for line in differing(noted, now, [])]
    assert not told, "\n".join(told)
