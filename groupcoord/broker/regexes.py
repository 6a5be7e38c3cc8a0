"""Regular expressions of consumer groups over the broker's topics: RE2, in linear time like Kafka's RE2J."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any

import re2

from groupcoord.broker.topics.registry import TopicRegistry
from groupcoord.core.router.authorization import Authorize, Operation, Permissions, Principal

MEMORY_MAX = 2_097_152
"""Most bytes of a compiled expression and its matching state; larger ones are invalid."""
USUAL_MEMORY_MAX = 131_072
"""Enough for nearly all expressions."""
USUAL_EXPRESSIONS_MAX, LARGE_EXPRESSIONS_MAX = 128, 8
"""Most cached expressions of each size, which take 32 MiB at most."""

_TOO_LARGE = "pattern too large"
_IGNORES_CASE = re.compile(r"\(\?[a-zA-Z]*i")
# `\\x` is an escaped backslash and an x, so each escape is matched whole.
_BEYOND_LATIN = re.compile(r"[^\x00-\xff]|\\x\{0*[1-9a-fA-F][0-9a-fA-F]{2,}\}|(?P<escaped>\\.)", re.DOTALL)

ExpressionError: type[Exception] = re2.error
"""Error of an invalid expression."""


def compile_expression(regex: str, *, ascii_only: bool = False) -> Any:
    """Return a compiled expression. With ``ascii_only`` it matches ASCII only, and its character classes are much
    smaller.

    Raises:
        ExpressionError: it is invalid or too large.
    """
    try:
        return _usual_expression(regex, ascii_only)
    except re2.error as error:
        if _TOO_LARGE not in str(error.args[0]):
            raise
        return _large_expression(regex, ascii_only)


def _compile(regex: str, is_latin: bool, memory_max: int) -> Any:
    if not is_latin:
        return _compile_within(regex, re2.Options.Encoding.UTF8, memory_max)
    # Names of topics are ASCII, so classes need not cover all of Unicode.
    in_latin = _BEYOND_LATIN.sub(_as_latin, regex)
    # Small expressions keep their characters, so that errors are those of the original.
    if in_latin != regex:
        try:
            return _compile_within(regex, re2.Options.Encoding.UTF8, USUAL_MEMORY_MAX)
        except re2.error as error:
            # Letters beyond Latin-1 may be ASCII where case is ignored.
            if _TOO_LARGE not in str(error.args[0]) or _IGNORES_CASE.search(regex):
                raise
    return _compile_within(in_latin.encode("latin-1"), re2.Options.Encoding.LATIN1, memory_max)


def _as_latin(found: re.Match[str]) -> str:
    """Return a Latin-1 character in place of one beyond Latin-1; neither is ASCII."""
    if found["escaped"]:
        return found[0]
    return "\xff" if len(found[0]) == 1 else r"\xff"


def _compile_within(pattern: str | bytes, encoding: Any, memory_max: int) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.encoding = encoding
    options.max_mem = memory_max
    try:
        return re2.compile(pattern, options)
    finally:
        re2.purge()  # the cache of the binding has no size limit


# Any client may subscribe to any number of expressions.
_usual_expression = lru_cache(USUAL_EXPRESSIONS_MAX)(partial(_compile, memory_max=USUAL_MEMORY_MAX))
_large_expression = lru_cache(LARGE_EXPRESSIONS_MAX)(partial(_compile, memory_max=MEMORY_MAX))


class TopicMatcher:
    """Matches expressions against the names of all topics."""

    def __init__(self, topics: TopicRegistry, authorize: Authorize | None) -> None:
        self._topics = topics
        self._authorize = authorize

    def problem(self, regex: str) -> str | None:
        """Return the error message of an expression, or None."""
        try:
            compile_expression(regex, ascii_only=True)
        except re2.error as error:
            # The binding raises bytes or text.
            reason = error.args[0]
            text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            return f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}."
        return None

    def matching_topics(self, regex: str, principal: Principal) -> Iterable[str]:
        """Return the topics that an expression matches completely and that the principal may describe."""
        # KIP-848: topics that the member may not describe do not match.
        permissions = Permissions(self._authorize, principal)
        expression = compile_expression(regex, ascii_only=True)
        return [
            topic.name
            for topic in self._topics
            if expression.fullmatch(topic.name) and permissions.on_topic(topic.name, Operation.DESCRIBE)
        ]
