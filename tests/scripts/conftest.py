"""The option that records scripts anew."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``pytest tests/scripts --rewrite``: write what the commands print now into the scripts."""
    parser.addoption("--rewrite", action="store_true", help="record the scripts' output anew, for review in the diff")
