"""The member's page shows the states, reactions and settings that the code has, and names all that is public."""

from __future__ import annotations

import re

import pytest

import groupcoord.member
from groupcoord.member import Member

from ..house.sources import public_names
from .markdown import DOCS, blocks, run_page
from .member import classic_diagram, classic_reactions, consumer_diagram, consumer_reactions, settings

PAGE = DOCS / "member.md"
TEXT = PAGE.read_text("utf-8")


MADE = [classic_diagram, consumer_diagram, classic_reactions, consumer_reactions, settings]


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_what_is_shown_is_that_of_the_code(made: object) -> None:
    """Drawing and tables are what ``python -m tests.docs.member`` prints today."""
    assert made() in TEXT  # type: ignore[operator]


def test_the_code_runs_as_printed() -> None:
    """The page's Python blocks run in order as one session, and print what the page shows."""
    assert run_page(PAGE) == len(blocks(PAGE, "python")) >= 1


def test_every_public_name_is_named() -> None:
    """All exports of the package, and all methods of a member, are on the page or in the reference."""
    text = TEXT + (DOCS / "reference.md").read_text("utf-8")
    methods = [name for name in vars(Member) if not name.startswith("_")]
    names = [*public_names(groupcoord.member), *methods]
    missing = [name for name in names if re.search(rf"\b{re.escape(name)}\b", text) is None]

    assert not missing, ", ".join(missing)
