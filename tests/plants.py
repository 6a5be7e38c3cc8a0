"""Bugs of the museum's exhibits, planted in this process for one test."""

from __future__ import annotations

import pytest

from groupcoord.testing.museum import exhibit
from groupcoord.testing.museum.exhibit import changes_of


def plant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Replace the target of an exhibit's plant until the test ends."""
    bug = exhibit(name).plant
    assert bug is not None
    function, changes = changes_of(bug)
    for attribute, value in changes.items():
        monkeypatch.setattr(function, attribute, value)
