"""A large fleet over a long time: what fast-forwarding buys."""

from __future__ import annotations

import time

import pytest

from groupcoord import Config
from groupcoord.member import MemberConfig
from groupcoord.sim import ClusterOptions, GroupOptions, World, WorldOptions

MEMBER = MemberConfig(session_timeout_ms=45_000, heartbeat_interval_ms=3_000, auto_commit_interval_ms=5_000)
HOUR_MS = 3_600_000


def fleet(group_count: int, duration_ms: int) -> WorldOptions:
    """Return groups of fifty consumers each."""
    groups = tuple(
        GroupOptions(f"group-{number}", 50, ("orders",), member=MEMBER, start_spread_ms=2_000)
        for number in range(group_count)
    )
    cluster = ClusterOptions(node_count=3, config=Config(offsets_topic_num_partitions=50))
    return WorldOptions(
        cluster, {"orders": 100}, groups, duration_ms=duration_ms, law_interval_ms=60_000, calm_ms=5_000
    )


def test_steady_hours_cost_little() -> None:
    """A hundred consumers send all heartbeats of an hour, with few events."""
    outcome = World(1, fleet(2, HOUR_MS)).run()

    assert outcome.heartbeats == pytest.approx(100 * HOUR_MS / 3_000, rel=0.01)
    assert outcome.commits == pytest.approx(100 * HOUR_MS / 5_000, rel=0.01)
    assert outcome.events < 20_000
    assert outcome.looks > 40


@pytest.mark.slow
@pytest.mark.parametrize(("duration_ms", "limit_s"), [(HOUR_MS, 20), (24 * HOUR_MS, 60)], ids=["an hour", "a day"])
def test_a_thousand_members(duration_ms: int, limit_s: int) -> None:
    """1,000 members in 20 groups: an hour takes 20 s of processor time at most, a day 60 s."""
    started_s = time.process_time()
    outcome = World(1, fleet(20, duration_ms)).run()

    assert time.process_time() - started_s < limit_s
    assert outcome.heartbeats == pytest.approx(1_000 * duration_ms / 3_000, rel=0.01)
