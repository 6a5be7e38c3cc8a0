"""The measurement itself works: whatever it names is answered by a broker in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from .broker_requests import GROUPS, MEASURED, Measured


@pytest.mark.ci
def test_every_kind_of_request_is_measured() -> None:
    """Each takes some time, and a heartbeat the least."""
    broker = Measured(Path(__file__).resolve().parents[2])
    found = {what: broker.cost_us(what, GROUPS) for what in MEASURED}
    broker.end()

    assert 0 < found.pop("heartbeat") < min(found.values())
