"""The laws that hold at every moment of every run (docs/design.md lists them): those that users import, too."""

from __future__ import annotations

from groupcoord.testing.laws import (
    check_bytes,
    check_compaction_rebuilds,
    check_fetch_is_the_log,
    check_generations_grow,
    check_hard_state_is_the_log,
    check_size,
    check_snapshot_rebuilds,
    check_timers,
    check_tokens,
)

__all__ = [
    "check_bytes",
    "check_compaction_rebuilds",
    "check_fetch_is_the_log",
    "check_generations_grow",
    "check_hard_state_is_the_log",
    "check_size",
    "check_snapshot_rebuilds",
    "check_timers",
    "check_tokens",
]
