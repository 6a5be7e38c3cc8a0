"""The reference names everything that is public, and every setting is described."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

import groupcoord
import groupcoord.conformance
import groupcoord.host
import groupcoord.member.assignors
import groupcoord.messages
import groupcoord.testing
import groupcoord.wire
from groupcoord import GroupCoordinator, MemoryLogStore
from groupcoord.cli import COMMANDS
from groupcoord.config import SETTINGS
from groupcoord.core import events
from groupcoord.log_store import LogStoreError
from tests.subclasses import subclasses
from tests.tables import as_one_test

from ..house.sources import public_names
from .generated import rows_of_settings
from .markdown import DOCS

REFERENCE = DOCS / "reference.md"
TEXT = REFERENCE.read_text("utf-8")


def is_named(name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", TEXT) is not None


def test_every_setting_is_described() -> None:
    """The site's table has a row for each setting, with its key, default, bounds and description."""
    rows = list(rows_of_settings())

    assert [row[0] for row in rows] == [setting.key for setting in SETTINGS.values()]
    assert [row[0] for row in rows if not row[4].endswith(".")] == []


@as_one_test
@pytest.mark.parametrize(
    "module",
    [
        *(groupcoord, groupcoord.messages, groupcoord.wire, groupcoord.host, groupcoord.conformance),
        *(groupcoord.testing, groupcoord.member.assignors),
    ],
    ids=lambda module: module.__name__,
)
def test_every_public_name_is_named(module: ModuleType) -> None:
    """The reference names everything that a public module exports."""
    internal = {"RequestHeader", "VersionRange", "WireRequest", "WireResponse", "Answered", "Topic"}
    missing = [name for name in public_names(module) if not is_named(name) and name not in internal]

    assert not missing, ", ".join(missing)


@pytest.mark.parametrize("described", [GroupCoordinator, MemoryLogStore], ids=lambda described: described.__name__)
def test_every_public_method_is_named(described: type) -> None:
    """Methods and properties of the classes that users hold in their hands are described."""
    public = [name for name in vars(described) if not name.startswith("_") and not name.isupper()]
    missing = [name for name in public if not is_named(name)]
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
    pytest.importorskip("typer")
    from typer.main import get_command

    from groupcoord.cli import make_app

    section = TEXT.partition(f"\n### groupcoord {command}\n")[2].partition("\n##")[0]
    group = get_command(make_app([command]))
    options = [option for parameter in group.commands[command].params for option in parameter.opts]  # type: ignore[attr-defined]
    missing = [option for option in options if option.startswith("--") and option not in section]

    assert not missing, ", ".join(missing)
