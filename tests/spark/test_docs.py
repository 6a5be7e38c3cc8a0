"""The page about Spark works as printed, and its tables are the declared schemas."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import groupcoord.spark
from groupcoord.spark import schemas

from ..docs.markdown import DOCS, blocks, run_page

PAGE = DOCS / "spark.md"
SCHEMAS = {name: value for name, value in vars(schemas).items() if isinstance(value, StructType)}


@pytest.mark.parametrize(("page", "least"), [(PAGE, 6), (DOCS / "live.md", 1)], ids=["spark", "live"])
def test_code_runs_as_printed(spark: SparkSession, page: Path, least: int) -> None:
    """The blocks of a page run in order as one session, and print what the page shows."""
    assert run_page(page) == len(blocks(page, "python")) >= least


@pytest.mark.parametrize("name", sorted(set(SCHEMAS) - {"END_OFFSETS"}))
def test_tables_are_those_of_the_code(name: str) -> None:
    """Every column with its type and meaning is on the page, in order."""
    lines = [f"| {f.name} | {f.dataType.simpleString()} | {f.metadata['comment']} |" for f in SCHEMAS[name]]

    assert "\n".join(["| column | type | |", "|---|---|---|", *lines, ""]) in PAGE.read_text("utf-8")


def test_every_public_name_is_on_the_page() -> None:
    """What the package exports is described."""
    text = PAGE.read_text("utf-8")

    assert not [name for name in groupcoord.spark.__all__ if not re.search(rf"\b{name}\b", text)]
