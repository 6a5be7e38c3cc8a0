"""A kind of group is a row in a table: nothing but its own folder and the table asks of which kind a group is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from groupcoord import GroupCoordinator

from .sources import PACKAGE, Source, check_sources, package_sources

HOMES = (
    "core/groups/classic/",
    "core/groups/consumer/",
    "core/groups/base/",
    "core/groups/share/",
    "core/groups/streams/",
    "core/groups/conversion.py",
    "core/groups/group_types.py",
)
"""Who may know: the folders of the kinds, that of what three of them share, and the table."""

FREE_OF_KINDS = (
    "administration",
    "refusals",
    "handler_context",
    "groups/group",
    "log/log_partition",
    "partition",
)
"""Modules of the core that serve groups of all kinds, and so import the classes of none."""


def kind_classes() -> set[str]:
    coordinator = GroupCoordinator()
    coordinator.load_all()
    partition = coordinator.partition(0)
    assert partition is not None
    classes = {each for kind in partition._kinds.rows for each in (kind.group_class, type(kind))}
    return {base.__name__ for each in classes for base in each.__mro__ if base.__module__.startswith("groupcoord")}


def names_in(node: ast.AST) -> set[str]:
    """Return the last parts of all names in an expression or a pattern."""
    found = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    return found | {name.attr for name in ast.walk(node) if isinstance(name, ast.Attribute)}


def classes_asked_for(source: Source) -> Iterator[tuple[int, ast.AST]]:
    """Yield what a file compares the class of something with, and in which line."""
    for node in source.of(ast.Call, ast.Compare, ast.MatchClass):
        match node:
            case ast.Call(func=ast.Name("isinstance" | "issubclass"), args=[_, tested]):
                yield node.lineno, tested
            case ast.Compare() if names_in(node) & {"type", "__class__"}:
                yield node.lineno, node
            case ast.MatchClass():
                yield node.lineno, node.cls


def questions_of_kind(source: Source, classes: set[str]) -> Iterator[str]:
    """Yield each place at which a file asks of which kind a group is."""
    if not source.path.relative_to(PACKAGE).as_posix().startswith(HOMES):
        for line, tested in classes_asked_for(source):
            for name in sorted(names_in(tested) & classes):
                yield f"line {line} asks whether something is a {name}: let the group or its kind answer"


def test_nobody_asks_of_which_kind_a_group_is() -> None:
    """Outside of the kinds' own folders and the table, no test is for the class of a group."""
    classes = kind_classes()
    assert {"GroupMetadata", "ConsumerGroup", "ShareGroup", "StreamsGroup", "ModernGroup", "ShareGroups"} <= classes
    check_sources(package_sources(), lambda source: questions_of_kind(source, classes))


def test_what_serves_all_kinds_names_none() -> None:
    """Modules for all group types import neither the group of one type nor its handlers."""
    folders = ("classic", "consumer", "share", "streams")
    kinds = tuple(f"groupcoord.core.groups.{folder}." for folder in folders)

    def complaints(source: Source) -> Iterator[str]:
        yield from (f"imports {name}" for name in sorted(source.imports) if name.startswith(kinds))

    files = {PACKAGE / "core" / f"{name}.py" for name in FREE_OF_KINDS}
    checked = [source for source in package_sources() if source.path in files]
    assert len(checked) == len(files)
    check_sources(checked, complaints)
