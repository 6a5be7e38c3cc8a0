"""Matching of responses with recorded ones: variables, unordered lists, and the first difference.

Expected bodies are plain data in which text may be a variable:

* ``$g`` and ``$g…``: the group id of this run, and ids that start with it;
* ``$mN``: a member id; ``$pN``: a producer id. They keep the first value they match, and differ from each other;
* ``$topic:NAME``: a topic id; for a topic created by the transcript, the first value it matches;
* ``$any``: matches everything.

Lists match in any order. Fields missing in the expected body are not compared, nor those in :data:`IGNORED_FIELDS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from attrs import frozen

from groupcoord.conformance.entities import Plain

Bindings = Mapping[str, str | int]
ANYTHING = "$any"
IGNORED_FIELDS = frozenset({"throttle_time", "error_message", "host", "port", "node_id", "topic_config_error_code"})
"""Fields that differ between correct servers, such as addresses and wording."""

MISSING = "(missing)"
_VARIABLE = re.compile(r"\$(?:any|g.*|m\d+|p\d+|topic:.+)", re.DOTALL)
_MAX_CHOICES = 20_000


class TooAmbiguousError(Exception):
    """The search through the orders of a list was abandoned."""


@frozen
class Difference:
    """First difference from the recorded response.

    Attributes:
        path: path from the body, such as ``members[0].metadata``; empty for the body itself.
        expected: recorded value; variables have their values.
        got: value of the server.
    """

    path: str
    expected: Plain
    got: Plain


VariableKind = Literal["any", "group", "member", "producer", "topic"]


def variable_kind(text: str) -> VariableKind | None:
    if not text.startswith("$"):
        return None
    if not _VARIABLE.fullmatch(text):
        raise ValueError(f"{text!r} is no variable; there are $g…, $m1, $p1, $topic:NAME and $any")
    if text == ANYTHING:
        return "any"
    kinds: dict[str, VariableKind] = {"g": "group", "m": "member", "p": "producer", "t": "topic"}
    return kinds[text[1]]


def substitute(body: Plain, bindings: Bindings) -> Plain:
    if isinstance(body, dict):
        return {key: substitute(value, bindings) for key, value in body.items()}
    if isinstance(body, list):
        return [substitute(element, bindings) for element in body]
    if isinstance(body, str) and body.startswith("$"):
        return _value_of(body, bindings)
    return body


def in_order(body: Plain) -> Plain:
    """Return a body with lists as objects by index, which match only in order."""
    if isinstance(body, dict):
        return {name: in_order(value) for name, value in body.items()}
    if isinstance(body, list):
        return {"length": len(body), **{str(index): in_order(value) for index, value in enumerate(body)}}
    return body


def with_messages(body: Plain) -> Plain:
    """Return a body with error messages under a name that is compared."""
    if isinstance(body, dict):
        return {"message" if name == "error_message" else name: with_messages(each) for name, each in body.items()}
    return [with_messages(each) for each in body] if isinstance(body, list) else body


def match(expected: Plain, got: Plain, bindings: Bindings) -> Bindings | None:
    return next(_Search().matches(expected, got, dict(bindings)), None)


def first_difference(expected: Plain, got: Plain, bindings: Bindings) -> Difference | None:
    if match(expected, got, bindings) is not None:
        return None
    return _explain(expected, got, dict(bindings), "")


class _Search:
    """Search for a match, which counts pairs to bound the work on a hostile list."""

    def __init__(self) -> None:
        self._choices = 0

    def matches(self, expected: Plain, got: Plain, bindings: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if isinstance(expected, dict):
            if isinstance(got, dict):
                yield from self._fields(_by_cost(expected), 0, got, bindings)
        elif isinstance(expected, list):
            if isinstance(got, list) and len(expected) == len(got):
                yield from self._elements(expected, got, bindings)
        elif isinstance(expected, str) and expected.startswith("$"):
            bound = _bind(expected, got, bindings)
            if bound is not None:
                yield bound
        elif _same(expected, got):
            yield bindings

    def _fields(
        self, fields: list[tuple[str, Plain]], index: int, got: dict[str, Plain], bindings: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        if index == len(fields):
            yield bindings
            return
        name, expected = fields[index]
        if name in got:
            for bound in self.matches(expected, got[name], bindings):
                yield from self._fields(fields, index + 1, got, bound)

    def _elements(self, expected: list[Plain], got: list[Plain], bindings: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Pair every expected element, depth first, with an explicit stack for long lists."""
        if not expected:
            yield bindings
            return
        is_used = [False] * len(got)
        chosen: list[int] = []
        levels = [self._candidates(expected[0], got, is_used, bindings)]
        while levels:
            choice = next(levels[-1], None)
            if choice is None:
                levels.pop()
                if chosen:
                    is_used[chosen.pop()] = False
                continue
            index, bound = choice
            if len(levels) == len(expected):
                yield bound
                continue
            is_used[index] = True
            chosen.append(index)
            levels.append(self._candidates(expected[len(levels)], got, is_used, bound))

    def _candidates(
        self, expected: Plain, got: list[Plain], is_used: list[bool], bindings: dict[str, Any]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        literals = _literals(expected)
        tried: list[Plain] = []
        for index, candidate in enumerate(got):
            if is_used[index] or _contradicts(literals, candidate) or candidate in tried:
                continue
            for bound in self.matches(expected, candidate, bindings):
                if not tried or tried[-1] is not candidate:  # it may match in several ways
                    tried.append(candidate)
                self._choices += 1
                if self._choices > _MAX_CHOICES + len(got):
                    raise TooAmbiguousError("the lists can be matched in too many ways")
                yield index, bound


def _literals(expected: Plain) -> list[tuple[str, Plain]]:
    if not isinstance(expected, dict):
        return []
    return [
        (name, value)
        for name, value in expected.items()
        if name not in IGNORED_FIELDS
        and not isinstance(value, dict | list)
        and not (isinstance(value, str) and value.startswith("$"))
    ]


def _contradicts(literals: list[tuple[str, Plain]], got: Plain) -> bool:
    """Return whether a scalar field differs, which excludes most candidates quickly."""
    return isinstance(got, dict) and any(got.get(name, MISSING) != value for name, value in literals)


def _by_cost(expected: dict[str, Plain]) -> list[tuple[str, Plain]]:
    fields = [(name, value) for name, value in expected.items() if name not in IGNORED_FIELDS]
    return sorted(fields, key=lambda field: isinstance(field[1], dict | list))


def _same(expected: Plain, got: Plain) -> bool:
    return bool(expected == got) and isinstance(expected, bool) == isinstance(got, bool)  # True equals 1


def _value_of(variable: str, bindings: Bindings) -> str | int:
    if variable in bindings:
        return bindings[variable]
    if variable_kind(variable) == "group":
        return f"{bindings['$g']}{variable[2:]}"
    raise KeyError(variable)


def _bind(variable: str, got: Plain, bindings: dict[str, Any]) -> dict[str, Any] | None:
    kind = variable_kind(variable)
    if kind == "any":
        return bindings
    if kind == "group" or variable in bindings:
        return bindings if _same(_value_of(variable, bindings), got) else None
    if kind == "producer":
        fits = isinstance(got, int) and not isinstance(got, bool) and got >= 0
    else:
        fits = isinstance(got, str) and got != ""
    if not fits or got in bindings.values():
        return None
    return {**bindings, variable: got}


def _explain(expected: Plain, got: Plain, bindings: dict[str, Any], path: str) -> Difference:
    if isinstance(expected, dict) and isinstance(got, dict):
        for name, value in _by_cost(expected):
            field_path = f"{path}.{name}" if path else name
            if name not in got:
                return Difference(field_path, _shown(value, bindings), MISSING)
            bound = match(value, got[name], bindings)
            if bound is None:
                return _explain(value, got[name], bindings, field_path)
            bindings = dict(bound)
    if isinstance(expected, list) and isinstance(got, list):
        return _explain_list(expected, got, bindings, path)
    return Difference(path, _shown(expected, bindings), got)


def _explain_list(expected: list[Plain], got: list[Plain], bindings: dict[str, Any], path: str) -> Difference:
    unmatched: list[tuple[int, Plain]] = []
    left = list(got)
    for index, element in enumerate(expected):
        for candidate in left:
            bound = match(element, candidate, bindings)
            if bound is not None:
                bindings = dict(bound)
                left.remove(candidate)
                break
        else:
            unmatched.append((index, element))
    if len(expected) == len(got) and unmatched:
        index, element = unmatched[0]
        closest = max(left, key=lambda candidate: _likeness(element, candidate, bindings))
        return _explain(element, closest, bindings, f"{path}[{index}]")
    if unmatched and not left:
        index, element = unmatched[0]
        return Difference(f"{path}[{index}]", _shown(element, bindings), MISSING)
    if left and not unmatched:
        return Difference(f"{path}[{len(expected)}]", MISSING, left[0])
    return Difference(path, _shown(expected, bindings), got)


def _likeness(expected: Plain, got: Plain, bindings: dict[str, Any]) -> int:
    if not (isinstance(expected, dict) and isinstance(got, dict)):
        return 0
    return sum(match(value, got.get(name), bindings) is not None for name, value in _by_cost(expected))


def _shown(expected: Plain, bindings: dict[str, Any]) -> Plain:
    if isinstance(expected, dict):
        return {key: _shown(value, bindings) for key, value in expected.items()}
    if isinstance(expected, list):
        return [_shown(element, bindings) for element in expected]
    if isinstance(expected, str) and expected.startswith("$") and expected != ANYTHING:
        try:
            return f"{expected} = {_value_of(expected, bindings)}"
        except KeyError:
            return f"{expected} (not met before)"
    return expected
