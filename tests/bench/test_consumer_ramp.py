"""The measurement itself works: members join, get their shares, and the same requests come to the same."""

from __future__ import annotations

from pathlib import Path

from .broker_requests import Measured
from .consumer_ramp import __file__ as script


def test_a_ramp_is_measured() -> None:
    """Ten members send two requests each at least, some time passes, and a second round gives the same answers."""
    broker = Measured(Path(__file__).resolve().parents[2], script=Path(script))
    found = [broker.ask(10).split() for _ in range(2)]
    broker.end()

    assert found[0][1:] == found[1][1:]
    assert int(found[0][1]) >= 20
    assert float(found[0][0]) > 0
