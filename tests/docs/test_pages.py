"""The pages under docs: their code runs as printed, and their links lead somewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from groupcoord.cli import COMMANDS
from tests.tables import as_one_test

from .generated import GROUP_TABLES, MARK, SIMPLE_TABLES, with_tables
from .markdown import DOCS, PAGES, ROOT, blocks, links, prose, run_page

EXECUTED = (
    "tutorial.md",
    "reference.md",
    "design.md",
    "performance.md",
    "gaps.md",
    "contributing.md",
    "simulator.md",
    "explore.md",
    "robustness.md",
    "login.md",
    "replicas.md",
    "stores.md",
    "assigning.md",
)


# Classes of a page are in no module that another process could import.
@pytest.mark.filterwarnings("ignore:assignor .* was not checked in a process with another PYTHONHASHSEED:UserWarning")
@as_one_test
@pytest.mark.parametrize("name", EXECUTED)
def test_code_runs_as_printed(name: str) -> None:
    """The Python blocks of a page run in order as one session, and print what the page shows."""
    page = DOCS / name

    assert run_page(page) == len(blocks(page, "python"))


def test_the_tutorial_has_code() -> None:
    """The tutorial's blocks are found, so that running them means something."""
    assert len(blocks(DOCS / "tutorial.md", "python")) >= 10


@as_one_test
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file of the checkout, and a heading in it."""
    for link in links(page):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in anchors(path), f"{page.name} links to {link}"


@pytest.mark.parametrize("name", ["contributing.md", "design.md"])
def test_named_files_exist(name: str) -> None:
    """Python files in backticks are in the checkout; their first folders may be omitted."""
    found = [*ROOT.glob("*.py"), *ROOT.glob("[!.]*/**/*.py")]
    files = [f"/{path.relative_to(ROOT).as_posix()}" for path in found]
    named = set(re.findall(r"`((?:[\w.]+/)*[a-z_0-9]+\.py)`", (DOCS / name).read_text("utf-8")))

    assert len(named) > 10
    assert [file for file in sorted(named) if not any(path.endswith(f"/{file}") for path in files)] == []


INSTALL = re.compile(r"pip install (?:-\S+ )*(?:\.|'\.\[([\w,]+)\]')(?=[\s`])")
WITHOUT_INSTALLING = ("design", "gaps")
"""Pages without instructions to run something."""

SENTENCE_END = re.compile(r"(?<![.\d])[.!?] [A-Z`]")


def test_every_table_has_its_mark() -> None:
    """The site shows the columns of each table, all settings and the options of commands, at marks in the pages."""
    marks = [mark for page in PAGES for mark in MARK.findall(page.read_text("utf-8"))]

    assert sorted(heading for name, heading in marks if name == "columns") == sorted([*SIMPLE_TABLES, *GROUP_TABLES])
    assert [heading for name, heading in marks if name == "settings"] == ["all"]
    assert {heading for name, heading in marks if name == "options"} == COMMANDS.keys() - {"dump"}  # in its synopsis
    for name, argument in marks:
        assert with_tables(f"<!-- {name}: {argument} -->").startswith("| ")


def test_a_line_holds_one_sentence() -> None:
    """Lines end where sentences end, so that a change shows what was changed; the page that is made is left out."""
    pages = [page for page in PAGES if page.stem != "messages"]
    found = {page.name: [line for line in prose(page) if SENTENCE_END.search(line)] for page in pages}

    assert {name: lines for name, lines in found.items() if lines} == {}


def test_what_runs_says_how_to_install_it() -> None:
    """Pages with commands or Python, and examples, have a line that works in a checkout, with extras that there are."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    pages = [
        page for page in PAGES if page.stem not in WITHOUT_INSTALLING and (blocks(page, "python") or blocks(page, "sh"))
    ]
    found = {
        path.name: INSTALL.findall(path.read_text("utf-8"))
        for path in [*pages, *(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("*/*.go")]
    }

    assert {name for name, lines in found.items() if not lines} == set()
    named = {extra for lines in found.values() for line in lines for extra in line.split(",") if extra}
    assert named <= extras.keys()


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@as_one_test
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_reached_from_the_readme(page: Path) -> None:
    """The README links to every page."""
    readme = PAGES[0]

    assert page == readme or any(
        link.partition("#")[0] == page.relative_to(readme.parent).as_posix() for link in links(readme)
    )


@pytest.mark.parametrize("page", ["contributing.md", "design.md"])
def test_paths_exist(page: str) -> None:
    """Files and folders that the pages for contributors name exist, below the checkout, the package or its analysis."""
    text = re.sub(r"^```.*?^```", "", (DOCS / page).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    paths = {path for path in re.findall(r"`([\w.*/-]+)`", text) if "/" in path or path.endswith(".py")}
    placeholders = {path for path in paths if re.search(r"[A-Z]{2}", path)}
    homes = (ROOT, ROOT / "groupcoord", ROOT / "groupcoord" / "analysis")
    missing = [
        path
        for path in sorted(paths - placeholders)
        if not any(any(home.glob(path if "/" in path else f"**/{path}")) for home in homes)
    ]

    assert missing == []
