"""Properties file of a Kafka client: settings and errors."""

from __future__ import annotations

import base64
import json
import ssl
from pathlib import Path

import pytest
import trustme

from groupcoord.config.client_properties import Address, ClientProperties, parse_address
from groupcoord.errors import ConfigError
from tests.tables import as_one_test

SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="a \\"b\\";c";'


def scram(**more: str) -> dict[str, str]:
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": SCRAM}
    return {**login, **{key.replace("_", "."): value for key, value in more.items()}}


def test_a_file_as_java_reads_it(tmp_path: Path) -> None:
    """Comments, continued lines and escapes are Java's; settings without a part in connecting are ignored."""
    path = tmp_path / "client.properties"
    path.write_text(
        "# how to get in\n"
        "bootstrap.servers=one:9092,\\\n    [::1]:9093\n"
        "security.protocol: SASL_SSL\n"
        "sasl.mechanism SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        '  username="\\u00c4nn" \\\n  password="secret";\n'
        "acks=all\nsession.timeout.ms=45000\n"
    )

    properties = ClientProperties.load(path)

    assert properties.addresses == (Address("one", 9092), Address("::1", 9093))
    assert str(properties.addresses[1]) == "[::1]:9093"
    assert (properties.uses_tls, properties.uses_sasl) == (True, True)
    assert (properties.credentials.username, properties.credentials.password) == ("Änn", "secret")
    assert properties.unused_keys == ("acks", "session.timeout.ms")


def test_without_security_nothing_is_needed() -> None:
    """An empty file is a client that connects in plain text."""
    properties = ClientProperties.from_mapping({})

    assert (properties.uses_tls, properties.uses_sasl, properties.addresses) == (False, False, ())


def test_quotes_in_a_password() -> None:
    assert ClientProperties.from_mapping(scram()).credentials.password == 'a "b";c'


def test_names_of_librdkafka() -> None:
    """A file for librdkafka has the same settings under other names."""
    properties = ClientProperties.from_mapping(
        {
            "metadata.broker.list": "one",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "ann",
            "sasl.password": "secret",
        }
    )

    assert properties.addresses == (Address("one", 9092),)
    assert (properties.credentials.username, properties.credentials.password) == ("ann", "secret")


def test_secrets_are_hidden() -> None:
    """Neither a value's text nor a message shows a secret."""
    secret = {"ssl.key.password": "hidden-1", "ssl.keystore.key": "hidden-2"}
    properties = ClientProperties.from_mapping({**scram(), **secret})

    assert 'a "b"' not in repr(properties)
    assert "hidden" not in repr(properties)
    assert 'a "b"' not in repr(properties.credentials)
    with pytest.raises(ConfigError) as refused:
        ClientProperties.from_mapping(scram(sasl_jaas_config='x.PlainLoginModule required password="hidden"'))
    assert "hidden" not in str(refused.value)


@as_one_test
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"security.protocol": "TLS"}, "'security.protocol' must be one of PLAINTEXT, SASL_PLAINTEXT"),
        ({"security.protocol": "SASL_SSL"}, "'sasl.mechanism' is missing"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "'sasl.mechanism' must be one of OAUTHBEARER"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "'sasl.jaas.config' is missing"),
        (scram(sasl_mechanism="PLAIN"), "is for SCRAM-SHA-256 or SCRAM-SHA-512; 'sasl.mechanism' is PLAIN"),
        (scram(sasl_jaas_config="x.ScramLoginModule required username=ann;"), "lacks password"),
        (scram(sasl_jaas_config="com.sun.Krb5LoginModule required;"), "names com.sun.Krb5LoginModule"),
        (scram(sasl_jaas_config="x.ScramLoginModule required 'a';"), "that is no KEY="),
        (scram(sasl_jaas_config="username=ann"), "must be CLASS required"),
        (
            {"ssl.trustore.location": "a"},
            "unknown key 'ssl.trustore.location'; did you mean 'ssl.truststore.location'?",
        ),
        ({"ssl.truststore.type": "JKS"}, "of type JKS can't be read; write the store as PEM"),
        ({"ssl.enabled.protocols": "SSLv3"}, "'ssl.enabled.protocols' must be one of TLSv1.2, TLSv1.3"),
        ({"ssl.engine.factory.class": "x"}, "can't be followed: it names a class of Java"),
        ({"bootstrap.servers": "${env:KAFKA}"}, "refers to something else"),
        ({"bootstrap.servers": "one:http"}, "'one:http' is no address HOST:PORT"),
        ({"sasl.mechanism": "PLAIN", "sasl.mechanisms": "PLAIN"}, "'sasl.mechanism' is given twice"),
        ({"client.id": 7}, "'client.id' must be text, not int"),
    ],
)
def test_what_is_refused(properties: dict[str, str], message: str) -> None:
    """Settings about connecting are supported, or refused with a reason."""
    with pytest.raises(ConfigError) as refused:
        ClientProperties.from_mapping(properties)

    assert message in str(refused.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that isn't there, or is no properties file, is named in the message."""
    path = tmp_path / "client.properties"
    with pytest.raises(ConfigError, match=r"client\.properties can't be read: No such file"):
        ClientProperties.load(path)
    path.write_bytes(b"a=\\uZZ")
    with pytest.raises(ConfigError, match=r"client\.properties can't be read"):
        ClientProperties.load(path)
    path.write_text("security.protocol=TLS")
    with pytest.raises(ConfigError, match=r"client\.properties: 'security\.protocol' must be"):
        ClientProperties.load(path)


def test_an_unsecured_token() -> None:
    """Claims come from the options of the login module, as Kafka's own module makes them."""
    jaas = 'x.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="ann" unsecuredLoginListClaim_scope=",a,b";'
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": jaas}
    header, claims, signature = ClientProperties.from_mapping(login).credentials.unsecured_token(1000.9).split(".")

    assert (json.loads(base64.urlsafe_b64decode(header + "==")), signature) == ({"alg": "none"}, "")
    assert json.loads(base64.urlsafe_b64decode(claims + "==")) == {
        "sub": "ann",
        "scope": ["a", "b"],
        "iat": 1000,
        "exp": 4600,
    }


def test_certificates_as_files_and_as_text(tmp_path: Path) -> None:
    """A trusted authority and a client certificate make a context; invalid PEM is an error."""
    authority, identity = trustme.CA(), trustme.CA().issue_cert("ann@example.org")
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    identity.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "ann.pem"))
    as_files = {"ssl.truststore.location": f"{tmp_path}/authority.pem", "ssl.keystore.location": f"{tmp_path}/ann.pem"}
    as_text = {
        "ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
        "ssl.keystore.key": identity.private_key_pem.bytes().decode(),
        "ssl.keystore.certificate.chain": identity.cert_chain_pems[0].bytes().decode(),
        "ssl.endpoint.identification.algorithm": "",
    }

    strict = ClientProperties.from_mapping(as_files).tls_context()
    lax = ClientProperties.from_mapping(as_text).tls_context()

    assert (strict.check_hostname, lax.check_hostname) == (True, False)
    assert strict.verify_mode == lax.verify_mode == ssl.CERT_REQUIRED
    assert len(strict.get_ca_certs()) == len(lax.get_ca_certs()) == 1
    (tmp_path / "authority.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"'ssl\.truststore…' can't be read as PEM"):
        ClientProperties.from_mapping(as_files).tls_context()
    with pytest.raises(ConfigError, match=r"'ssl\.keystore…' can't be read as PEM: No such file"):
        ClientProperties.from_mapping({"ssl.keystore.location": "nowhere"}).tls_context()


@pytest.mark.parametrize("text", ["", ":9092", "host:0", "host:65536", "http://host:1"])
def test_what_is_no_address(text: str) -> None:
    """An address is a host and a port."""
    with pytest.raises(ConfigError, match="is no address"):
        parse_address(text)
