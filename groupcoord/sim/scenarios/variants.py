"""Variants of a scenario: the same fleet with other values of some keys, by ``[[variants]]`` or by the caller."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from attrs import evolve

from groupcoord.config.files import parse_toml
from groupcoord.sim.scenarios.file import Scenario, load_toml, scenario_of
from groupcoord.sim.scenarios.table_reader import ScenarioError, TableReader, flattened
from groupcoord.sim.scenarios.toml_lines import line_numbers

EVERY = "*"
OF_KAFKA = ("config", "member")
"""Tables whose keys are Kafka's, with dots in them."""


def parse_variants(text: str, settings: Mapping[str, Any] | None = None) -> list[Scenario]:
    """Return the scenarios that a file's text describes: one for each of its variants, or the one that it is.

    Args:
        text: the file's.
        settings: keys that are set otherwise in all of them, as :func:`read_setting` reads them.

    Raises:
        ScenarioError: the text is no TOML, or does not describe a scenario; the message names key and line.
    """
    values = load_toml(text)
    root = TableReader(values, (), line_numbers(text))
    common = _changed(values, settings or {}, "")
    tables = root.tables("variants", [])
    if not tables:
        return [scenario_of(common, root.lines)]
    scenarios: list[Scenario] = []
    for table in tables:
        table.expect("name", "set", "unset")
        name = table.text("name")
        if any(scenario.variant == name for scenario in scenarios):
            table.fail("name", f"there are two variants {name!r}")
        own = dict(flattened("", table.take("set", {})))
        changed = _changed(common, own, f"variant {name!r}: ")
        for key in table.names("unset") if table.take("unset", None) is not None else ():
            _unset(changed, key, f"variant {name!r}: {key}")
        try:
            scenario = scenario_of(changed, root.lines)
        except ScenarioError as error:
            if str(error) == _error_of(common, root):
                raise
            raise ScenarioError(f"variant {name!r}: {error}") from None
        scenarios.append(evolve(scenario, variant=name))
    return scenarios


def _error_of(values: Mapping[str, Any], root: TableReader) -> str:
    """Return what is wrong with the scenario without its variants; empty if nothing is."""
    try:
        scenario_of(values, root.lines)
    except ScenarioError as error:
        return str(error)
    return ""


def read_setting(text: str) -> tuple[str, Any]:
    """Return key and value of ``KEY=VALUE``; the value is TOML, or else the text that it is.

    Raises:
        ScenarioError: there is no key.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key:
        raise ScenarioError(f"must be KEY=VALUE, such as groups.billing.members=5, not {text!r}")
    try:
        return key, parse_toml(f"value = {value}")["value"]
    except ValueError:
        return key, value


def _changed(values: Mapping[str, Any], settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    changed = copy.deepcopy(dict(values))
    for key, value in settings.items():
        for table, name in _places(changed, key.split("."), f"{where}{key}"):
            table[name] = value
    return changed


def _unset(values: dict[str, Any], key: str, told: str) -> None:
    """Remove a key wherever it is set.

    Raises:
        ScenarioError: it is set nowhere.
    """
    places = [(table, name) for table, name in _places(values, key.split("."), told) if name in table]
    for table, name in places:
        del table[name]
    if not places:
        _fail(told, "is not set, and can't be unset")


def _places(table: dict[str, Any], path: list[str], told: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each table that a path leads to, with the key there.

    A path has keys; for an array of tables a table's name, its number, or ``*`` for all of them.
    """
    key, *rest = path
    if not rest:
        yield table, key
    elif key in OF_KAFKA:
        table[key] = dict(flattened("", table.get(key, {})))
        yield table[key], ".".join(rest)
    elif key == "topics" and not isinstance(table.get(key), list):
        yield table.setdefault(key, {}), ".".join(rest)
    elif isinstance(found := table.get(key), list):
        for each in _chosen(found, rest[0], told):
            yield from _places(each, rest[1:] or _fail(told, "needs a key behind it"), told)
    elif isinstance(found, dict) or (found is None and key == "cluster"):
        yield from _places(table.setdefault(key, {}), rest, told)
    else:
        _fail(told, f"there is no table {key!r}")


def _chosen(tables: list[Any], which: str, told: str) -> list[dict[str, Any]]:
    named = [table for table in tables if isinstance(table, dict) and which in (EVERY, table.get("name"))]
    if not named and which.isdecimal() and int(which) < len(tables):
        return [tables[int(which)]]
    return named or _fail(told, f"there is no {which!r}; a name, a number from 0 on, or *")


def _fail(told: str, message: str) -> NoReturn:
    raise ScenarioError(f"{told}: {message}")
