"""Distinguished names of certificates and principal mapping rules, as in Kafka 4.4 and Java 17."""

from __future__ import annotations

import pytest

from groupcoord.broker.security.principals import (
    UnmappedNameError,
    certificate_principal,
    distinguished_name,
    map_name,
    parse_rules,
)
from groupcoord.errors import ConfigError

MAPPED = (
    ("RULE:CN=(.*?),O=(.*?)/$1/,DEFAULT", "CN=ann,O=Example", "annExample"),
    ("RULE:^CN=(.*?),.*$/$1/L,DEFAULT", "CN=Ann,O=Example", "ann"),
    ("RULE:a*/x/", "aaa", "xx"),
    ("RULE:.*/x/", "CN=ann", "xx"),
    ("RULE:(.*)/$1/U", "CN=ann", "CN=ANN"),
    ("RULE:CN=(.*)/$12/", "CN=ann", "ann2"),
    ("RULE:CN=(.*)/$2/", "CN=ann", "$2"),
    ("RULE:CN=(.*)/$0/", "CN=ann", "CN=ann"),
    ("RULE:CN=(.*)/a\\$1b/", "CN=ann", "a$1b"),
    ("RULE:CN=(.*)/\\n$1\\//", "CN=ann", "nann/"),
    ("RULE:CN=(.*)/a\\\\$1/", "CN=ann", "a\\ann"),
    ("RULE:CN=(?<n>.*)/${n}!/", "CN=ann", "ann!"),
    ("RULE:CN=(.*)/{}$1/", "CN=ann", "{}ann"),
    ("RULE:CN=(a)?(.*)/$1-$2/", "CN=bob", "-bob"),
    ("RULE:CN=(.*)/$1/", "O=Ann", None),
    (" RULE:CN=(.*)/$1/ , DEFAULT ", "CN=ann", "ann"),
    ("RULE:CN=(.*)/$1/,,DEFAULT", "O=ann", "O=ann"),
    (",DEFAULT", "O=ann", "O=ann"),
    ("DEFAULT,", "O=ann", "O=ann"),
    ("", "O=ann", None),
    ("RULE:/x/", "", "x"),
    ("RULE:CN=(.*),O=\\/(.*)/$1\\/$2/", "CN=ann,O=/x", "ann/x"),
    ("RULE:a|ab/x/", "ab", "xb"),
    ("RULE:(a|ab)(c|bcd)?/$1-$2;/", "abcd", "a-bcd;"),
    ("RULE:CN=([^,]*).*|.*/$1/", "O=x", ""),
    ("RULE:[a-z]*?/<$0>/", "abc", "<>a<>b<>c<>"),
    ("RULE:CN=(.*)/$1/L", "CN=ÄÖİ", "äöi̇"),
    ("RULE:CN=(.*)/$1/U", "CN=straße", "STRASSE"),
    ("RULE:CN=(.*)/$1 x/", "CN=ann", "ann x"),
    ("RULE:CN=(.*)/ $1/", "CN=ann", " ann"),
    ("RULE:CN=(.*)/$01/", "CN=ann", "ann"),
    ("RULE:CN=(.*)/$00/", "CN=ann", "CN=ann"),
    ("RULE:CN=(.*)/$10/", "CN=ann", "ann0"),
    ("RULE:C(N)=(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)/$11$12/", "CN=abcdefghij", "jN2"),
    ("RULE:CN=(\\w+)\\s*(.*)/$1_$2/", "CN=ann b", "ann_b"),
    ("RULE:CN=(.*+)/$1/", "CN=acc", "acc"),
    ("RULE:(?i)cn=(.*)/$1/", "CN=acc", "acc"),
    ("RULE:CN=(.*)/$3$1/", "CN=ann", "$3ann"),
    ("RULE:CN=(.*)/$34$1/", "CN=ann", "$34ann"),
    ("RULE:CN=(.*)/\\\\$2$1/", "CN=ann", "\\$2ann"),
)
"""Rules, a name, and what Kafka's ``SslPrincipalMapper`` makes of it; None: it refuses the client."""

REFUSED = (
    "RULE:CN=(.*)/$/",
    "RULE:CN=(.*)/a$b/",
    "RULE:CN=(.*)/${n}!/",
    "RULE:CN=(.*)/$1/Lxyz,DEFAULT",
    "RULE:CN=(.*)/$1/LU,DEFAULT",
    "RULE:CN=(.*)/$1/X,DEFAULT",
    "RULE:CN=(.*)/$1/ L,DEFAULT",
    "RULE:x",
    "DEFAULTx",
    "DEFAULT,RULE:x",
    "RULE:CN=(.*)/$1/DEFAULT",
    "RULE:CN=(.*)/$1/RULE:O=(.*)/$1/",
    "RULE:CN=(.*)/$1/;RULE:O=(.*)/$1/",
    "default",
    "RULE://x/",
    "RULE:(/x/",
    "RULE:CN=(.*)/$1$/",
    "RULE:CN=(.*)/$1\\/",
    "RULE:CN=(.*)/$1/ x DEFAULT,DEFAULT",
    "RULE:a/b//,DEFAULT",
    "RULE:a/b/L/c/,DEFAULT",
    "RULE:CN=(.*)/\\$2$1/",
    "RULE:CN=(.*)/$1",
    "RULE:CN=(.*)/${1}/",
    "RULE:CN=(.*)/${}/",
    "RULE:CN=(.*)/${n/",
    "RULE:CN=(.*)/$1/L RULE:O=(.*)/$1/U,DEFAULT",
)
"""Rules with which no Kafka broker starts, or which fail for every client."""

JAVA_ONLY = (r"RULE:CN=(\p{L}+)/$1/", "RULE:CN=([a-z&&[^b]]+)/$1/", r"RULE:CN=\Qa.c\E/x/")
"""Rules in words of Java's regular expressions that Python's lack."""


def mapped(rules: str, name: str) -> str | None:
    try:
        return map_name(parse_rules(rules), name)
    except UnmappedNameError:
        return None


def test_names_are_mapped_as_by_kafka() -> None:
    """The whole name must match, and every piece that matches is replaced, in Java's words for groups."""
    expected = {(rules, name): result for rules, name, result in MAPPED}

    assert {case: mapped(*case) for case in expected} == expected


@pytest.mark.parametrize("rules", [*REFUSED, *JAVA_ONLY])
def test_wrong_rules_are_refused(rules: str) -> None:
    """Before any client connects; also rules that Java would read otherwise."""
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(rules)


NAME = "CN=kafka1,OU=SME,O=mycp,L=Fulton,ST=MD,C=US"


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", f"User:{NAME}"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L,DEFAULT", "User:kafka1@sme"),
        ("RULE:^CN=(.*?),.*$/$1/U", "User:KAFKA1"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/", "User:kafka1"),
    ],
)
def test_rules_map_names(rules: str, principal: str) -> None:
    """The first rule that is for a name makes the principal (KIP-371)."""
    subject = tuple(
        ((kind, value),)
        for kind, value in (
            *(("countryName", "US"), ("stateOrProvinceName", "MD"), ("localityName", "Fulton")),
            *(("organizationName", "mycp"), ("organizationalUnitName", "SME"), ("commonName", "kafka1")),
        )
    )

    assert distinguished_name(subject) == NAME
    assert certificate_principal(parse_rules(rules))({"subject": subject}) == principal


def test_names_are_escaped_as_in_java() -> None:
    """RFC 2253's characters are escaped, and attributes without a keyword are the bytes of their value."""
    subject = ((("commonName", ' #a,b+"c\\<>;= '),), (("emailAddress", "a@b"),))

    expected = '1.2.840.113549.1.9.1=#1603614062,CN=\\ \\#a\\,b\\+\\"c\\\\\\<\\>\\;\\=\\ '
    assert distinguished_name(subject) == expected
    # As `X500Principal.getName` of Java 17 returns them.
    for size, start in ((127, "167f61"), (128, "16818061"), (255, "1681ff61"), (256, "1682010061")):
        long = distinguished_name(((("emailAddress", "a" * size),),))
        assert long == f"1.2.840.113549.1.9.1=#{start}" + "61" * (size - 1)
    for value, escaped in (("  a b  ", "\\ \\ a b\\ \\ "), ("a#b", "a\\#b"), ("  ", "\\ \\ ")):
        assert distinguished_name(((("commonName", value),),)) == f"CN={escaped}"
