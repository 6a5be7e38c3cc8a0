"""Tables as one test each: every case is tried, and those that fail are all named.

Each item costs pytest and its workers some milliseconds, whatever it does, and most cases of a table take less.
``pytest --case PART`` tries those cases alone whose name contains that.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

SHOWN_IN_FULL = 5
"""Of so many cases that fail there is a traceback; of the others the name and the message."""

MESSAGE_LENGTH_MAX = 200
NAME_LENGTH_MAX = 100


class CasesFailed(ExceptionGroup):
    """Some cases of a table fail; the message names each of them."""


class Choice:
    """Selection of cases: those whose name contains ``part``."""

    part = ""


def check_all(cases: Iterable[tuple[str, Any]], check: Callable[[Any], object]) -> None:
    """Check each case, also after failures. Args: cases: each with its name. check: raises an exception for a case that
    fails. Raises: CasesFailed: of those that ``--case`` chooses, some fail.
    """
    chosen = [(name, case) for name, case in cases if Choice.part in name]
    if Choice.part and not chosen:
        pytest.skip(f"no case has {Choice.part!r} in its name")
    failed = []
    for name, case in chosen:
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"in case {name}")
            failed.append((name, error if isinstance(error, Exception) else AssertionError(str(error))))
    if failed:
        told = "".join(f"\n  {name}: {_in_a_line(error)}" for name, error in failed)
        message = f"{len(failed)} of {len(chosen)} cases fail:{told}\n"
        raise CasesFailed(message, [error for _, error in failed[:SHOWN_IN_FULL]])


def _in_a_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:MESSAGE_LENGTH_MAX]


def as_one_test(test: Callable[..., None]) -> Callable[..., None]:
    """Make one test of what ``pytest.mark.parametrize``, below this, would make one of each case.

    The cases share what fixtures give the function, which they must leave as it was; but for ``tmp_path``, of which
    each gets a folder of its own.
    """
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    test.pytestmark = [mark for mark in test.pytestmark if mark not in marks]  # type: ignore[attr-defined]
    cases = _named(_product([list(_rows(*mark.args, **mark.kwargs)) for mark in marks]))

    @functools.wraps(test)
    def test_all(**fixtures: Any) -> None:
        folders = map(str, itertools.count())

        def check(values: dict[str, Any]) -> None:
            given = {**fixtures, **values}
            if "tmp_path" in fixtures:
                given["tmp_path"] = Path(fixtures["tmp_path"], next(folders))
                given["tmp_path"].mkdir()
            test(**given)

        check_all(cases, check)

    signature = inspect.signature(test)
    of_cases = cases[0][1].keys() if cases else ()
    fixtures = [parameter for name, parameter in signature.parameters.items() if name not in of_cases]
    test_all.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
    return test_all


def _rows(names: str | Iterable[str], rows: Iterable[Any], *, ids: Any = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of one ``parametrize``: how pytest would call each, and its values by parameter."""
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    for number, row in enumerate(rows):
        name = None if ids is None or callable(ids) else ids[number]
        values = row if len(columns) > 1 else (row,)
        if isinstance(row, type(pytest.param())):
            assert not row.marks, "a case has no marks of its own where all are one test"
            name, values = row.id or name, row.values
        by_column = dict(zip(columns, values, strict=True))
        say = ids if callable(ids) else None
        yield name or "-".join(_name(by_column[column], column, number, say) for column in columns), by_column


def _name(value: object, column: str, number: int, say: Callable[[object], object] | None) -> str:
    """Return what a value is called in the name of its case: by what is given for that, or by what it is."""
    said = None if say is None else say(value)
    told = value if said is None else said
    if isinstance(told, str | bytes | int | float | None | Enum) and len(str(told)) <= NAME_LENGTH_MAX:
        return str(told)
    return getattr(told, "__name__", f"{column}{number}")


def _product(tables: list[list[tuple[str, dict[str, Any]]]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the product of the rows of several tables."""
    for rows in itertools.product(*tables):
        yield "-".join(name for name, _ in rows), {key: value for _, values in rows for key, value in values.items()}


def _named(cases: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    listed = list(cases)
    counts = Counter(name for name, _ in listed)
    return [(name if counts[name] == 1 else f"{name}-{number}", case) for number, (name, case) in enumerate(listed)]
