"""The measurement itself works: the generator builds, and a server answers it in every mode without error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .under_load import LOADGEN, MODES, OWN, Server, build


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("go") is None, reason="there is no go")
def test_every_mode_is_measured(tmp_path: Path) -> None:
    """Each mode gives a figure; the group that grows does so until all of its members have their share."""
    loadgen = build(LOADGEN, tmp_path)
    server = Server(OWN, tmp_path)
    try:
        for mode, arguments in MODES.items():
            few = ("-groups", "16", "-members", "20", "-seconds", "0.2")
            figures = server.measured(loadgen, (*arguments, *few), f"{mode}-")
            assert figures["requests"] > 0
            assert figures["cpu"] >= 0
    finally:
        server.end()
