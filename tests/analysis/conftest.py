"""The log of a real broker, what was known of it, and a terminal without lines of progress."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .fold.history.broker_log import unpack_broker_log


@pytest.fixture(scope="session", autouse=True)
def _no_lines_of_progress() -> Iterator[None]:
    """A run on a busy machine takes long enough to report how far it is, which is no error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groupcoord.cli.console.LINE_INTERVAL_S", 3_600.0)
        yield


@pytest.fixture(scope="session")
def broker_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the broker's log and ``truth.json``."""
    return unpack_broker_log(tmp_path_factory.mktemp("broker"))


@pytest.fixture(scope="session")
def broker_truth(broker_log: Path) -> dict[str, Any]:
    """The recorded state of clients and of the broker's administration client."""
    truth: dict[str, Any] = json.loads((broker_log / "truth.json").read_text("utf-8"))
    return truth
