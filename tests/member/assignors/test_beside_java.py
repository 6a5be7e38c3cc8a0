"""The assignors beside the classes of the Java client, on random groups and their stories.

Needs Java and the jars of Kafka 4.4: their folder in ``KAFKA_LIBS``, or ``~/.cache/groupcoord-kafka/libs``.
``ASSIGNOR_SEEDS=0:2000`` chooses which stories, per assignor.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from groupcoord.member.assignors import ASSIGNORS
from tests.samples import SEED
from tests.storage.real_broker import java, needs_kafka

from .random_groups import Story
from .recorded import Record, expected_shape, has_overfull_bucket
from .test_recorded import answer

PROGRAM = Path(__file__).with_name("Assignors.java")
SEEDS = range(*map(int, os.environ.get("ASSIGNOR_SEEDS", f"{SEED}:{SEED + 500}").split(":")))

pytestmark = [pytest.mark.slow, *needs_kafka]


def answered_by_java(program: Path, records: Iterable[Record], folder: Path) -> list[Record]:
    """Return records with the assignments that a program for Kafka's classes makes of them."""
    groups, answers = folder / "groups.jsonl", folder / "answers.jsonl"
    groups.write_text("".join(json.dumps(record) + "\n" for record in records))
    subprocess.run(java(str(program), str(groups), str(answers)), check=True, capture_output=True, timeout=600)
    return [json.loads(line) for line in answers.read_text().splitlines()]


def test_answers_are_those_of_java(tmp_path: Path) -> None:
    """Every round of every story gets Java's answer, order included, and an error where Java throws one."""
    stories = [Story(assignor, seed) for assignor in ASSIGNORS for seed in SEEDS]
    records = answered_by_java(PROGRAM, [record for story in stories for record in story.rounds()], tmp_path)
    different = [
        record["id"]
        for record in records
        if not has_overfull_bucket(record) and answer(record) != expected_shape(record)
    ]

    print(f"{len(records)} groups compared")
    assert not different
    assert len(records) >= len(stories)
