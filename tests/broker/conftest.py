"""A host that asks for permissions, for the tests that take some away; other worlds are made where they are used."""

from __future__ import annotations

import pytest

from tests.broker.rules import Rules
from tests.broker.wire_world import WireWorld


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def world(rules: Rules) -> WireWorld:
    return WireWorld(authorize=rules)
