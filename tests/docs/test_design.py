"""The design page shows the states that the code has."""

from __future__ import annotations

from .markdown import DOCS
from .states import diagram, table


def test_the_states_are_those_of_the_code() -> None:
    """Drawing and table are what ``python -m tests.docs.states`` prints today."""
    text = (DOCS / "design.md").read_text("utf-8")

    assert diagram() in text
    assert table() in text
