"""The page about Spark works as printed, and describes all that the package exports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import groupcoord.spark

from ..docs.markdown import DOCS, blocks, run_page
from ..house.sources import public_names

PAGE = DOCS / "spark.md"


@pytest.mark.parametrize(("page", "least"), [(PAGE, 6), (DOCS / "live.md", 1)], ids=["spark", "live"])
def test_code_runs_as_printed(spark: SparkSession, page: Path, least: int) -> None:
    """The blocks of a page run in order as one session, and print what the page shows."""
    assert run_page(page) == len(blocks(page, "python")) >= least


def test_every_public_name_is_on_the_page() -> None:
    """All exports of the package are documented."""
    text = PAGE.read_text("utf-8")

    assert not [name for name in public_names(groupcoord.spark) if not re.search(rf"\b{name}\b", text)]
