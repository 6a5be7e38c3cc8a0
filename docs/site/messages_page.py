"""Sections of the site's page of messages, generated from their classes after docs/messages.md."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum, EnumType
from typing import Any

import attrs

from groupcoord import messages
from groupcoord.messages import Request
from tests.house.sources import public_names


def sections() -> str:
    """Return all sections as Markdown."""
    public = {name: getattr(messages, name) for name in public_names(messages)}
    classes = {name: kind for name, kind in public.items() if isinstance(kind, type) and kind is not Request}
    requests = sorted(name for name, kind in classes.items() if issubclass(kind, Request))
    exchanged = [name for request in requests for name in (request, f"{request}Response")]
    parts = sorted(classes.keys() - set(exchanged))
    found = ["## Requests and responses\n", *(_section(classes[name]) for name in exchanged)]
    return "\n".join([*found, "## Parts\n", *(_section(classes[name]) for name in parts)])


def _section(kind: type) -> str:
    """Return the docstring of a class and a table of its fields."""
    text, told = _docstring(kind)
    if isinstance(kind, EnumType):
        rows = [f"| `{name}` | {member.value!r} |" for name, member in kind.__members__.items()]
        return f"### {kind.__name__}\n\n{text}\n\n| name | value |\n|---|---|\n" + "\n".join(rows) + "\n"
    lines = [f"### {kind.__name__}\n", f"{text}\n"] if text else [f"### {kind.__name__}\n"]
    lines += ["| field | type | default | |", "|---|---|---|---|"]
    for name, type_name, default in _fields(kind):
        shown = "" if default is inspect.Parameter.empty else f"`{_value(default)}`"
        lines.append(f"| `{name}` | `{type_name}` | {shown} | {told.get(name, '')} |".replace("  |", " |"))
    return "\n".join(lines) + "\n"


def _fields(kind: type) -> Iterator[tuple[str, str, Any]]:
    """Yield names, types and defaults of a class's fields."""
    for parameter in inspect.signature(kind).parameters.values():
        default = parameter.default
        if default is attrs.NOTHING:  # a factory's
            default = ()
        annotation = getattr(parameter.annotation, "__forward_arg__", parameter.annotation)  # that of a named tuple
        yield parameter.name, str(annotation).replace("|", "\\|"), default


def _value(default: Any) -> str:
    return f"{type(default).__name__}.{default.name}" if isinstance(default, Enum) else repr(default)


def _docstring(kind: type) -> tuple[str, dict[str, str]]:
    """Return the text of a docstring, and the text of each attribute or argument."""
    text = inspect.cleandoc(kind.__doc__ or "")
    if text.startswith(f"{kind.__name__}("):  # what a named tuple has without one
        text = ""
    text, _, attributes = re.sub(r"^Args:$", "Attributes:", text, flags=re.MULTILINE).partition("Attributes:")
    told: dict[str, str] = {}
    names: list[str] = []
    for line in attributes.splitlines():
        match = re.fullmatch(r" {4}([\w, ]+): (.*)", line)
        if match:
            names = match[1].split(", ")
            told.update(dict.fromkeys(names, _plain(match[2])))
        elif line.startswith(" " * 8):
            told.update((name, f"{told[name]} {_plain(line.strip())}") for name in names)
    return _plain(" ".join(text.split())), told


def _plain(text: str) -> str:
    """Return a docstring as Markdown."""
    text = re.sub(r":\w+:`~?([^`]+)`", lambda match: f"`{match[1].rpartition('.')[2]}`", text)
    return text.replace("``", "`").replace("|", "\\|")
