"""Principals of clients: names of certificates in Java's form (RFC 2253), and their mapping rules.

Sources: ``SslPrincipalMapper`` (KIP-371), ``X500Principal.getName``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from groupcoord.errors import ConfigError, GroupcoordError

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
"""Attributes without a keyword; Java writes their values in DER, as hex."""

_ESCAPED = re.compile(r'[,+"\\<>;=#]|^ +| +$')
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|)\s*(?:,\s*|$)")
_GROUP_NAME = re.compile(r"\(\?<(?=[A-Za-z])")
_DOLLAR_DIGIT = re.compile(r"\$([0-9])")
_REPLACEMENT = re.compile(r"\\(.)|\$([0-9]+)|\$\{([A-Za-z][A-Za-z0-9]*)\}|([^\\$]+)", re.DOTALL)

Replacement = tuple[int | str, ...]
NewPrincipal = Callable[[Mapping[str, Any] | None], str]
"""Returns the principal of a certificate in the form of ``SSLObject.getpeercert``."""


class UnmappedNameError(GroupcoordError):
    """No rule matches the name of a client's certificate."""


class MappingRule(NamedTuple):
    """Rule of ``ssl.principal.mapping.rules``; without a pattern it keeps every name."""

    pattern: re.Pattern[str] | None = None
    replacement: Replacement = ()
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        # Java: matches() tests the whole name, then replaceAll() replaces every occurrence, which may be shorter.
        if self.pattern.fullmatch(name) is None:
            return None
        mapped = "".join(self._replaced(self.pattern, name))
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)

    def _replaced(self, pattern: re.Pattern[str], name: str) -> Iterator[str]:
        end = position = 0
        # After an empty match, re.sub tries a position again.
        while position <= len(name) and (match := pattern.search(name, position)) is not None:
            yield name[end : match.start()]
            yield from (part if isinstance(part, str) else match[part] or "" for part in self.replacement)
            end = match.end()
            position = end + (match.start() == end)
        yield name[end:]


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """Parse rules ``RULE:pattern/replacement/[LU]`` and ``DEFAULT``, separated by commas; ConfigError if malformed."""
    rules = []
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ConfigError(f"setting 'ssl.principal.mapping.rules': {text[position:]!r} is no rule")
        position = match.end()
        if match[1]:
            rules.append(MappingRule())
        elif match[2] is not None:
            try:
                pattern = _compiled(match[2])
                rules.append(MappingRule(pattern, _parsed(match[3], pattern), match[4]))
            except ValueError as error:
                raise ConfigError(f"setting 'ssl.principal.mapping.rules': {match[0]!r}: {error}") from None
    return tuple(rules)


def _compiled(text: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)  # set intersections of Java, which re does not have
        try:
            # Java's \w and \d are ASCII, and its named groups have no P.
            return re.compile(_GROUP_NAME.sub("(?P<", text), re.ASCII)
        except (re.error, FutureWarning) as error:
            raise ValueError(str(error)) from None


def _parsed(text: str, pattern: re.Pattern[str]) -> Replacement:
    """Parse a replacement like Java; a dollar before a digit without a group is literal."""
    # SslPrincipalMapper escapes references to groups that do not exist.
    text = _DOLLAR_DIGIT.sub(lambda match: match[0] if int(match[1]) <= pattern.groups else rf"\{match[0]}", text)
    parts: list[int | str] = []
    position = 0
    while position < len(text):
        match = _REPLACEMENT.match(text, position)
        if match is None:
            raise ValueError(f"{text[position:]!r} names no group")
        position = match.end()
        escaped, digits, name, plain = match.groups()
        if digits:
            parts += _numbered(digits, pattern.groups)
        elif name:
            if name not in pattern.groupindex:
                raise ValueError(f"there is no group {name!r}")
            parts.append(pattern.groupindex[name])
        else:
            parts.append(escaped or plain)
    return tuple(parts)


def _numbered(digits: str, groups: int) -> tuple[int | str, ...]:
    """Return the group named by the longest prefix of digits, and the remaining digits."""
    fitting = (length for length in range(len(digits), 0, -1) if int(digits[:length]) <= groups)
    length = next(fitting, 0)
    if not length:
        raise ValueError(f"there is no group {digits}")
    return int(digits[:length]), digits[length:]


def map_name(rules: tuple[MappingRule, ...], name: str) -> str:
    mapped = (rule.apply(name) for rule in rules)
    result = next((result for result in mapped if result is not None), None)
    if result is None:
        raise UnmappedNameError(f"no rule of ssl.principal.mapping.rules matches the name {name!r}")
    return result


def certificate_principal(rules: tuple[MappingRule, ...]) -> NewPrincipal:
    """Return a function that maps certificates to principals, a missing one to ``User:ANONYMOUS``."""

    def new_principal(certificate: Mapping[str, Any] | None) -> str:
        if not certificate:
            return ANONYMOUS
        return f"User:{map_name(rules, distinguished_name(certificate['subject']))}"

    return new_principal


def distinguished_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """Return a subject's name in Java's form, the last part first."""
    return ",".join("+".join(_attribute(kind, value) for kind, value in part) for part in reversed(subject))


def _attribute(kind: str, value: str) -> str:
    # X500Principal writes attributes without a keyword as #hex of their DER form.
    if kind in _IA5_STRINGS:
        return f"{_IA5_STRINGS[kind]}=#{_ia5_string(value.encode('ascii', 'replace')).hex()}"
    escaped = _ESCAPED.sub(lambda match: "".join(f"\\{character}" for character in match[0]), value)
    return f"{_KEYWORDS.get(kind, kind)}={escaped}"


def _ia5_string(content: bytes) -> bytes:
    """Encode an IA5String in DER (X.690): tag, length, content."""
    size = len(content)
    length = size.to_bytes(max(size.bit_length() + 7 >> 3, 1), "big")
    prefix = b"" if size < 0x80 else bytes((0x80 | len(length),))
    return b"\x16" + prefix + length + content


class ClientPrincipal(str):
    """Principal, equal to its text, with the client's address, since ACLs may hold for one host only."""

    __slots__ = ("host",)

    host: str

    def __new__(cls, principal: str, client_host: str) -> ClientPrincipal:
        made = super().__new__(cls, principal)
        # Java's form has a slash, that of ACLs none.
        made.host = client_host.removeprefix("/")
        return made
