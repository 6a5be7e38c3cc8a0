"""Variants of a scenario: the same fleet with some keys set otherwise, by its ``[[variants]]`` or by the caller."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from typing import Any, NoReturn

from attrs import evolve

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
        table.expect("name", "set")
        name = table.text("name")
        if any(scenario.variant == name for scenario in scenarios):
            table.fail("name", f"there are two variants {name!r}")
        own = dict(flattened("", table.take("set", {})))
        changed = _changed(common, own, f"variant {name!r}: ")
        try:
            scenario = scenario_of(changed, root.lines)
        except ScenarioError as error:
            raise ScenarioError(f"variant {name!r}: {error}") from None
        scenarios.append(evolve(scenario, variant=name))
    return scenarios


def read_setting(text: str) -> tuple[str, Any]:
    """Return key and value of ``KEY=VALUE``; the value is TOML, or else the text that it is.

    Raises:
        ScenarioError: there is no key.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key:
        raise ScenarioError(f"must be KEY=VALUE, such as groups.billing.members=5, not {text!r}")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def _changed(values: Mapping[str, Any], settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    changed = copy.deepcopy(dict(values))
    for key, value in settings.items():
        _set(changed, key.split("."), value, f"{where}{key}")
    return changed


def _set(table: dict[str, Any], path: list[str], value: Any, told: str) -> None:
    """Set what lies at a path: keys, for an array of tables a table's name, its number, or ``*`` for all of them."""
    key, *rest = path
    if not rest:
        table[key] = value
    elif key in OF_KAFKA:
        settings = dict(flattened("", table.get(key, {})))
        settings[".".join(rest)] = value
        table[key] = settings
    elif key == "topics" and not isinstance(table.get(key), list):
        table.setdefault(key, {})[".".join(rest)] = value
    elif isinstance(found := table.get(key), list):
        for each in _chosen(found, rest[0], told):
            _set(each, rest[1:] or _fail(told, "needs a key behind it"), value, told)
    elif isinstance(found, dict) or (found is None and key == "cluster"):
        _set(table.setdefault(key, {}), rest, value, told)
    else:
        _fail(told, f"there is no table {key!r}")


def _chosen(tables: list[Any], which: str, told: str) -> list[dict[str, Any]]:
    named = [table for table in tables if isinstance(table, dict) and which in (EVERY, table.get("name"))]
    if not named and which.isdecimal() and int(which) < len(tables):
        return [tables[int(which)]]
    return named or _fail(told, f"there is no {which!r}; a name, a number from 0 on, or *")


def _fail(told: str, message: str) -> NoReturn:
    raise ScenarioError(f"{told}: {message}")
