"""Members vote for an assignor: most votes win, and Kafka's maps decide the rest."""

from __future__ import annotations

from groupcoord.core.groups.consumer.state import preferred_assignor, preferred_assignor_after


def test_most_votes_win() -> None:
    """Members without a preference do not count; without any votes there is no preference."""
    assert preferred_assignor({"range": 2, "uniform": 1}) == "range"
    assert preferred_assignor_after({"range": 1, "uniform": 1}, None, "range") == "range"
    assert preferred_assignor_after({"range": 1, "uniform": 1}, "uniform", None) == "range"
    assert preferred_assignor_after({"range": 1}, "range", "uniform") == "uniform"
    assert preferred_assignor({}) is None
    assert preferred_assignor_after({"range": 1}, "range", None) is None
    assert preferred_assignor_after({}, None, "own") == "own"
