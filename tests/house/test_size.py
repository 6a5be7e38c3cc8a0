"""Size of the code: the most lines of code, files and words that the package and its tests may have.

The bounds are what there is. They are lowered with each change that takes something away; a change that raises one
gives the reason in its commit.
"""

from __future__ import annotations

import ast

import pytest

from .sources import Source, comments, sources

BOUNDS = {
    "groupcoord": {"code": 68_019, "files": 431, "words": 135_397},
    "tests": {"code": 58_716, "files": 599, "words": 81_144},
}
"""Lines that are not blank, comment, docstring or import; Python files; words of docstrings and comments."""


def code_lines(source: Source) -> int:
    """Return the number of lines that are neither blank nor comment, docstring or import."""
    lines = source.text.splitlines()
    other = {n for n, line in enumerate(lines, 1) if not line.strip() or line.lstrip().startswith("#")}
    for node in [*filter(is_docstring, source.of(ast.Expr)), *source.of(ast.Import, ast.ImportFrom)]:
        other |= set(range(node.lineno, node.end_lineno + 1))
    return len(lines) - len(other)


def words(source: Source) -> int:
    return sum(len(text.split()) for text in docstrings(source)) + sum(
        len(text.split()) - 1 for text in comments(source.text)
    )


def docstrings(source: Source) -> list[str]:
    """Return the docstrings of a module, its classes and functions, and those below attributes."""
    return [node.value.value.strip() for node in source.of(ast.Expr) if is_docstring(node)]


def is_docstring(node: ast.Expr) -> bool:
    """Return whether an expression is a string that stands alone, as docstrings do."""
    return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@pytest.mark.parametrize("folder", BOUNDS)
def test_size(folder: str) -> None:
    """Code, files and words are within their bounds."""
    found = [source for source in sources() if source.name.startswith(f"{folder}/")]
    sizes = {"code": sum(map(code_lines, found)), "files": len(found), "words": sum(map(words, found))}

    assert all(sizes[kind] <= most for kind, most in BOUNDS[folder].items()), sizes
