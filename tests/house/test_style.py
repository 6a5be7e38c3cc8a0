"""How the source is written: short files and functions, everything public documented, nothing left for later."""

from __future__ import annotations

import ast
import fnmatch
import importlib
import re
import tomllib
from collections import Counter
from collections.abc import Iterator

import pytest

import groupcoord

from .sources import ROOT, Source, check_sources, package_sources, sources

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
LINE_LENGTH_MAX = 120
LEFT_FOR_LATER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")

PRAGMA = re.compile(r"\s*# (?:noqa|type: ignore)\b.*$")
"""Notes to the linters; as for these, they don't count for the length of a line."""

TOP_LEVEL = {
    *("groupcoord", "spark_sources", "tests", "examples", "docs", ".ci"),
    *("README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", ".gitignore"),
}
"""All that lies at the top of the checkout, besides git's own and what .gitignore names."""


PACKAGE_ENTRIES_MAX = 24
"""How many modules and folders the package has at most, so that its top says what it is."""


def project() -> dict[str, object]:
    """Return the ``[project]`` table of pyproject.toml."""
    table: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


def lengths_exceeded(source: Source) -> Iterator[str]:
    """Yield what is too long: the file, lines of it, functions in it."""
    lines = source.text.splitlines()
    if len(lines) > FILE_LINES_MAX:
        yield f"has {len(lines)} lines"
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_LENGTH_MAX and len(PRAGMA.sub("", line)) > LINE_LENGTH_MAX:
            yield f"line {number} is too long"
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            if node.end_lineno - node.lineno >= FUNCTION_LINES_MAX:
                yield f"{node.name} in line {node.lineno} has {node.end_lineno - node.lineno + 1} lines"


def test_files_functions_and_lines_are_short() -> None:
    """600 lines a file, 70 a function, 120 characters a line."""
    check_sources(sources(), lengths_exceeded)


def notes_for_later(source: Source) -> Iterator[str]:
    """Yield the lines that speak of work to be done."""
    if LEFT_FOR_LATER.search(source.text):
        lines = source.text.splitlines()
        yield from (f"line {number}" for number, line in enumerate(lines, 1) if LEFT_FOR_LATER.search(line))


def test_nothing_is_left_for_later() -> None:
    """There is no note of work that is still to be done."""
    check_sources(sources(), notes_for_later)


def is_explained_elsewhere(child: ast.stmt, parent: ast.Module | ast.ClassDef) -> bool:
    """Tell whether a setter (its getter has the docstring), an overload, or a property listed as an attribute."""
    decorators = getattr(child, "decorator_list", [])
    if any(isinstance(decorator, ast.Name) and decorator.id == "overload" for decorator in decorators):
        return True
    if any(isinstance(decorator, ast.Attribute) and decorator.attr == "setter" for decorator in decorators):
        return True
    is_property = any(isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in decorators)
    _, _, attributes = (ast.get_docstring(parent) or "").partition("Attributes:")
    return is_property and re.search(rf"^\s+{getattr(child, 'name', '')}:", attributes, re.MULTILINE) is not None


def public_without_docstring(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    """Yield the public classes, functions and methods below ``node`` that say nothing about themselves."""
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name.startswith("_") or is_explained_elsewhere(child, node):
                continue
            if ast.get_docstring(child) is None:
                yield f"{prefix}{child.name} (line {child.lineno})"
            if isinstance(child, ast.ClassDef):
                yield from public_without_docstring(child, f"{child.name}.")


def silent_in_package(source: Source) -> Iterator[str]:
    """Yield what of a module is public and says nothing about itself, the module included."""
    if source.text.strip() and ast.get_docstring(source.tree) is None:
        yield "the module"
    yield from public_without_docstring(source.tree)


def test_everything_public_is_documented() -> None:
    """Each module, and each public class, function and method, has a docstring."""
    check_sources(package_sources(), silent_in_package)


def silent_tests(source: Source) -> Iterator[str]:
    """Yield the tests of a file that say nothing about themselves."""
    if source.path.name.startswith("test_"):
        functions = [node for node in source.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        yield from (f.name for f in functions if f.name.startswith("test_") and ast.get_docstring(f) is None)


def test_tests_say_what_they_expect() -> None:
    """Every test has a docstring."""
    check_sources(sources(), silent_tests)


def wrong_exports(source: Source) -> Iterator[str]:
    """Yield the names in a module's ``__all__`` that stand there twice, or for nothing."""
    assigned = [node for node in source.tree.body if isinstance(node, ast.Assign)]
    if any(isinstance(t, ast.Name) and t.id == "__all__" for node in assigned for t in node.targets):
        module = importlib.import_module(source.module)
        counts = Counter(module.__all__)
        yield from (f"{name} stands there {count} times" for name, count in counts.items() if count > 1)
        yield from (f"{name} is missing" for name in counts if not hasattr(module, name))


def test_exported_names_exist() -> None:
    """What a module lists in ``__all__`` is there, and listed once."""
    pytest.importorskip("kio")
    check_sources(package_sources(), wrong_exports)


def test_the_version_is_told_once() -> None:
    """The package and its metadata agree on the version, and the change log has an entry for it."""
    version = project()["version"]

    assert groupcoord.__version__ == version
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(rf"^## \[{re.escape(str(version))}\]", changelog, re.MULTILINE)


def test_the_top_level_is_as_planned() -> None:
    """Nothing lies at the top of the checkout that does not belong there, and nothing is missing."""
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text("utf-8").split()]
    found = {entry.name for entry in ROOT.iterdir()}
    found = {name for name in found if name != ".git" and not any(fnmatch.fnmatch(name, i) for i in ignored)}

    assert found == TOP_LEVEL


def test_the_package_has_few_entries() -> None:
    """What the package is shows at a look: its modules and folders are few."""
    found = {source.module.split(".")[1] for source in package_sources() if "." in source.module} - {"__main__"}

    assert len(found) <= PACKAGE_ENTRIES_MAX, sorted(found)
