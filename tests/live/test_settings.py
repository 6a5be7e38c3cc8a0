"""Settings of clients by Kafka's names: from files and the environment, checked, and secrets kept."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from groupcoord.analysis.errors import InputError
from groupcoord.analysis.live.settings import ClusterAddress, client_settings, cluster_address

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
TOKEN = "x.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=alice;"
LOGIN = {"bootstrap.servers": "a:1", "security.protocol": "SASL_PLAINTEXT"}


def test_a_file_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment variables fill in what the file lacks; the given address takes precedence, and contains no secret."""
    monkeypatch.setenv("KAFKA_CLIENT_SASL_JAAS_CONFIG", f"{PLAIN} required username=alice password=secret;")
    monkeypatch.setenv("KAFKA_CLIENT_CLIENT_ID", "of-the-environment")
    monkeypatch.chdir(tmp_path)
    Path("client.properties").write_text(
        "bootstrap.servers=a:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nclient.id=of-the-file\n"
    )
    address = cluster_address("b:2", "client.properties")
    settings = address.settings()

    assert settings.bootstrap_servers == "b:2"
    credentials = settings.properties.credentials
    assert (credentials.username, credentials.password) == ("alice", "secret")
    assert settings.properties.client_id == "of-the-file"
    assert "secret" not in repr(settings)
    assert address == ClusterAddress("b:2", str(tmp_path / "client.properties"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "'bootstrap.servers' is missing"),
        ({"security.protocol": "TLS"}, "'security.protocol' must be one of PLAINTEXT"),
        ({"bootstrap.servers": "a:1", "request.timeout.ms": "0"}, "'request.timeout.ms' must be a number of 1 or more"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], message: str) -> None:
    """Settings that are missing, wrong, or of a security that isn't supported."""
    with pytest.raises(InputError, match=message):
        client_settings(given)


def test_librdkafkas_names_mean_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of the file in librdkafka's spelling goes before the environment, and the address given before it."""
    monkeypatch.setenv("KAFKA_CLIENT_SASL_MECHANISM", "SCRAM-SHA-256")
    path = tmp_path / "client.properties"
    path.write_text(
        "metadata.broker.list=a:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanisms=PLAIN\n"
        "sasl.username=alice\nsasl.password=secret\n"
    )
    settings = ClusterAddress("b:2", str(path)).settings()

    assert (settings.bootstrap_servers, settings.properties.sasl_mechanism) == ("b:2", "PLAIN")


def test_a_file_that_is_not_there_is_named() -> None:
    """The path, and why it can't be read."""
    with pytest.raises(InputError, match="/nowhere can't be read: No such file or directory"):
        ClusterAddress("a:1", "/nowhere").settings()


def test_settings_of_consumers_are_passed_over_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """Settings without a part in connecting are ignored, with a line that names them."""
    with caplog.at_level(logging.WARNING):
        assert not client_settings({"bootstrap.servers": "a:1", "group.id": "g"}).properties.uses_sasl

    assert "setting group.id is not used" in caplog.text
