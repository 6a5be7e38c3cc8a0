"""The log of a real broker, and what was known of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .fold.history.broker_log import unpack_broker_log


@pytest.fixture(scope="session")
def broker_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the broker's log and ``truth.json``."""
    return unpack_broker_log(tmp_path_factory.mktemp("broker"))


@pytest.fixture(scope="session")
def broker_truth(broker_log: Path) -> dict[str, Any]:
    """What the clients and the broker's administration client knew."""
    truth: dict[str, Any] = json.loads((broker_log / "truth.json").read_text("utf-8"))
    return truth
