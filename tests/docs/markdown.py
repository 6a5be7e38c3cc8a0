"""Markdown pages as the documentation tests see them: code blocks, tables, links."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# All but the first page of the site, which is the README and a list of the others.
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(page for page in DOCS.glob("*.md") if page.stem != "index"))

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block of code."""

    language: str
    code: str
    line: int
    heading: str


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """Return the code blocks of a page in order, all of them or those of one language."""
    text = page.read_text("utf-8")
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", before), re.MULTILINE)
        found.append(Block(match[1], match[2], before.count("\n") + 2, headings[-1] if headings else ""))
    return [block for block in found if language in (None, block.language)]


def links(page: Path) -> list[str]:
    return _LINK.findall(_FENCE.sub("", page.read_text("utf-8")))


def prose(page: Path) -> Iterator[str]:
    """Yield the lines of a page that are text: not code, tables or headings; code inside of them is left out."""
    for line in _FENCE.sub("", page.read_text("utf-8")).splitlines():
        if not line.lstrip().startswith(("|", "#")) and not line.startswith("     "):
            yield _INLINE_CODE.sub("`", line)


def table_rows(page: Path, heading: str) -> Iterator[list[str]]:
    """Yield the cells of every row of the tables below a heading, head and rule left out; marks are stripped."""
    _, found, rest = page.read_text("utf-8").partition(f"# {heading}\n")
    assert found, f"{page.name} has no heading {heading!r}"
    section = re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]
    lines = section.splitlines()
    for number, line in enumerate(lines):
        is_head = number + 1 < len(lines) and set(lines[number + 1]) <= set("|-: ") and "-" in lines[number + 1]
        if line.startswith("|") and not is_head and not set(line) <= set("|-: "):
            yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]


def run_page(page: Path) -> int:
    """Run a page's Python blocks one after the other, as one session; compare what they print with what is printed.

    A block of ``text`` right after a Python block shows its output.

    Returns:
        How many blocks were run.
    """
    session: dict[str, object] = {"__name__": "__page__"}
    sequence = blocks(page)
    count = 0
    for number, block in enumerate(sequence):
        if block.language != "python":
            continue
        following = sequence[number + 1 : number + 2]
        shown = following[0].code if following and following[0].language == "text" else None
        printed = run_block(page, block, session)
        count += 1
        if shown is not None:
            assert printed == shown, f"{page.name}, line {block.line}, printed:\n{printed}"
    session.clear()  # clients of a page would reconnect until their functions are collected
    return count


def run_block(page: Path, block: Block, session: dict[str, object]) -> str:
    padded = "\n" * (block.line - 1) + block.code  # so that a traceback names the line in the page
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(padded, str(page), "exec", dont_inherit=True), session)
    return output.getvalue()
