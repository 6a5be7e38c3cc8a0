"""The assignors beside the classes of the Java client, on random groups and their stories.

Needs Java and the jars of Kafka 4.4: their folder in ``KAFKA_LIBS``, or ``~/.cache/groupcoord-kafka/libs``.
``ASSIGNOR_SEEDS=0:2000`` chooses which stories, per assignor.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from groupcoord.member.assignors import ASSIGNORS
from tests.samples import SEED
from tests.storage.real_broker import java, needs_kafka

from .random_groups import Story
from .recorded import expected_shape, has_overfull_bucket
from .test_recorded import answer

PROGRAM = Path(__file__).with_name("Assignors.java")
SEEDS = range(*map(int, os.environ.get("ASSIGNOR_SEEDS", f"{SEED}:{SEED + 500}").split(":")))

pytestmark = [pytest.mark.slow, *needs_kafka]


def test_answers_are_those_of_java(tmp_path: Path) -> None:
    """Every round of every story gets Java's answer, order included, and an error where Java throws one."""
    groups, answers = tmp_path / "groups.jsonl", tmp_path / "answers.jsonl"
    with groups.open("w") as lines:
        for assignor in ASSIGNORS:
            for seed in SEEDS:
                for record in Story(assignor, seed).rounds():
                    lines.write(json.dumps(record) + "\n")
    subprocess.run(java(str(PROGRAM), str(groups), str(answers)), check=True, capture_output=True, timeout=600)
    different, compared = [], 0
    with answers.open() as lines:
        for line in lines:
            record = json.loads(line)
            compared += 1
            if not has_overfull_bucket(record) and answer(record) != expected_shape(record):
                different.append(record["id"])

    print(f"{compared} groups compared")
    assert not different
    assert compared >= len(SEEDS) * len(ASSIGNORS)
