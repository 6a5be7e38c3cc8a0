"""One session for all Spark tests, and the log of a real broker."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import groupcoord.spark

from ..history.broker_log import unpack_broker_log

ENVIRONMENT = dict(os.environ)
"""What it was before a session started."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A small session."""
    made = groupcoord.spark.session("local[2]", memory="1g", compiler="c1")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def broker_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the broker's log and ``truth.json``."""
    return unpack_broker_log(tmp_path_factory.mktemp("broker"))


@pytest.fixture(scope="session")
def broker_truth(broker_log: Path) -> dict[str, Any]:
    """What the clients and the broker's administration client knew."""
    truth: dict[str, Any] = json.loads((broker_log / "truth.json").read_text("utf-8"))
    return truth


@pytest.fixture(scope="session")
def broker_records(spark: SparkSession, broker_log: Path) -> DataFrame:
    """The table of records of the broker's log, read once."""
    return groupcoord.spark.read_log(spark, broker_log).cache()
