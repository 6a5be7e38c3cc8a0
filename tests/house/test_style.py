"""Style of the source: lengths, docstrings of the public API, no notes of open work, the top of the checkout."""

from __future__ import annotations

import ast
import fnmatch
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from types import ModuleType

import pytest

import groupcoord.storage.stores
import groupcoord.testing

from .sources import ROOT, Source, check_sources, package_sources, public_names, sources

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
LINE_LENGTH_MAX = 120
LEFT_FOR_LATER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")

PRAGMA = re.compile(r"\s*# (?:noqa|type: ignore)\b.*$")
"""Notes to the linters; as for these, they don't count for the length of a line."""

TOP_LEVEL = {
    *("groupcoord", "tests", "examples", "docs", ".ci", ".github"),
    *("README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "pyproject.toml", "hatch_build.py", ".gitignore"),
}
"""All that lies at the top of the checkout, besides git's own and what .gitignore names."""


PACKAGE_ENTRIES_MAX = 28
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
    for node in source.of(ast.FunctionDef, ast.AsyncFunctionDef):
        if node.end_lineno - node.lineno >= FUNCTION_LINES_MAX:
            yield f"{node.name} in line {node.lineno} has {node.end_lineno - node.lineno + 1} lines"


def test_files_functions_and_lines_are_short() -> None:
    """800 lines a file, 70 a function, 120 characters a line."""
    check_sources(sources(), lengths_exceeded)


def notes_for_later(source: Source) -> Iterator[str]:
    """Yield the lines that speak of work to be done."""
    if LEFT_FOR_LATER.search(source.text):
        lines = source.text.splitlines()
        yield from (f"line {number}" for number, line in enumerate(lines, 1) if LEFT_FOR_LATER.search(line))


def test_nothing_is_left_for_later() -> None:
    """There is no note of work that is still to be done."""
    check_sources(sources(), notes_for_later)


@cache
def documented_names() -> frozenset[str]:
    """Return every identifier in the code of docs/reference.md, which lists the public API."""
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    code = re.findall(r"^```.*?^```|`[^`\n]+`", text, re.MULTILINE | re.DOTALL)
    return frozenset(name for span in code for name in re.findall(r"[A-Za-z]\w*", span))


@cache
def classes_by_name() -> dict[str, list[ast.ClassDef]]:
    classes: dict[str, list[ast.ClassDef]] = {}
    for source in package_sources():
        for node in source.of(ast.ClassDef):
            classes.setdefault(node.name, []).append(node)
    return classes


def is_inherited(name: str, heir: ast.ClassDef) -> bool:
    """Return whether a base class of the package, at any height, defines the method."""
    for base in heir.bases:
        named = base.value if isinstance(base, ast.Subscript) else base
        for found in classes_by_name().get(named.id, ()) if isinstance(named, ast.Name) else ():
            defined = [child.name for child in found.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)]
            if name in defined or (found is not heir and is_inherited(name, found)):
                return True
    return False


def needs_no_docstring(child: ast.stmt, parent: ast.Module | ast.ClassDef) -> bool:
    """Return whether it is an overload, a setter, a property listed under ``Attributes:``, or an override."""
    decorators = getattr(child, "decorator_list", [])
    if any(isinstance(decorator, ast.Name) and decorator.id in ("overload", "override") for decorator in decorators):
        return True
    if any(isinstance(decorator, ast.Attribute) and decorator.attr == "setter" for decorator in decorators):
        return True
    name = getattr(child, "name", "")
    if isinstance(parent, ast.ClassDef) and is_inherited(name, parent):
        return True
    is_property = any(isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in decorators)
    _, _, attributes = (ast.get_docstring(parent) or "").partition("Attributes:")
    return is_property and re.search(rf"^\s+{name}:", attributes, re.MULTILINE) is not None


def public_without_docstring(node: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    """Yield public classes below ``node``, and functions and methods of the documented API, that have no docstring."""
    for child in node.body:
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or child.name.startswith("_"):
            continue
        owner = node.name if isinstance(node, ast.ClassDef) else child.name
        is_required = isinstance(child, ast.ClassDef) or owner in documented_names()
        if is_required and ast.get_docstring(child) is None and not needs_no_docstring(child, node):
            yield f"{prefix}{child.name} (line {child.lineno})"
        if isinstance(child, ast.ClassDef):
            yield from public_without_docstring(child, f"{child.name}.")


def undocumented(source: Source) -> Iterator[str]:
    """Yield what has to have a docstring in a module and has none, the module included."""
    if source.text.strip() and ast.get_docstring(source.tree) is None:
        yield "the module"
    yield from public_without_docstring(source.tree)


def test_docstrings_of_the_public_api() -> None:
    """Modules and public classes have docstrings, and so has each function and method that docs/reference.md lists."""
    check_sources(package_sources(), undocumented)


@pytest.mark.parametrize("package", [groupcoord, groupcoord.storage.stores, groupcoord.testing])
def test_all_lists_the_public_names(package: ModuleType) -> None:
    """All names in ``__all__`` of lazy packages exist, and are the re-exports."""
    pytest.importorskip("kio")

    assert package.__all__ == public_names(package)
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


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
    ignored += [".git", "PKG-INFO"]  # of a clone; of an unpacked sdist
    found = {name for name in found if not any(fnmatch.fnmatch(name, pattern) for pattern in ignored)}

    assert found == TOP_LEVEL


def test_the_package_has_few_entries() -> None:
    """The package has few modules and folders at the top."""
    found = {source.module.split(".")[1] for source in package_sources() if "." in source.module} - {"__main__"}

    assert len(found) <= PACKAGE_ENTRIES_MAX, sorted(found)
