"""What the house tests look at: the checkout's Python files, parsed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "groupcoord"
FOLDERS = ("groupcoord", "tests", "examples")


class Source(NamedTuple):
    """One Python file."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """Its path below the checkout."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def module(self) -> str:
        """The dotted name of the module."""
        dotted = self.path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        return dotted.removesuffix(".__init__")


@cache
def sources() -> tuple[Source, ...]:
    """Return every Python file of the checkout's own folders, in order."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return tuple(Source(path, text := path.read_text("utf-8"), ast.parse(text, path)) for path in paths)


def package_sources() -> tuple[Source, ...]:
    """Return the files of the package alone."""
    return tuple(source for source in sources() if source.path.is_relative_to(PACKAGE))


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted name of everything that a file imports, wherever in it; ``from a import b`` is ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports inside the package are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_graph() -> dict[str, set[str]]:
    """Return for each module of the package those others of it that the module imports, wherever in its file."""
    modules = {source.module for source in package_sources()}
    graph = {}
    for source in package_sources():
        imported = {_module_of(name, modules) for name in imported_modules(source.tree)}
        graph[source.module] = {name for name in imported if name and name != source.module}
    return graph


def _module_of(name: str, modules: set[str]) -> str:
    """Return the module that a dotted name leads to; empty if it is none of these."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def circles(graph: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """Return the largest sets of names each of which reaches all others of its set."""
    reached = {name: _reached_from(name, graph) for name in graph}
    found = {frozenset(other for other in reached[name] if name in reached.get(other, ())) for name in graph}
    return sorted((circle for circle in found if circle), key=sorted)


def _reached_from(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph.get(waiting.pop(), ()):
            if name not in reached:
                reached.add(name)
                waiting.append(name)
    return reached
