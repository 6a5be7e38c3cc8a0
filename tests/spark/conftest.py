"""One session for all Spark tests, and the log of a real broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import groupcoord.spark

from ..analysis.conftest import broker_log, broker_truth

__all__ = ["broker_log", "broker_records", "broker_truth", "spark"]

ENVIRONMENT = dict(os.environ)
"""What it was before a session started."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a session, which costs a Java machine, as being for ``.ci/run``."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.ci)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A small session."""
    made = groupcoord.spark.session("local[2]", memory="1g", compiler="c1")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def broker_records(spark: SparkSession, broker_log: Path) -> DataFrame:
    """The table of records of the broker's log, read once."""
    return groupcoord.spark.read_log(spark, broker_log).cache()
