"""New random histories, answered by Kafka's own classes while the test runs."""

from __future__ import annotations

import os

import pytest

from tests.beside_kafka.histories import follow
from tests.beside_kafka.oracle import Oracle
from tests.beside_kafka.share_story import ShareStory
from tests.beside_kafka.story import RandomStory
from tests.beside_kafka.streams_story import StreamsStory
from tests.samples import SEED

COMMAND = os.environ.get("KAFKA_ORACLE")
FIRST, COUNT = map(int, os.environ.get("ORACLE_SEEDS", f"{SEED}:100").split(":"))


@pytest.mark.slow
@pytest.mark.skipif(COMMAND is None, reason="KAFKA_ORACLE names no program that runs Kafka's classes")
@pytest.mark.parametrize("kind", [RandomStory, ShareStory, StreamsStory])
def test_random_histories(kind: type[RandomStory]) -> None:
    """All results are equal, or differ on purpose."""
    assert COMMAND is not None
    with Oracle(COMMAND) as oracle:
        for seed in range(FIRST, FIRST + COUNT):
            verdict = follow(kind(oracle, seed).run())
            assert verdict.difference is None or verdict.known is not None, verdict
