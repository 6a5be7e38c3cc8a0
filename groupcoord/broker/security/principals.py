"""Principals of clients with certificates: their names as Java writes them (RFC 2253), and the rules that shorten them.

Sources: ``SslPrincipalMapper`` (KIP-371), ``X500Principal.getName``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from groupcoord.errors import ConfigError

ANONYMOUS = "User:ANONYMOUS"

_KEYWORDS = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "domainComponent": "DC",
    "userId": "UID",
}
_IA5_STRINGS = {"emailAddress": "1.2.840.113549.1.9.1"}
"""Names without a keyword, which Java writes as the bytes of their value."""

_ESCAPED = re.compile(r'[,+"\\<>;=]|^[# ]| $')
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)(?:,\s*|$)|DEFAULT(?:,\s*|$)")

NewPrincipal = Callable[[Mapping[str, Any] | None], str]
"""Makes a principal of what ``SSLObject.getpeercert`` gives."""


class MappingRule(NamedTuple):
    """One rule of ``ssl.principal.mapping.rules``; without a pattern it takes every name as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return what a name becomes; None if the rule isn't for it."""
        if self.pattern is None:
            return name
        match = self.pattern.match(name)
        if match is None or match.end() != len(name):
            return None
        mapped = match.expand(self.replacement)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """Return the rules that stand in text: ``RULE:pattern/replacement/[LU]`` and ``DEFAULT``, with commas between.

    Raises:
        ConfigError: something else stands there.
    """
    rules = []
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ConfigError(f"setting 'ssl.principal.mapping.rules': {text[position:]!r} is no rule")
        position = match.end()
        if match[1] is None:
            rules.append(MappingRule())
            continue
        try:
            replacement = re.sub(r"\$(\d+)", r"\\g<\1>", match[2])
            rules.append(MappingRule(re.compile(match[1]), replacement, match[3]))
        except re.error as error:
            raise ConfigError(f"setting 'ssl.principal.mapping.rules': {match[1]!r}: {error}") from None
    return tuple(rules)


def certificate_principal(rules: tuple[MappingRule, ...]) -> NewPrincipal:
    """Return what makes a principal of a certificate: by the first rule that is for its name.

    A client without a certificate is ``User:ANONYMOUS``, as is one whose name no rule is for.
    """

    def new_principal(certificate: Mapping[str, Any] | None) -> str:
        if not certificate:
            return ANONYMOUS
        name = distinguished_name(certificate["subject"])
        mapped = (rule.apply(name) for rule in rules)
        return next((f"User:{result}" for result in mapped if result is not None), ANONYMOUS)

    return new_principal


def distinguished_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """Return a subject's name as Java writes it: the last part first."""
    return ",".join("+".join(_attribute(kind, value) for kind, value in part) for part in reversed(subject))


def _attribute(kind: str, value: str) -> str:
    if kind in _IA5_STRINGS:
        content = value.encode("ascii", "replace")
        return f"{_IA5_STRINGS[kind]}=#16{len(content):02x}{content.hex()}"
    return f"{_KEYWORDS.get(kind, kind)}={_ESCAPED.sub(lambda match: chr(92) + match[0], value)}"
