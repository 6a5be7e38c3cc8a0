"""The site builds without network: links are valid, drawings are pictures, everything can be searched."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from groupcoord import messages
from groupcoord.testing.museum import exhibits

from ..house.sources import public_names
from .markdown import DOCS, PAGES, ROOT, blocks

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``.ci/run`` does it; a warning is an error."""
    for package in ("sphinx", "furo", "myst_parser", "mmdr"):
        pytest.importorskip(package, reason="the site needs pip install 'groupcoord[docs]'")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(DOCS), str(place)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return place


def test_every_page_is_there_and_can_be_found(site: Path) -> None:
    """Each page under docs has its own, and so have the README, the changes, the examples and the API."""
    names = {page.stem for page in PAGES if page.parent == DOCS} | {"index", "search"}
    names |= {f"site/{name}" for name in ("api", "changes", "examples", "transcripts")}

    assert [name for name in sorted(names) if not (site / f"{name}.html").exists()] == []
    assert "asynccoordin" in (site / "searchindex.js").read_text("utf-8")  # stemmed


def test_the_api_has_what_docstrings_say(site: Path) -> None:
    """Classes have their methods with arguments and errors, each where it is exported first."""
    page = (site / "site" / "api.html").read_text("utf-8")

    for name in ("GroupCoordinator.submit", "aio.AsyncCoordinator.ask", "storage.stores.PostgresLogStore"):
        assert f'id="groupcoord.{name}"' in page
    assert "UnansweredError" in page


def test_generated_pages_are_complete(site: Path) -> None:
    """The museum's page has every exhibit, that of messages every class with its fields."""
    museum, fields = ((site / f"{name}.html").read_text("utf-8") for name in ("museum", "messages"))

    assert [one.id for one in exhibits() if f"{one.id}: " not in museum] == []
    classes = [name for name in public_names(messages) if isinstance(getattr(messages, name), type)]
    assert [name for name in classes if f"<h3>{name}<" not in fields] == ["Request"]
    assert "session_timeout_ms" in fields


def test_tables_are_inserted(site: Path) -> None:
    """Settings, options, columns and report cards come from the code and the results."""
    reference, spark, cards = (
        (site / f"{name}.html").read_text("utf-8") for name in ("reference", "spark", "report-cards")
    )

    assert ">group.consumer.assignors<" in reference
    assert "Address that clients are given." in reference
    assert "<td><p>partition_leader_epoch</p></td>" in spark
    assert 'id="scenarios"' in cards


def test_drawings_are_drawn(site: Path) -> None:
    """Each block of Mermaid is a picture, and nothing is fetched to show it."""
    for page in (page for page in PAGES if page.parent == DOCS):
        html = (site / f"{page.stem}.html").read_text("utf-8")
        assert len(re.findall(r'<div class="mermaid"[^>]*><svg ', html)) == len(blocks(page, "mermaid"))
    scripts = re.findall(r'<script[^>]*src="([^"]+)"', (site / "design.html").read_text("utf-8"))
    assert scripts
    assert not [script for script in scripts if "//" in script]


def test_every_example_is_shown(site: Path) -> None:
    """The page of examples has every program in the folder."""
    page = (DOCS / "site" / "examples.md").read_text("utf-8")

    assert [example.name for example in sorted((ROOT / "examples").glob("*.py")) if example.name not in page] == []
