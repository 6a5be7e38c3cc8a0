"""The measurement itself works: every request is answered without error, and there is a figure for each."""

from __future__ import annotations

from .core_requests import measure


def test_every_kind_of_request_is_measured() -> None:
    """Heartbeats, commits and fetches take some time, and a heartbeat the least."""
    found = measure(member_count=20, seconds=0.02)

    offsets = [f"{what} of 10 {which}" for what in ("commit", "fetch") for which in ("offsets", "with metadata")]
    assert list(found) == ["heartbeat", *offsets]
    assert 0 < found["heartbeat"] < min(found[name] for name in offsets)
