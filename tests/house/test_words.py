"""Plain words in docstrings, comments and pages: the most findings there may be of each kind.

The bounds are what there is. They are lowered with each text that is rewritten, and never raised.
docs/contributing.md states the rules.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from .sources import ROOT, comments, sources
from .test_size import docstrings

OPENING = re.compile(
    r"(What|Who|Whom|Whose|Whoever|Whatever|Where|How|Which|Whether|Let|Have|Those|That|Such|See|Tell|Say|It)\b"
)
"""First words of a docstring that has no noun phrase or verb to search for."""

DIALECT = re.compile(
    r"\b(told|tells?|said|says?|asked|asker|nobody|somebody|anybody|whoever|whomever|whom|whose|whatever|besides|anew"
    r"|elsewhere|beside|had better|so many|so much|put out|the eye|comes? to (?:its|his|her) turn|of (?:its|one's) own"
    r"|in words|for ever|is there no more|no more than that|others' |goes? on|is about to|how-manieth)\b",
    re.IGNORECASE,
)
"""Words that stand in the place of a technical term: a request fails with an error, a field holds, a timer expires."""

SENTENCE_WORDS_MAX = 30
BOUNDS = {
    "groupcoord": {"openings": 0, "see": 0, "long sentences": 4, "words of dialect": 73},
    "tests": {"openings": 183, "see": 0, "long sentences": 12, "words of dialect": 326},
}
PAGE_BOUNDS = {"words of dialect": 5}


def prose_comments(text: str) -> Iterator[str]:
    """Yield the comments, without those for linters and lines that divide."""
    for comment in comments(text):
        if not re.match(r"#\s*(noqa|type:|pragma|-+)", comment):
            yield comment.lstrip("# ").strip()


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences before the sections of a docstring, with code as one word."""
    text = re.sub(r"``[^`]*``|`[^`]*`|:\w+:`[^`]*`", "X", text)
    text = re.split(r"\n\s*(?:Args|Attributes|Returns|Raises|Yields|Examples?):", text)[0]
    for block in re.split(r"\n\s*\n|\n\s*[-*|] ", text):
        yield from re.split(r"(?<=[.!?:;])\s+", " ".join(block.split()))


def findings(text: str) -> Counter[str]:
    """Count what is not plain in a docstring or comment."""
    found = Counter({"words of dialect": len(DIALECT.findall(text))})
    if text.startswith("See ") and len(text.split()) < 12:
        found["see"] += 1
    elif OPENING.match(text):
        found["openings"] += 1
    found["long sentences"] += sum(len(sentence.split()) > SENTENCE_WORDS_MAX for sentence in sentences(text))
    return found


@pytest.mark.parametrize("folder", BOUNDS)
def test_docstrings_and_comments_are_plain(folder: str) -> None:
    """Package and tests have no more findings than the bounds allow."""
    total: Counter[str] = Counter()
    for source in (source for source in sources() if source.name.startswith(f"{folder}/")):
        for text in (*docstrings(source), *prose_comments(source.text)):
            total += findings(text)

    assert all(total[kind] <= most for kind, most in BOUNDS[folder].items()), total


def test_pages_are_plain() -> None:
    """README.md, CHANGELOG.md and the pages under docs have no more words of dialect than the bound allows."""
    total = 0
    for path in (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
        total += len(DIALECT.findall(re.sub(r"`[^`\n]*`|\]\([^)]*\)", " ", text)))

    assert total <= PAGE_BOUNDS["words of dialect"], total
