"""The reference names everything that is public, and its table of settings is that of ``Config``."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from attrs import fields

import groupcoord
import groupcoord.conformance
import groupcoord.host
import groupcoord.member.assignors
import groupcoord.messages
import groupcoord.testing
import groupcoord.wire
from groupcoord import Config, GroupCoordinator, MemoryLogStore
from groupcoord.cli import COMMANDS
from groupcoord.config import key_of, kind_of
from groupcoord.config.group_settings import ConsumerGroupSettings, ShareGroupSettings, StreamsGroupSettings
from groupcoord.config.settings import Number
from groupcoord.core import events
from groupcoord.log_store import LogStoreError
from tests.subclasses import subclasses
from tests.tables import as_one_test

from .markdown import DOCS, ROOT, table_rows

REFERENCE = DOCS / "reference.md"
TEXT = REFERENCE.read_text("utf-8")
NO_EFFECT = "*no effect*"


def is_named(name: str) -> bool:
    """Tell whether the reference names this."""
    return re.search(rf"\b{re.escape(name)}\b", TEXT) is not None


def test_the_table_of_settings_is_that_of_config() -> None:
    """Every key with its default and its bounds, in the order of Config; nothing else."""
    expected = []
    for field in fields(Config):
        kind = kind_of(field.name)
        bounds = [str(kind.at_least), str(kind.at_most)] if isinstance(kind, Number) else ["", ""]
        expected.append([key_of(field.name), kind.text(field.default), *bounds])

    assert [row[:4] for row in table_rows(REFERENCE, "Settings")] == expected


@cache
def words_of_the_code() -> frozenset[str]:
    """Return the words of the package, but for those of the settings' own module; and settings read by kind."""
    paths = (path for path in (ROOT / "groupcoord").rglob("*.py") if path.name != "config.py")
    return frozenset(word for path in paths for word in re.findall(r"\w+", path.read_text("utf-8"))) | read_by_kind()


class NotingConfig:
    """Has every setting that is asked for, and notes which these are."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return (1,)  # of the settings that are asked for here, some are lists


def read_by_kind() -> set[str]:
    """Return the settings that are put together of a kind of group and what a group may have of its own."""
    config: Any = NotingConfig()
    for kind in (ConsumerGroupSettings, ShareGroupSettings, StreamsGroupSettings):
        kind.of(config)
    return config.read & {field.name for field in fields(Config)}


@as_one_test
@pytest.mark.parametrize("row", list(table_rows(REFERENCE, "Settings")), ids=lambda row: row[0])
def test_settings_without_effect_are_marked(row: list[str]) -> None:
    """A key is marked as without effect if no code reads it, and only then."""
    is_read = row[0].replace(".", "_") in words_of_the_code()

    assert row[4].startswith(NO_EFFECT) != is_read


@as_one_test
@pytest.mark.parametrize(
    "module",
    [
        *(groupcoord, groupcoord.messages, groupcoord.wire, groupcoord.host, groupcoord.conformance),
        *(groupcoord.testing, groupcoord.member.assignors),
    ],
    ids=lambda module: module.__name__,
)
def test_every_public_name_is_named(module: object) -> None:
    """What a public module exports is somewhere in the reference."""
    exported: list[str] = module.__all__  # type: ignore[attr-defined]
    internal = {"RequestHeader", "VersionRange", "WireRequest", "WireResponse", "Answered", "Topic"}
    missing = [name for name in exported if not is_named(name) and name not in internal]

    assert not missing, ", ".join(missing)


@pytest.mark.parametrize("described", [GroupCoordinator, MemoryLogStore], ids=lambda described: described.__name__)
def test_every_public_method_is_named(described: type) -> None:
    """Methods and properties of the classes that users hold in their hands are described."""
    missing = [name for name in vars(described) if not name.startswith("_") and not is_named(name)]
    missing = [name for name in missing if name not in {"append", "read"}]

    assert not missing, ", ".join(missing)


def test_every_kind_of_failure_and_event_is_named() -> None:
    """The errors that a log store raises, and the events, have their lines."""
    errors = [error.__name__ for error in subclasses(LogStoreError) if error.__module__ == "groupcoord.errors"]
    kinds = [event.__name__ for event in subclasses(events.Event) if not event.__name__.startswith("_")]
    missing = [name for name in [*errors, *kinds] if not is_named(name)]

    assert errors
    assert kinds
    assert not missing, ", ".join(missing)


def test_every_command_has_a_section() -> None:
    """Each subcommand is described under its name."""
    for command in COMMANDS:
        assert f"\n### groupcoord {command}\n" in TEXT


@as_one_test
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_option_is_named(command: str) -> None:
    """What a command's ``--help`` offers is in its section."""
    pytest.importorskip("typer")
    from typer.main import get_command

    from groupcoord.cli import make_app

    section = TEXT.partition(f"\n### groupcoord {command}\n")[2].partition("\n##")[0]
    group = get_command(make_app([command]))
    options = [option for parameter in group.commands[command].params for option in parameter.opts]  # type: ignore[attr-defined]
    missing = [option for option in options if option.startswith("--") and option not in section]

    assert not missing, ", ".join(missing)
