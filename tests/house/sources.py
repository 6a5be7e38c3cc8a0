"""Python files of the checkout, parsed."""

from __future__ import annotations

import ast
import gc
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "groupcoord"
FOLDERS = ("groupcoord", "tests", "examples")
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_STRINGS = [rf"{quote}(?:[^\\]|\\.)*?{quote}" for quote in ('"""', "'''", '"', "'")]
STRING_OR_COMMENT = re.compile("|".join([*_STRINGS, r"#[^\n]*"]), re.DOTALL)


class Source(NamedTuple):
    """One Python file."""

    path: Path
    text: str
    tree: ast.Module
    nodes: Mapping[type[ast.AST], list[Any]]
    """All nodes of the tree by their type."""

    def of(self, *kinds: type[ast.AST]) -> list[Any]:
        return [node for kind in kinds for node in self.nodes.get(kind, ())]

    @property
    def name(self) -> str:
        """Its path below the checkout."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def module(self) -> str:
        """The dotted name of the module."""
        dotted = self.path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        return dotted.removesuffix(".__init__")

    @property
    def imports(self) -> frozenset[str]:
        """The dotted names of everything that it imports, wherever in it."""
        return frozenset(imported_modules(self.of(ast.Import, ast.ImportFrom)))

    @property
    def imports_at_run_time(self) -> frozenset[str]:
        """Those outside of ``if TYPE_CHECKING``."""
        guards = [node for node in self.of(ast.If) if ast.unparse(node.test) == "TYPE_CHECKING"]
        for_types = {node for guard in guards for node in guard.body}
        return frozenset(imported_modules({*self.of(ast.Import, ast.ImportFrom)} - for_types))


@cache
def sources() -> tuple[Source, ...]:
    """Return every Python file of the checkout's own folders, in order.

    Their million nodes stay, and are made and left without collecting garbage, which would take most of the time.
    """
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    gc.disable()
    try:
        return tuple(_parsed(path) for path in paths)
    finally:
        gc.freeze()
        gc.enable()


def _parsed(path: Path) -> Source:
    text = path.read_text("utf-8")
    tree = ast.parse(text, path)
    nodes: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
    for node in ast.walk(tree):
        nodes[type(node)].append(node)
    return Source(path, text, tree, nodes)


@cache
def comments(text: str) -> tuple[str, ...]:
    """Return the comments of a file; ``tokenize`` would take twenty times as long."""
    return tuple(found for found in STRING_OR_COMMENT.findall(text) if found.startswith("#"))


def package_sources() -> tuple[Source, ...]:
    return tuple(source for source in sources() if source.path.is_relative_to(PACKAGE))


def check_sources(checked: Iterable[Source], complaints: Callable[[Source], Iterable[str]]) -> None:
    """Check files against a rule, and report all that break it. Args: checked: the files. complaints: returns the
    problems of one file. Raises: AssertionError: there are problems; each is a line with the name of its file.
    """
    found = [f"{source.name}: {complaint}" for source in checked for complaint in complaints(source)]
    assert not found, "\n".join(["", *found])


def imported_modules(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the dotted name of everything that the nodes which are imports name; ``from a import b`` is ``a.b``."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports inside the package are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def public_names(module: ModuleType) -> list[str]:
    """Return the classes and functions that a module defines, and what it re-exports by ``import Name as Name``."""
    tree = ast.parse(inspect.getsource(module))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in imports for alias in node.names if alias.asname == alias.name]
    names += [node.name for node in tree.body if isinstance(node, DEFINITIONS)]
    return sorted(name for name in names if not name.startswith("_"))


def import_graph() -> dict[str, set[str]]:
    """Return for each module of the package those others of it that it imports; within a folder only at run time."""
    modules = {source.module for source in package_sources()}
    graph = {}
    for source in package_sources():
        folder = ".".join(source.module.split(".")[:2])
        names = {name for name in source.imports if not name.startswith(f"{folder}.")} | source.imports_at_run_time
        graph[source.module] = {_module_of(name, modules) for name in names} - {"", source.module}
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
