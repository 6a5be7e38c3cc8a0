"""Members vote for an assignor: most votes win, and Kafka's maps decide the rest."""

from __future__ import annotations

from groupcoord.core.groups.consumer.state import preferred_assignor, preferred_assignor_after


def test_most_votes_win() -> None:
    """Whoever names none does not count; without any votes there is no preference."""
    assert preferred_assignor({"range": 2, "uniform": 1}) == "range"
    assert preferred_assignor_after({"range": 1, "uniform": 1}, None, "range") == "range"
    assert preferred_assignor_after({"range": 1, "uniform": 1}, "uniform", None) == "range"
    assert preferred_assignor_after({"range": 1}, "range", "uniform") == "uniform"
    assert preferred_assignor({}) is None
    assert preferred_assignor_after({"range": 1}, "range", None) is None
    assert preferred_assignor_after({}, None, "own") == "own"


def test_a_tie_as_administrators_see_it() -> None:
    """Of range and uniform it is uniform, whoever voted first."""
    assert preferred_assignor({"range": 1, "uniform": 1}) == "uniform"
    assert preferred_assignor({"uniform": 1, "range": 1}) == "uniform"


def test_a_tie_that_a_vote_brings_about() -> None:
    """What had no vote before comes first: one of two uniform members that switches gets a range target at once."""
    assert preferred_assignor_after({"uniform": 2}, "uniform", "range") == "range"
    assert preferred_assignor_after({"uniform": 1}, None, "range") == "range"
    assert preferred_assignor_after({"range": 2}, "range", "uniform") == "uniform"
    assert preferred_assignor_after({"range": 1}, None, "uniform") == "uniform"


def test_a_tie_that_was_there() -> None:
    """If both had votes it is uniform, as for administrators."""
    assert preferred_assignor_after({"range": 1, "uniform": 1}, None, None) == "uniform"
    assert preferred_assignor_after({"range": 2, "uniform": 1}, None, "uniform") == "uniform"
    assert preferred_assignor_after({"uniform": 2, "range": 1}, "uniform", None) == "uniform"
