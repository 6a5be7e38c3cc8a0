"""Settings of clients by Kafka's names: from files and the environment, checked, and secrets kept."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from groupcoord.columns.errors import InputError
from groupcoord.live.settings import ClusterAddress, client_settings, cluster_address, parse_properties

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN = {"bootstrap.servers": "a:1", "security.protocol": "SASL_PLAINTEXT"}


def test_properties_are_read_as_java_reads_them() -> None:
    """Comments, three separators, escapes, and lines that go on in the next."""
    text = "# c\n! c\n\n a = b=c \nd:e\nf g\nh\\=i=\\u0041\\\\\nlong=one,\\\n   two\\\n#three\nempty"

    assert parse_properties(text) == {
        "a": "b=c ", "d": "e", "f": "g", "h=i": "A\\", "long": "one,two#three", "empty": "",
    }  # fmt: skip


def test_a_log_in_of_kafkas_own_form() -> None:
    """Name and password stand in ``sasl.jaas.config``, with quotes in them escaped."""
    jaas = f'{SCRAM} required\n username="alice" password="a\\"; b\\\\";'
    settings = client_settings(LOGIN | {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas})

    assert (settings.username, settings.password) == ("alice", 'a"; b\\')
    assert "alice" not in repr(settings)
    assert "a\\" not in repr(settings)


def test_a_file_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the file does not set the environment may; the address given wins over both, and holds no secret."""
    monkeypatch.setenv("KAFKA_CLIENT_SASL_JAAS_CONFIG", f"{PLAIN} required username=alice password=secret;")
    monkeypatch.setenv("KAFKA_CLIENT_CLIENT_ID", "of-the-environment")
    monkeypatch.chdir(tmp_path)
    Path("client.properties").write_text(
        "bootstrap.servers=a:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nclient.id=of-the-file\n"
    )
    address = cluster_address("b:2", "client.properties")
    settings = address.settings()

    assert settings.bootstrap_servers == "b:2"
    assert (settings.username, settings.password, settings.client_id) == ("alice", "secret", "of-the-file")
    assert address == ClusterAddress("b:2", str(tmp_path / "client.properties"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "bootstrap.servers is missing"),
        ({"security.protocol": "TLS"}, "security.protocol: TLS is not supported; there are PLAINTEXT, SSL"),
        ({"sasl.oauthbearer.token.endpoint.url": "x"}, "sasl.oauthbearer.token.endpoint.url is not supported"),
        (LOGIN, "sasl.mechanism: GSSAPI is not supported; there are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        (LOGIN | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM}, "PLAIN needs one with PlainLoginModule"),
        (LOGIN | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} x username=a;"}, "password is missing"),
        ({"bootstrap.servers": "a:1", "request.timeout.ms": "0"}, "request.timeout.ms: 0 is no number of 1 or more"),
        (
            {"bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.truststore.location": "/store.jks"},
            "ssl.truststore.type: JKS can't be read; make it a PEM file",
        ),
        (
            {"bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.keystore.key": "k"},
            "ssl.keystore.key and ssl.keystore.certificate.chain go together",
        ),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], message: str) -> None:
    """Settings that are missing, wrong, or of a security that isn't supported."""
    with pytest.raises(InputError, match=message):
        client_settings(given)


def test_a_file_that_is_not_there_is_named() -> None:
    """The path, and why it can't be read."""
    with pytest.raises(InputError, match="/nowhere: No such file or directory"):
        ClusterAddress("a:1", "/nowhere").settings()


def test_certificates_that_are_none_are_refused() -> None:
    """A store that holds no certificate is told before anything is connected."""
    given = {"bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.truststore.certificates": "nothing"}

    with pytest.raises(InputError, match=r"settings ssl\.truststore"):
        client_settings(given).ssl_context()


def test_settings_of_consumers_are_passed_over_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """What doesn't say how to connect does no harm."""
    with caplog.at_level(logging.WARNING):
        assert client_settings({"bootstrap.servers": "a:1", "group.id": "g"}).security_protocol == "PLAINTEXT"

    assert "setting group.id is not used" in caplog.text
