"""Public API: names, signatures and exceptions, held by ``public_api.txt``, so that a change of it is seen in review.

``pytest tests/house/test_public_api.py --rewrite`` writes the list. A changed line has a line in CHANGELOG.md.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import pytest

from groupcoord.testing.museum import exhibits

from .sources import ROOT, public_names, sources

LIST = Path(__file__).with_name("public_api.txt")
REFERENCE = ROOT / "docs" / "reference.md"
DOTTED = re.compile(r"\bgroupcoord(?:\.\w+)*")
IMPORT = re.compile(r"^ *from (groupcoord[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
RAISES = re.compile(r"^Raises:\n((?: .*\n?)*)", re.MULTILINE)
ERROR = re.compile(r"^    (\w+):", re.MULTILINE)
LINE_LENGTH_MAX = 120
MADE_UP = {"groupcoord.gone", "groupcoord.tests.limited_log"}


def listed_names() -> dict[str, Any]:
    """Return what docs/reference.md lists, by dotted name: members of the modules it names, and members it names."""
    found: dict[str, Any] = {}
    for dotted in sorted(set(DOTTED.findall(REFERENCE.read_text("utf-8")))):
        owner = pkgutil.resolve_name(dotted)
        members = public_names(owner) if isinstance(owner, ModuleType) else [""]
        for name in members:
            found[f"{dotted}.{name}".rstrip(".")] = getattr(owner, name) if name else owner
    return found


def lines_of(dotted: str, value: Any) -> Iterator[str]:
    """Yield a name's lines: bases and members of an enumeration or an exception, signatures, and what is raised."""
    if not isinstance(value, type):
        yield from signature_lines(dotted, value) if inspect.isroutine(value) else [f"{dotted}: {type(value).__name__}"]
        return
    if value.__name__ != dotted.rpartition(".")[2]:
        yield f"{dotted} is {value.__name__}"
        return
    bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
    if issubclass(value, Enum):
        yield f"{dotted} is {bases}: {', '.join(value.__members__)}"
        return
    if issubclass(value, BaseException):
        yield f"{dotted} is {bases}"
        return
    yield from [dotted] if Protocol in value.__bases__ else signature_lines(dotted, value)
    for name in sorted(dir(value)):
        member = inspect.getattr_static(value, name)
        if name.startswith("_") or not is_ours(value, name):
            continue
        if isinstance(member, property | cached_property):
            function = member.fget if isinstance(member, property) else member.func
            yield f"{dotted}.{name}: {inspect.signature(function).return_annotation}"  # type: ignore[arg-type]
        elif callable(getattr(value, name)):
            yield from signature_lines(f"{dotted}.{name}", getattr(value, name))


def is_ours(owner: type, name: str) -> bool:
    """Return whether the class that defines a member belongs to this package."""
    definer = next(base for base in owner.__mro__ if name in vars(base))
    return definer.__module__.startswith("groupcoord")


def signature_lines(dotted: str, value: Any) -> Iterator[str]:
    """Yield the signature of a function or class: a line, or one for each parameter if it were too long."""
    try:
        signature = inspect.signature(value)
    except ValueError:  # of a builtin
        yield dotted
        return
    returned = (
        ""
        if isinstance(value, type) or not isinstance(signature.return_annotation, str)
        else (f" -> {signature.return_annotation}")
    )
    raised = ", ".join(errors_of(value))
    end = returned + (f" raises {raised}" if raised else "")
    parameters = list(parameters_of(signature))
    line = f"{dotted}({', '.join(parameters)}){end}"
    if len(line) <= LINE_LENGTH_MAX:
        yield line
        return
    yield f"{dotted}(...){end}"
    yield from (f"    {parameter}" for parameter in parameters)


def parameters_of(signature: inspect.Signature) -> Iterator[str]:
    """Yield each parameter of a signature with its annotation and its default, and the marks between their kinds."""
    last = None
    for parameter in signature.parameters.values():
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and last not in {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL}:
            yield "*"
        last = parameter.kind
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        text = stars + parameter.name
        if isinstance(parameter.annotation, str):
            text += f": {parameter.annotation}"
        if parameter.default is not parameter.empty:
            default = repr(parameter.default)
            text += " = " + ("..." if " at 0x" in default else default)
        yield text


def errors_of(value: Any) -> list[str]:
    """Return the exceptions in the section Raises of a docstring."""
    section = RAISES.search(inspect.getdoc(value) or "")
    return ERROR.findall(section[1]) if section else []


def test_pages_use_the_public_api_only() -> None:
    """Examples and pages import from modules and names that the reference names."""
    public = set(DOTTED.findall(REFERENCE.read_text("utf-8")))
    files = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.py")]
    found = {
        f"{path.name}: {module}.{name}"
        for path in files
        for module, names in IMPORT.findall(path.read_text("utf-8"))
        for name in re.findall(r"\w+", names)
        if module not in public and f"{module}.{name}" not in public
    }

    assert sorted(found) == []


def test_public_api(pytestconfig: pytest.Config) -> None:
    """The list of the public API agrees with docs/reference.md and the code."""
    names = listed_names()
    text = "".join(f"{line}\n" for dotted, value in names.items() for line in lines_of(dotted, value))
    if pytestconfig.getoption("rewrite"):
        LIST.write_text(text, "utf-8")

    assert LIST.read_text("utf-8") == text, "the public API changes: --rewrite writes the list; see contributing.md"


def exists(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_names_in_strings_exist() -> None:
    """Dotted names in strings of tests, and the functions that exhibits replace, are names of the package."""
    tests = [source for source in sources() if source.name.startswith("tests/")]
    names = {node.value for source in tests for node in source.of(ast.Constant) if isinstance(node.value, str)}
    names = {name for name in names if "." in name and DOTTED.fullmatch(name)} - MADE_UP
    names |= {f"{shown.plant.module}.{shown.plant.function}" for shown in exhibits() if shown.plant}
    assert [name for name in sorted(names) if not exists(name)] == []
