"""All ways to log in, against a server that requires them, and the errors when it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import AclOperation, ResourceType

from groupcoord.analysis.errors import AccessError, ClusterError
from groupcoord.analysis.live.cluster import connection
from groupcoord.analysis.live.offsets import check_readable, topic_ends
from groupcoord.analysis.live.settings import ClusterAddress
from groupcoord.testing import ServerThread

from .logging_in import PLAIN, SCRAM, USERS, WITH_ACLS, address_with, allow, log_in


class Certificates:
    """Files of an authority, a server and a client."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.authority, self.server, self.client = (
            folder / f"{name}.pem" for name in ("authority", "server", "client")
        )
        authority.cert_pem.write_to_path(str(self.authority))
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(self.server))
        self.issued = authority.issue_cert("ann@example.org")
        self.issued.private_key_and_cert_chain_pem.write_to_path(str(self.client))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Made once."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


def ends_of(address: ClusterAddress) -> dict[int, int]:
    with connection(address) as (cluster, patience):
        ends = topic_ends(cluster, patience, "orders")
        check_readable(cluster, patience, ends)
        return ends.ends


@pytest.mark.parametrize(
    ("module", "mechanism"), [(PLAIN, "PLAIN"), (SCRAM, "SCRAM-SHA-256"), (SCRAM, "SCRAM-SHA-512")]
)
def test_users_log_in(tmp_path: Path, module: str, mechanism: str) -> None:
    """By PLAIN and SCRAM; the error of a wrong password does not contain it."""
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": mechanism}
    with ServerThread(topics={"orders": 2}, settings=settings, users=USERS) as server:
        assert ends_of(address_with(tmp_path, server.bootstrap, log_in(module, mechanism))) == {0: 0, 1: 0}
        wrong = address_with(tmp_path, server.bootstrap, log_in(module, mechanism, "mistake"))
        with pytest.raises(AccessError, match="the log-in is refused") as refused:
            ends_of(wrong)

    assert "mistake" not in str(refused.value)


@pytest.mark.parametrize("form", ["files", "text"])
def test_certificates_on_both_sides(tmp_path: Path, certificates: Certificates, form: str) -> None:
    """TLS, with a client's certificate: in PEM files, or as text in the settings."""
    server_settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(certificates.server),
        "ssl.truststore.location": str(certificates.authority),
        "ssl.client.auth": "required",
    }
    of_files = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.client),
    }
    chain = b"".join(one.bytes() for one in certificates.issued.cert_chain_pems).decode()
    of_text = {
        "ssl.truststore.certificates": certificates.authority.read_text(),
        "ssl.keystore.key": certificates.issued.private_key_pem.bytes().decode(),
        "ssl.keystore.certificate.chain": chain,
    }
    properties = {"security.protocol": "SSL", **(of_files if form == "files" else of_text)}
    with ServerThread(topics={"orders": 1}, settings=server_settings) as server:
        assert ends_of(address_with(tmp_path, server.bootstrap, properties)) == {0: 0}
        nobody = {name: value for name, value in properties.items() if "keystore" not in name}
        with pytest.raises(ClusterError):
            ends_of(address_with(tmp_path, server.bootstrap, nobody))


def test_a_server_must_be_the_one_that_its_certificate_names(tmp_path: Path, certificates: Certificates) -> None:
    """One for another name is refused, unless ``ssl.endpoint.identification.algorithm`` is empty; strangers always."""
    settings = {"listeners": "SASL_SSL://127.0.0.1:0", "ssl.keystore.location": str(certificates.client)}
    settings["sasl.enabled.mechanisms"] = "PLAIN"
    properties = {**log_in(PLAIN, "PLAIN"), "security.protocol": "SASL_SSL"}
    known = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificates.authority)}
    lenient = {"ssl.endpoint.identification.algorithm": ""}
    with ServerThread(topics={"orders": 1}, settings=settings, users=USERS) as server:
        for refused in (known, lenient):
            with pytest.raises(ClusterError, match="certificate verify failed"):
                ends_of(address_with(tmp_path, server.bootstrap, properties | refused))
        assert ends_of(address_with(tmp_path, server.bootstrap, properties | known | lenient)) == {0: 0}


def test_a_permission_that_is_missing_is_named(tmp_path: Path) -> None:
    """A user with DESCRIBE on the topic lacks READ; without DESCRIBE the topic seems not to exist."""
    with ServerThread(topics={"orders": 1}, settings=WITH_ACLS, users=USERS) as server:
        alice = address_with(tmp_path, server.bootstrap, log_in(PLAIN, "PLAIN"))
        with pytest.raises(AccessError, match="topic orders: this user lacks the permission DESCRIBE"):
            ends_of(alice)
        allow(server.bootstrap, ResourceType.TOPIC, "orders", AclOperation.DESCRIBE)
        with pytest.raises(AccessError, match="topic orders: this user lacks the permission READ"):
            ends_of(alice)
        allow(server.bootstrap, ResourceType.TOPIC, "orders", AclOperation.READ)

        assert ends_of(alice) == {0: 0}


def test_nobody_there_is_said(tmp_path: Path) -> None:
    """No server at the address: which, and why."""
    with pytest.raises(ClusterError, match=r"127.0.0.1:1: .*Connect call failed"):
        ends_of(address_with(tmp_path, "127.0.0.1:1", {}))
