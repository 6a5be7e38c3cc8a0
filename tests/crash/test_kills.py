"""Servers are killed again and again; nothing that they acknowledged is ever lost. More: ``python -m tests.crash``."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.clients import PARTITION_COUNT, TOPIC, BrokenPromiseError, Promises
from tests.crash.harness import Harness

KILLS = 200


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """After each of 200 kills every acknowledged commit and generation is there."""
    seed = random.SystemRandom().randrange(2**32)
    harness = Harness(tmp_path, seed)
    try:
        harness.run(KILLS)
    except Exception as error:
        error.add_note(f"kill {harness.kill_count}; again: python -m tests.crash --kills {KILLS} --seed {seed}")
        raise
    finally:
        harness.close()
    assert harness.kill_count == KILLS
    assert harness.answer_count > KILLS


@pytest.mark.parametrize(
    "fetched",
    [
        {},
        {(TOPIC, index): 4 for index in range(PARTITION_COUNT)},
        {(TOPIC, index): 8 for index in range(PARTITION_COUNT)},
        {(TOPIC, index): 5 + index % 2 for index in range(PARTITION_COUNT)},
        {(TOPIC, index): 6 for index in range(PARTITION_COUNT - 1)},
    ],
    ids=["all lost", "gone back", "never sent", "half a commit", "a partition lost"],
)
def test_broken_promises_are_noticed(fetched: dict[tuple[str, int], int]) -> None:
    """A server that has less than it acknowledged, or more than was sent, or half of a commit, is found out."""
    promises = Promises("group")
    promises.acknowledged, promises.sent = 5, 7
    with pytest.raises(BrokenPromiseError):
        promises.check_offsets(fetched)


@pytest.mark.parametrize("offset", [5, 6, 7])
def test_kept_promises_pass(offset: int) -> None:
    """What was sent and not answered may be there or not."""
    promises = Promises("group")
    promises.acknowledged, promises.sent = 5, 7
    promises.check_offsets({(TOPIC, index): offset for index in range(PARTITION_COUNT)})
    assert promises.acknowledged == offset
